# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A driver without storage for the peer's cinder-volume, as our fake backend is.

Cinder's own fake (``cinder.tests.fake_driver``) imports its unit tests, whose libraries
the package does not install, and reports no multiattach. Every call here returns at
once, so what is timed is Cinder itself.
"""

from __future__ import annotations

from typing import Any

from cinder.volume import driver


class NoStorage(driver.VolumeDriver):  # type: ignore[misc]
    """Accepts everything."""

    VERSION = "1.0"

    def check_for_setup_error(self) -> None:
        """Nothing can be missing."""

    def get_volume_stats(self, refresh: bool = False) -> dict[str, Any]:
        """One pool without limits."""
        return {
            "volume_backend_name": "fake",
            "vendor_name": "none",
            "driver_version": self.VERSION,
            "storage_protocol": "iSCSI",
            "total_capacity_gb": 1_000_000,
            "free_capacity_gb": 1_000_000,
            "thin_provisioning_support": True,
            "thick_provisioning_support": False,
            "provisioned_capacity_gb": 0,
            "max_over_subscription_ratio": 20,
            "multiattach": True,
        }

    def create_volume(self, volume: object) -> None:
        """Nothing to create."""

    def delete_volume(self, volume: object) -> None:
        """Nothing to delete."""

    def create_export(self, *ignored: object) -> None:
        """Nothing to export."""

    def ensure_export(self, *ignored: object) -> None:
        """Nothing to export."""

    def remove_export(self, *ignored: object) -> None:
        """Nothing is exported."""

    def initialize_connection(self, volume: Any, connector: object) -> dict[str, Any]:
        """What a host needs to connect, in the form of an iSCSI driver."""
        return {
            "driver_volume_type": "iscsi",
            "data": {
                "target_portal": "127.0.0.1:3260",
                "target_iqn": f"iqn.2010-10.org.openstack:volume-{volume['id']}",
                "target_lun": 0,
                "access_mode": "ro",
            },
        }

    def terminate_connection(self, *ignored: object, **more: object) -> None:
        """Nothing is connected."""
