# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""dm-multipath over an IPv4 and an IPv6 portal: each path is cut and comes back."""

from __future__ import annotations

import re

from tests.cluster.cluster import Cluster, Host
from tests.stands.waiting import Later, until

_CONF = "/etc/multipath.conf"
#: A path is looked at each second; its commands fail 5 s after its session has, so that
#: the other path gets them (man 5 multipath.conf, fast_io_fail_tmo).
_DEFAULTS = (
    "defaults {\n    find_multipaths yes\n"
    "    polling_interval 1\n    max_polling_interval 1\n}\n"
)
#: Ends with its first error. It reads what it has written, and compares.
_IO = (
    "fio --name=io --filename={disk} --direct=1 --rw=randwrite --bs=4k --size=16m"
    " --verify=crc32c --verify_fatal=1 --verify_backlog=64 --ioengine=libaio"
    " --iodepth=4 --time_based --runtime={seconds}"
)
_SECONDS = 90
_FAILED = re.compile(r"\bfailed (?:faulty|ready) ")
_ACTIVE = re.compile(r"\bactive ready ")


def _paths(host: Host, state: re.Pattern[str]) -> int:
    """How many paths of the host's map are in this state."""
    return len(state.findall(host.must("multipath", "-ll")))


def test_each_path_is_cut_and_returns_without_an_error(cluster: Cluster) -> None:
    host = cluster.hosts["alpha"]
    volume = cluster.share("paths", 1, rw=["alpha"])
    section = volume.config("alpha", "multipath")
    host.put(_CONF, f"{_DEFAULTS}{section}\n")
    host.sh("modprobe dm-multipath; systemctl start multipathd.service")
    volume.login("alpha")
    disk = f"/dev/mapper/volume-{volume.id}"
    until(lambda: host.ask("run", ["test", "-b", disk])[0] == 0, f"{disk} is there")
    until(lambda: _paths(host, _ACTIVE) == 2, "it has two paths")

    io = Later(host.sh, _IO.format(disk=disk, seconds=_SECONDS))
    for address in (cluster.node6, cluster.node.address):
        host.must("ip", "route", "add", "blackhole", address)
        until(lambda: _paths(host, _FAILED) == 1, f"the path to {address} fails", 60)
        host.must("ip", "route", "del", "blackhole", address)
        until(lambda: _paths(host, _ACTIVE) == 2, f"{address} is back", 60)
    assert not io.done, "both cuts were under I/O"
    assert " err= 0" in io.value(3 * _SECONDS)
    hosts = cluster.lunshare("hosts", volume.id)
    assert " rw " in hosts
    assert "alpha" in hosts
    host.sh(f"multipath -f {disk}; systemctl stop multipathd.service multipathd.socket")
    volume.leave("alpha")
