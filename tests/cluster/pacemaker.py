# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Pacemaker on two hosts, with ``fence_lunshare`` as its fencing.

https://clusterlabs.org/projects/pacemaker/doc/2.1/Pacemaker_Explained/html/
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from functools import partial
from xml.etree import ElementTree
from xml.sax.saxutils import quoteattr

from tests.cluster import dlm
from tests.cluster.cluster import Access, Host
from tests.stands.waiting import until

_PREPARE = """
groupadd -f haclient
id hacluster >/dev/null 2>&1 || useradd -g haclient -M hacluster
for each in blackbox cib cores pengine; do
    install -d -o hacluster -g haclient "/var/lib/pacemaker/$each"
done
install -d -o hacluster -g haclient /var/log/pacemaker
mkdir -p /run/resource-agents
"""
_START = "setsid pacemakerd >/var/log/pacemaker/output 2>&1 </dev/null &"
_JOIN_SECONDS = 120.0


class Pacemaker:
    """A cluster of hosts, each of which any other one can have fenced."""

    def __init__(self, hosts: Sequence[Host], access: Access) -> None:
        self.hosts = hosts
        dlm.start_corosync(hosts, access)
        for host in hosts:
            host.sh(_PREPARE)
            host.sh(_START)
        for host in hosts:
            self.wait_for(host, seen_by=hosts[0])
        self._add(
            'class="stonith" type="fence_lunshare"',
            "luns",
            {
                "endpoint": access.endpoint,
                "username": access.user,
                "password": access.password,
                "cacert": access.cacert,
                "pcmk_host_list": " ".join(host.name for host in hosts),
            },
        )

    def add_file_system(self, device: str, place: str) -> None:
        """Let it mount a disk with ext4, on one host at a time."""
        options = {"device": device, "directory": place, "fstype": "ext4"}
        self._add('class="ocf" provider="heartbeat" type="Filesystem"', "data", options)

    def _add(self, kind: str, name: str, options: Mapping[str, str]) -> None:
        pairs = "".join(
            f'<nvpair id="{name}-{key}" name="{key}" value={quoteattr(value)}/>'
            for key, value in options.items()
        )
        attributes = f'<instance_attributes id="{name}-options">{pairs}'
        xml = f'<primitive id="{name}" {kind}>{attributes}</instance_attributes>'
        words = (
            "cibadmin",
            "-C",
            "-o",
            "resources",
            "--xml-text",
            f"{xml}</primitive>",
        )
        self.hosts[0].must(*words)

    def wait_for(self, host: Host, seen_by: Host) -> None:
        """Wait until a host is a member."""
        is_member = partial(self._is_online, host.name, seen_by)
        until(is_member, f"{host.name} is a member", _JOIN_SECONDS)

    @staticmethod
    def _is_online(name: str, seen_by: Host) -> bool:
        words = ["crm_mon", "--one-shot", "--output-as=xml"]
        code, text = seen_by.ask("run", words)
        if code != 0:
            return False
        nodes = ElementTree.fromstring(text).findall("./nodes/node")
        return ("true", "false") in [
            (node.get("online"), node.get("pending"))
            for node in nodes
            if node.get("name") == name
        ]

    def stop(self) -> None:
        """Stop it and corosync on all hosts; what it has mounted is unmounted."""
        for program in ("pacemakerd", "corosync"):
            for host in self.hosts:
                host.sh(f"pkill -TERM -x {program} || true")
            for host in self.hosts:
                until(partial(_has_ended, host, program), f"{program} has ended")


def _has_ended(host: Host, program: str) -> bool:
    """Whether it does not run on a host."""
    return bool(host.ask("run", ["pgrep", "-x", program])[0])
