# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""corosync, and DLM on the hosts that write; ``fence_lunshare`` is their fencing."""

from __future__ import annotations

from collections.abc import Sequence

from tests.cluster.cluster import Access, Host

NAME = "shared"
_TOTEM = (
    f"totem {{\n version: 2\n cluster_name: {NAME}\n transport: udpu\n"
    " token: 3000\n}\n"
    "quorum {\n provider: corosync_votequorum\n two_node: 1\n wait_for_all: 0\n}\n"
    "logging {\n to_syslog: yes\n}\n"
)
_NODE = (
    " node {{\n  nodeid: {id}\n  name: {host.name}\n  ring0_addr: {host.address}\n }}\n"
)
#: DLM stops every lock until the agent has answered for a host that is gone.
_DLM = (
    "device lunshare /usr/sbin/fence_lunshare endpoint={access.endpoint}"
    " username={access.user} password={access.password} cacert={access.cacert}\n"
)
_CONNECT = "connect lunshare node={host.number} plug={host.name}\n"
_COROSYNC = """
mkdir -p /etc/corosync /var/lib/corosync /var/log/cluster
corosync
until corosync-quorumtool -s >/dev/null; do sleep 0.2; done
"""
_START = "modprobe dlm; mkdir -p /etc/dlm; dlm_controld"


def start_corosync(hosts: Sequence[Host], access: Access) -> None:
    """Start it on these hosts, which trust each other, and know the node."""
    nodes = "".join(_NODE.format(id=host.number, host=host) for host in hosts)
    for host in hosts:
        host.put("/etc/corosync/corosync.conf", f"{_TOTEM}nodelist {{\n{nodes}}}\n")
        host.put(access.cacert, access.certificate)
        host.sh(_COROSYNC)


def start(hosts: Sequence[Host], access: Access) -> None:
    """Start corosync and DLM on these hosts."""
    start_corosync(hosts, access)
    dlm = _DLM.format(access=access)
    dlm += "".join(_CONNECT.format(host=host) for host in hosts)
    for host in hosts:
        host.put("/etc/dlm/dlm.conf", dlm)
        host.sh(_START)
