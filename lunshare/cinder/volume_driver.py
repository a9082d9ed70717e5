# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The class that cinder-volume loads: Cinder's interface on lunshare's drivers."""

from __future__ import annotations

import logging
from collections.abc import Iterable, Mapping, MutableMapping
from typing import Any

from cinder import exception, interface, utils
from cinder.image import image_utils
from cinder.volume import configuration as cinder_configuration
from cinder.volume import driver as cinder_base
from cinder.volume import volume_utils
from lunshare.cinder import (
    backend_section,
    chap_secrets,
    manageable_disks,
    node_location,
)
from lunshare.cinder.assembled import Assembled
from lunshare.cinder.cinder_errors import as_cinder, translated
from lunshare.cinder.host_connections import driver_volume
from lunshare.drivers import devices
from lunshare.drivers.errors import DiskBusy
from lunshare.drivers.values import GIB, DiskKind, Snapshot, Volume

LOG = logging.getLogger(__name__)


@interface.volumedriver
class LunshareDriver(cinder_base.VolumeDriver):  # type: ignore[misc]
    """Volumes on LVM or NFS, exported by LIO with the mode of each attachment.

    What the drivers need of root, the root helper does. Methods have the arguments,
    results and errors of ``cinder.interface.volume_driver``.
    """

    VERSION = "1.0"
    CI_WIKI_NAME = "lunshare"
    # One process works for a backend: its locks and its memory of unfinished rows are
    # in this process.
    SUPPORTS_ACTIVE_ACTIVE = False

    def __init__(self, *args: Any, **kwargs: Any) -> None:
        super().__init__(*args, **kwargs)
        # cinder-volume creates every backend in one process, and forks a process for
        # each. What is claimed here belongs to all of them.
        self._made = Assembled(
            cinder_configuration.CONF, self.configuration, self.db, self._of_operator
        )

    @staticmethod
    def get_driver_options() -> list[Any]:
        """Return the options of this driver; those of its drivers are not Cinder's."""
        return backend_section.OPTIONS

    def check_for_setup_error(self) -> None:
        """Check the configuration, the root helper and the storage."""
        with as_cinder():
            self._made.check()

    # Volumes

    @translated
    def create_volume(self, volume: Any) -> dict[str, Any]:
        new = driver_volume(volume)
        with self._made.connections.locked(new.id):
            self._made.backend.create(new)
        return self._new_auth()

    @translated
    def delete_volume(self, volume: Any) -> None:
        with self._made.connections.locked(volume.name_id):
            if volume.source_volid or not self._clones_at_once:
                # Left by a clone in three steps that was killed, perhaps before an
                # upgrade of lunshare to clones in one step. Cinder's own clones, for
                # its image cache and backups, have no source_volid.
                self._made.backend.delete_snapshot(volume.name_id)
            self._made.backend.delete(volume.name_id)
        self._made.wiper.wake()

    @translated
    def extend_volume(self, volume: Any, new_size: int) -> None:
        new = Volume(volume.name_id, new_size * GIB)
        with self._made.connections.locked(new.id):
            self._made.backend.volumes.extend(new)
            self._made.connections.show_size(volume, new.size)

    @translated
    def create_volume_from_snapshot(self, volume: Any, snapshot: Any) -> dict[str, Any]:
        new = driver_volume(volume)
        with self._made.connections.locked(new.id):
            self._made.backend.volumes.create_from(new, driver_snapshot(snapshot))
        return self._new_auth()

    @translated
    def create_cloned_volume(self, volume: Any, src_vref: Any) -> dict[str, Any]:
        new, source = driver_volume(volume), driver_volume(src_vref)
        temporary, parts = Snapshot(new.id, source.id, source.size), self._made
        with parts.connections.locked(source.id):
            if self._clones_at_once:
                with parts.connections.locked(new.id):
                    parts.backend.volumes.clone(new, source)
                return self._new_auth()
            parts.backend.volumes.create_snapshot(temporary)
        with parts.connections.locked(new.id):
            try:
                parts.backend.volumes.create_from(new, temporary)
            finally:
                parts.backend.delete_snapshot(temporary.id)
        return self._new_auth()

    # Snapshots

    @translated
    def create_snapshot(self, snapshot: Any) -> None:
        new = driver_snapshot(snapshot)
        with self._made.connections.locked(new.volume_id):
            self._made.backend.volumes.create_snapshot(new)

    @translated
    def delete_snapshot(self, snapshot: Any) -> None:
        try:
            with self._made.connections.locked(driver_snapshot(snapshot).volume_id):
                self._made.backend.delete_snapshot(snapshot.id)
        except DiskBusy as error:
            raise exception.SnapshotIsBusy(str(error)) from error
        self._made.wiper.wake()

    @translated
    def revert_to_snapshot(self, context: Any, volume: Any, snapshot: Any) -> None:
        target = driver_volume(volume)
        with self._made.connections.locked(target.id):
            self._made.backend.volumes.revert(driver_snapshot(snapshot))
            self._made.backend.volumes.extend(target)

    def snapshot_revert_use_temp_snapshot(self) -> bool:
        """A killed revert is repeated, so no copy of the volume is needed."""
        return False

    def backup_use_temp_snapshot(self) -> bool:
        """No: a target exports volumes. A backup in use gets a temporary volume."""
        if super().backup_use_temp_snapshot():
            LOG.warning(
                "[%s] backup_use_temp_snapshot is ignored: a temporary volume is used",
                self._made.name,
            )
        return False

    # Images

    @translated
    def local_path(self, volume: Any) -> str:
        """Return the path of the disk on this node; only root may open it."""
        return self._made.backend.volumes.disk(volume.name_id).path

    def copy_image_to_volume(
        self,
        context: Any,
        volume: Any,
        image_service: Any,
        image_id: str,
        disable_sparse: bool = False,
    ) -> None:
        disk = self._made.backend.volumes.disk(volume.name_id)
        # qemu-img creates a file anew. Where it has holes, nothing is reserved.
        full = disk.kind is DiskKind.FILE and self._reserves_space
        image_utils.fetch_to_raw(
            context,
            image_service,
            image_id,
            disk.path,
            self.configuration.volume_dd_blocksize,
            size=volume.size,
            disable_sparse=disable_sparse or full,
        )
        # qemu-img and dd give a file the size of the image.
        self._extend_to_size(volume)

    def copy_volume_to_image(
        self, context: Any, volume: Any, image_service: Any, image_meta: Any
    ) -> None:
        with as_cinder():
            disk = self._made.backend.volumes.disk(volume.name_id)
        if disk.kind is DiskKind.BLOCK:
            # LIO writes past the page cache, which may have what udev or an earlier
            # upload read. Cinder reads through it.
            with utils.temporary_chown(disk.path):
                devices.drop_cache(disk.path)
        volume_utils.upload_volume(
            context, image_service, image_meta, disk.path, volume
        )

    # Hosts

    def validate_connector(self, connector: Mapping[str, Any]) -> None:
        problem = self._made.connector_problem(connector)
        if problem:
            raise exception.InvalidConnectorException(missing=problem)

    def create_export(
        self, context: Any, volume: Any, connector: Any
    ) -> dict[str, Any] | None:
        """Give the volume its key for CHAP, if it has none; hosts are added later.

        Hosts that another driver has attached keep the credentials of that driver.
        """
        is_known = chap_secrets.is_provider_auth(volume.provider_auth)
        shared = not is_known and chap_secrets.of_host(volume.provider_auth, "")
        keep = is_known or (shared and self._made.connections.has_hosts(volume))
        changes = {} if keep else self._new_auth()
        location = self._made.connections.provider_location(volume)
        if location and location != volume.provider_location:
            changes["provider_location"] = location
        return changes or None

    def ensure_export(self, context: Any, volume: Any) -> None:
        """Make the export what the rows say. What fails now is repeated each minute."""
        with as_cinder():
            self._made.start_volume(volume)

    @translated
    def remove_export(self, context: Any, volume: Any) -> None:
        """Close what no attachment wants. Called after a failed attach, too."""
        self._made.connections.detach_unwanted(volume)

    @translated
    def initialize_connection(
        self,
        volume: Any,
        connector: MutableMapping[str, Any],
        initiator_data: Any = None,
        **kwargs: Any,
    ) -> dict[str, Any]:
        return self._made.connections.attach(volume, connector)

    @translated
    def terminate_connection(
        self, volume: Any, connector: Mapping[str, Any] | None, **kwargs: Any
    ) -> bool:
        return self._made.connections.detach(volume, connector)

    # Other backends, foreign disks

    def get_pool(self, volume: Any) -> str:
        return self._made.pool_name

    def retype(
        self, context: Any, volume: Any, new_type: Any, diff: Any, host: Any
    ) -> bool:
        """Any type that this backend's stats allow: the volume itself is the same."""
        return True

    @translated
    def migrate_volume(
        self, context: Any, volume: Any, host: Mapping[str, Any]
    ) -> tuple[bool, dict[str, Any] | None]:
        return self._made.migration.migrate(volume, host), None

    @translated
    def manage_existing(
        self, volume: Any, existing_ref: Mapping[str, Any]
    ) -> dict[str, Any]:
        volumes = self._made.backend.volumes
        with self._made.connections.locked(volume.name_id):
            foreign = manageable_disks.find(volumes, existing_ref)
            # Cinder stores the size, rounded up to GiB, after this call.
            new = Volume(volume.name_id, foreign.gib * GIB)
            disk = volumes.manage(new, foreign.reference)
            if disk.size < new.size:
                volumes.extend(new)
        return self._new_auth()

    @translated
    def manage_existing_get_size(
        self, volume: Any, existing_ref: Mapping[str, Any]
    ) -> int:
        return manageable_disks.find(self._made.backend.volumes, existing_ref).gib

    @translated
    def get_manageable_volumes(  # noqa: PLR0917 - the arguments are Cinder's
        self,
        cinder_volumes: Iterable[Any],
        marker: Any,
        limit: Any,
        offset: Any,
        sort_keys: Any,
        sort_dirs: Any,
    ) -> Any:
        entries = manageable_disks.entries(self._made.backend.volumes, cinder_volumes)
        return volume_utils.paginate_entries_list(
            entries, marker, limit, offset, sort_keys, sort_dirs
        )

    @translated
    def unmanage(self, volume: Any) -> None:
        with self._made.connections.locked(volume.name_id):
            self._made.backend.target.remove(volume.name_id)
            self._made.backend.volumes.unmanage(volume.name_id)

    @translated
    def manage_existing_snapshot(
        self, snapshot: Any, existing_ref: Mapping[str, Any]
    ) -> None:
        new, volumes = driver_snapshot(snapshot), self._made.backend.volumes
        with self._made.connections.locked(new.volume_id):
            foreign = manageable_disks.find_snapshot(
                volumes, new.volume_id, existing_ref
            )
            volumes.manage_snapshot(new, foreign.reference)

    @translated
    def manage_existing_snapshot_get_size(
        self, snapshot: Any, existing_ref: Mapping[str, Any]
    ) -> int:
        volumes, volume_id = self._made.backend.volumes, snapshot.volume.name_id
        return manageable_disks.find_snapshot(volumes, volume_id, existing_ref).gib

    @translated
    def get_manageable_snapshots(  # noqa: PLR0917 - the arguments are Cinder's
        self,
        cinder_snapshots: Iterable[Any],
        marker: Any,
        limit: Any,
        offset: Any,
        sort_keys: Any,
        sort_dirs: Any,
    ) -> Any:
        volumes = self._made.backend.volumes
        entries = manageable_disks.snapshot_entries(volumes, cinder_snapshots)
        return volume_utils.paginate_entries_list(
            entries, marker, limit, offset, sort_keys, sort_dirs
        )

    @translated
    def unmanage_snapshot(self, snapshot: Any) -> None:
        former = driver_snapshot(snapshot)
        with self._made.connections.locked(former.volume_id):
            self._made.backend.volumes.unmanage_snapshot(former)

    # The service

    def update_provider_info(
        self, volumes: Iterable[Any], snapshots: Iterable[Any]
    ) -> tuple[None, None]:
        """Make every export what the rows say: Cinder calls it at each start."""
        self._made.start_volumes(list(volumes), self.host)
        return None, None

    def _update_volume_stats(self) -> None:
        self._stats = self._made.read_stats()

    def _of_operator(self) -> dict[str, Any]:
        """Return the stats that cinder.conf decides."""
        name = self.configuration.safe_get("volume_backend_name") or self._made.name
        return {
            "volume_backend_name": name,
            "pool_name": name,
            "reserved_percentage": self.configuration.reserved_percentage,
            "max_over_subscription_ratio": (
                self.configuration.max_over_subscription_ratio
            ),
            "filter_function": self.get_filter_function(),
            "goodness_function": self.get_goodness_function(),
            "location_info": node_location.location_info(self._made.name),
        }

    @translated
    def _extend_to_size(self, volume: Any) -> None:
        new = driver_volume(volume)
        with self._made.connections.locked(new.id):
            self._made.backend.volumes.extend(new)

    @property
    def _reserves_space(self) -> bool:
        return self._made.backend.volumes.abilities.reserves_space

    @property
    def _clones_at_once(self) -> bool:
        return self._made.backend.volumes.abilities.clones_at_once

    def _new_auth(self) -> dict[str, Any]:
        return {"provider_auth": chap_secrets.new_provider_auth()}


def driver_snapshot(snapshot: Any) -> Snapshot:
    """Return Cinder's snapshot as drivers know it; its size is in bytes."""
    return Snapshot(snapshot.id, snapshot.volume.name_id, snapshot.volume_size * GIB)
