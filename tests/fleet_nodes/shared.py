# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""A volume with three hosts of both guests that do I/O, and what must stay true."""

from __future__ import annotations

from tests.bench.http import Client
from tests.fleet import api
from tests.fleet_nodes.fleet import Fleet
from tests.fleet_nodes.host_io import BLOCKS, FIRST, content
from tests.fleet_nodes.hosts import Host
from tests.stands.waiting import until

NODE, BACKEND = "node2", "node2-thin"
_AT_ONCE = 64


class Shared:
    """The volume is on ``NODE``; alpha writes, beta and gamma read."""

    def __init__(self, fleet: Fleet, client: Client) -> None:
        one, two = fleet.nodes.values()
        self.fleet, self.client, self.node = fleet, client, fleet.nodes[NODE]
        self.volume = api.create(client, BACKEND)
        self.hosts = {Host(one, "alpha"): "rw", Host(two, "beta"): "ro"}
        self.hosts[Host(one, "gamma")] = "ro"
        self._attached: list[str] = []
        for host, mode in self.hosts.items():
            attachment, info = api.attach(client, self.volume, host.name, mode)
            self._attached.append(attachment)
            assert host.login(info)
            host.begin(mode)
        self._sessions = self._numbers()

    def check_undisturbed(self) -> None:
        """I/O goes on without an error, in the sessions that there were."""
        for host in self.hosts:
            host.wait_for_progress()
        assert self._numbers() == self._sessions

    def recovers(self) -> None:
        """Each service reports again, and each export is what the database says."""
        names = self.node.backends()
        before = self.fleet.controller.reports()
        until(
            lambda: all(self.fleet.controller.reports()[n] > before[n] for n in names),
            f"{', '.join(names)} report",
            300,
        )
        until(lambda: self.fleet.is_up(*self.fleet.nodes), "every service is up", 300)
        until(lambda: not [*self.fleet.differences()], "exports are what rows say", 90)

    def others(self) -> list[str]:
        """The attachments of the volume that are not of the three hosts."""
        path = f"/attachments?volume_id={self.volume}"
        found = [each["id"] for each in self.client("GET", path)["attachments"]]
        return [each for each in found if each not in self._attached]

    def size(self) -> float:
        """The size of the volume's disk, in GiB."""
        words = ["--noheadings", "--units=g", "--nosuffix", "-o", "lv_size"]
        name = f"lunshare/volume-{self.volume}"
        return float(self.node.must("lvs", *words, name))

    def end(self) -> int:
        """Stop I/O; each host has the bytes of all acknowledged writes."""
        rounds = [host.stop() for host in self.hosts]
        places = range(FIRST, FIRST + BLOCKS, _AT_ONCE)
        for host in self.hosts:
            assert b"".join(host.read(at, _AT_ONCE) for at in places) == content(
                rounds[0]
            )
            host.leave()
        return sum(rounds)

    def remove(self) -> None:
        """Detach all, and delete it."""
        for each in [*self._attached, *self.others()]:
            api.detach(self.client, each)
        api.reaches(self.client, self.volume, "available")
        api.delete(self.client, self.volume)

    def _numbers(self) -> list[str]:
        ask = self.node.ask
        return [ask("session_number", self.volume, host.iqn) for host in self.hosts]
