# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Options of Cinder's own drivers that mean nothing here, and what to use instead.

Cinder ignores an option that a driver does not know. A volume would then not be wiped,
mirrored or protected as its operator wrote, so each of them is refused.
"""

from __future__ import annotations

_WIPED = (
    "remove it: every thick volume is wiped completely, in the background; wipe_rate"
    " limits the speed"
)
_TARGET = "remove it: lunshare_target chooses how volumes are exported"
_CHAP = "remove it: use_chap_auth gives each host of each volume a secret of its own"
_LOGIN = "remove it: the kernel mounts the share, without a login"
_LOCAL = "remove it: the storage is on this node; nothing is asked over TLS"
_NFS_MODE = "remove it: set nfs_file_mode; the root helper does all work on files"

#: The option, and what to do.
FOREIGN: dict[str, str] = {
    "chap_password": _CHAP,
    "chap_username": _CHAP,
    "chiscsi_conf": _TARGET,
    "driver_client_cert": _LOCAL,
    "driver_client_cert_key": _LOCAL,
    "driver_ssl_cert_path": _LOCAL,
    "driver_ssl_cert_verify": _LOCAL,
    "driver_use_ssl": _LOCAL,
    "iscsi_iotype": _TARGET,  # of Cinder 27
    "iscsi_target_flags": _TARGET,
    "iscsi_write_cache": _TARGET,
    "iser_helper": _TARGET,
    "iser_ip_address": _TARGET,
    "iser_port": _TARGET,
    "iser_target_prefix": _TARGET,
    "lvm_conf_file": "remove it: the root helper uses the node's /etc/lvm/lvm.conf",
    "lvm_mirrors": "remove it: put the volume group on disks that are mirrored (raid1)",
    "lvm_share_target": "remove it: each volume has a target of its own",
    "lvm_suppress_fd_warnings": "remove it: it has no effect here",
    "nas_login": _LOGIN,
    "nas_password": _LOGIN,
    "nas_private_key": _LOGIN,
    "nas_secure_file_operations": _NFS_MODE,
    "nas_secure_file_permissions": _NFS_MODE,
    "nas_ssh_port": _LOGIN,
    "nas_volume_prov_type": "use nfs_sparsed_volumes",
    "nfs_mount_attempts": "remove it: a share is mounted again with each check",
    "nfs_mount_options": "use nas_mount_options, or -o in nfs_shares_config",
    "nfs_qcow2_volumes": "remove it: a file is raw, so that hosts can share it",
    "nfs_snapshot_support": "remove it: snapshots are always supported",
    "num_iser_scan_tries": _TARGET,
    "nvmeof_conn_info_version": _TARGET,
    "nvmet_ns_id": _TARGET,
    "nvmet_port_id": _TARGET,
    "replication_device": "remove it: a volume has one copy, on this node",
    "scst_target_driver": _TARGET,
    "scst_target_iqn_name": _TARGET,
    "spdk_max_queue_depth": _TARGET,
    "spdk_rpc_ip": _TARGET,
    "spdk_rpc_password": _TARGET,
    "spdk_rpc_port": _TARGET,
    "spdk_rpc_username": _TARGET,
    "storage_protocol": _TARGET,
    "target_helper": _TARGET,
    "target_protocol": _TARGET,
    "volume_clear": _WIPED,
    "volume_clear_ionice": _WIPED,
    "volume_clear_size": _WIPED,
    "volumes_dir": _TARGET,
}
