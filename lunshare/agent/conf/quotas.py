# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of quotas ([DEFAULT], as Cinder has them): the limits of every project."""

from oslo_config import cfg

from lunshare.agent.model.quota_table import RESOURCES, UNLIMITED, VOLUME_SIZE

OPTIONS = [
    *(
        cfg.IntOpt(
            resource.option,
            default=resource.default,
            min=UNLIMITED,
            max=2**31 - 1,
            help=f"{resource.what}, at most; -1 is no limit."
            + (
                ""
                if resource.name == VOLUME_SIZE
                else " PUT /v3/os-quota-class-sets/default overrides it for all"
                " projects, PUT /v3/os-quota-sets/PROJECT for one."
            ),
        )
        for resource in RESOURCES
    ),
    cfg.BoolOpt(
        "no_snapshot_gb_quota",
        default=False,
        help="Whether the GiB of snapshots are left out of quota_gigabytes.",
    ),
]
