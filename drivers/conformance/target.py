# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What every target driver does, as tests. The promises are in lunshare.drivers.base.

Hosts are real where the target is: they log in, read and write, and see what
a compute host would see. Who may do what is in ``access``,
what a kill leaves in ``killed_access``.
"""

from __future__ import annotations

from collections.abc import Callable, Mapping

import pytest

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.access import RO, RW, Share
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.killed_target import KilledTargetContract
from lunshare.drivers.conformance.shared_volume import (
    PAGE,
    Reach,
    Shared,
    data,
    grants,
    name,
    refuses,
)
from lunshare.drivers.errors import InvalidValue, TargetFailed, UnknownDisk
from lunshare.drivers.values import Auth, Connector, Disk, Export, Volume

Build = Callable[[], TargetDriver]
State = Callable[[], object]


#: What ``connection_info`` says, by PROTOCOL: the type, and keys that must have a value
#: (os-brick 6.7, initiator/connectors).
WORDS: Mapping[str, tuple[str, ...]] = {
    "iSCSI": ("iscsi", "target_iqn", "target_portal", "target_lun"),
    "NFS": ("nfs", "export", "name", "format"),
    "NVMe-oF": ("nvmeof", "target_nqn", "vol_uuid", "portals"),
    "FC": ("fibre_channel", "target_wwn", "target_lun"),
}


class TargetContract(KilledTargetContract):
    """A behaviour a test; bind them with a subclass named ``Test...``."""

    # remove

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_remove_ends_all_access(self, one: Shared) -> None:
        one.apply(a=RW, b=RO)
        a, b = one.login("a"), one.login("b")
        assert one.target.remove(one.volume.id)
        assert not a.alive
        assert not b.alive
        assert refuses(one, "a")
        assert one.live() == {}

    def test_a_retried_remove_succeeds(self, one: Shared) -> None:
        one.apply(a=RW)
        one.target.remove(one.volume.id)
        assert one.target.remove(one.volume.id) == ()

    def test_remove_of_an_unknown_volume_succeeds(self, target: TargetDriver) -> None:
        assert target.remove(new_volume(self.size).id) == ()

    def test_remove_refuses_an_id_that_is_not_a_uuid(
        self, target: TargetDriver
    ) -> None:
        with pytest.raises(InvalidValue):
            target.remove("../other")

    @enforced_by("observes")
    def test_remove_leaves_other_volumes_exported(self, share: Share) -> None:
        gone, kept = share(), share()
        for shared in (gone, kept):
            shared.apply(a=RW)
        session = kept.login("a")
        gone.target.remove(gone.volume.id)
        assert session.alive
        assert kept.live() == {"a": RW}

    def test_a_disk_can_be_deleted_after_remove(
        self, volumes: VolumeDriver, one: Shared
    ) -> None:
        one.apply(a=RW)
        one.login("a")
        one.target.remove(one.volume.id)
        volumes.delete(one.volume.id)
        with pytest.raises(UnknownDisk):
            volumes.disk(one.volume.id)

    # observe

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_observe_returns_what_was_applied(self, share: Share) -> None:
        first, second = share(), share()
        first.apply(a=RW, b=RO)
        second.apply(c=RO)
        found = {export.volume_id: export for export in first.target.observe()}
        assert found.keys() == {first.volume.id, second.volume.id}
        assert grants(found[first.volume.id]) == {
            (name("a"), RW, "attachment-a"),
            (name("b"), RO, "attachment-b"),
        }
        assert grants(found[second.volume.id]) == {(name("c"), RO, "attachment-c")}
        assert all(export.enabled for export in found.values())

    def test_observe_returns_nothing_at_first(self, target: TargetDriver) -> None:
        assert target.observe() == ()

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_observe_counts_sessions(self, one: Shared) -> None:
        one.apply(a=RW, b=RO)
        one.login("a")
        (export,) = one.target.observe()
        counted = {found.initiator[-1]: found.sessions for found in export.connectors}
        assert counted == {"a": 1, "b": 0}

    @enforced_by("observes")
    def test_an_access_gets_the_id_of_a_new_attachment(self, one: Shared) -> None:
        one.apply(a=RW)
        session = one.login("a")
        one.target.apply(one.export_to([Connector(name("a"), RW, "attachment-z")]))
        (export,) = one.target.observe()
        assert grants(export) == {(name("a"), RW, "attachment-z")}
        assert session.alive

    # credentials

    @enforced_by("checks_credentials")
    def test_each_host_has_its_own_credentials(self, one: Shared) -> None:
        keys = {
            letter: Auth(f"user-{letter}", f"secret-of-{letter}") for letter in "ab"
        }
        one.target.apply(
            one.export_to(one.connector(k, RW, auth) for k, auth in keys.items())
        )
        assert one.login("a", keys["a"]).alive
        assert one.login("b", keys["b"]).alive
        assert refuses(one, "a")
        assert refuses(one, "a", keys["b"])
        assert refuses(one, "a", Auth("user-a", "another-secret"))

    @requires("enforces_read_only")
    @enforced_by("checks_credentials")
    def test_hosts_with_and_without_credentials_can_share_a_volume(
        self, one: Shared
    ) -> None:
        key = Auth("user-a", "secret-of-a1")
        one.target.apply(
            one.export_to([one.connector("a", RW, key), one.connector("b", RO)])
        )
        assert one.login("b").alive
        assert one.login("a", key).alive

    @enforced_by("checks_credentials")
    def test_new_credentials_apply_at_the_next_login(self, one: Shared) -> None:
        old, new = Auth("user-a", "secret-of-a1"), Auth("user-a", "secret-of-a2")
        one.target.apply(one.export_to([one.connector("a", RW, old)]))
        session = one.login("a", old)
        one.target.apply(one.export_to([one.connector("a", RW, new)]))
        assert session.alive
        assert refuses(one, "a", old)
        assert one.login("a", new).alive

    # what a host is told

    def test_connection_info_has_the_keys_of_os_brick(self, one: Shared) -> None:
        one.apply(a=RW)
        info = one.target.connection_info(one.volume, one.connector("a", RW))
        kind, *keys = self.words or WORDS[one.target.PROTOCOL]
        assert info["driver_volume_type"] == kind
        assert not [key for key in keys if info.get(key) in (None, "")]
        assert not any(key.startswith("auth_") for key in info)

    @enforced_by("checks_credentials")
    def test_connection_info_has_the_credentials_of_the_host(self, one: Shared) -> None:
        key = Auth("user-a", "secret-of-a1")
        one.apply(a=RW)
        info = one.target.connection_info(one.volume, one.connector("a", RW, key))
        assert info.get("auth_method") == "CHAP"
        assert (info["auth_username"], info["auth_password"]) == (
            key.username,
            key.password,
        )

    def test_identity_does_not_change_after_remove_and_apply(
        self, build: Build, one: Shared
    ) -> None:
        asked = (one.volume, one.connector("a", RW))
        one.apply(a=RW)
        before = one.target.connection_info(*asked), one.login("a").serial
        one.target.remove(one.volume.id)
        one.apply(a=RW)
        again = build()
        again.apply(one.export(a=RW))
        assert (again.connection_info(*asked), one.login("a").serial) == before

    def test_each_volume_has_its_own_identity(self, share: Share) -> None:
        pair = share(), share()
        for shared in pair:
            shared.apply(a=RW)
        assert len({shared.login("a").serial for shared in pair}) == 2

    @requires("enforces_read_only")
    @enforced_by("shows_growth")
    def test_hosts_see_an_extended_disk_and_their_sessions_stay_alive(
        self, volumes: VolumeDriver, one: Shared
    ) -> None:
        one.apply(a=RW, b=RO, c=RW)
        sessions = [one.login(letter) for letter in "abc"]
        assert {session.size for session in sessions} == {one.disk.size}
        one.disk = volumes.extend(Volume(one.volume.id, 2 * self.size))
        one.apply(a=RW, b=RO, c=RW)
        assert {session.size for session in sessions} == {one.disk.size}
        assert all(session.alive for session in sessions)

    @requires("enforces_read_only")
    def test_hosts_share_the_extended_part_of_a_disk(
        self, volumes: VolumeDriver, one: Shared
    ) -> None:
        one.apply(a=RW, b=RO)
        a, b = one.login("a"), one.login("b")
        a.write(0, data("a"))
        one.disk = volumes.extend(Volume(one.volume.id, 2 * self.size))
        one.apply(a=RW, b=RO)
        last = one.disk.size - PAGE
        assert b.read(last, PAGE) == bytes(PAGE)
        a.write(last, data("z"))
        assert b.read(last, PAGE) == data("z")
        assert b.read(0, PAGE) == data("a")

    # trouble

    def test_apply_with_a_missing_disk_opens_nothing(
        self, target: TargetDriver, host: Reach
    ) -> None:
        volume = new_volume(self.size)
        missing = Disk(volume.id, "/dev/lunshare-kit/missing", volume.size)
        shared = Shared(volume, missing, target, host)
        try:
            with pytest.raises(TargetFailed):
                shared.apply(a=RW)
            assert RW not in shared.live().values()
            assert refuses(shared, "a")
        finally:
            shared.close()

    @enforced_by("fences")
    def test_access_can_be_closed_without_a_disk(self, one: Shared) -> None:
        one.apply(a=RW)
        session = one.login("a")
        one.target.apply(Export(one.volume.id))
        assert not session.alive

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_a_restart_changes_no_export(self, build: Build, one: Shared) -> None:
        one.apply(a=RW, b=RO)
        a, b = one.login("a"), one.login("b")
        again = build()
        again.check()
        assert sorted(map(grants, again.observe()), key=str) == sorted(
            map(grants, one.target.observe()), key=str
        )
        assert again.apply(one.export(a=RW, b=RO)) == ()
        assert a.alive
        assert b.alive

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_foreign_exports_are_not_listed_or_changed(
        self, foreign: State, one: Shared
    ) -> None:
        before = foreign()
        one.apply(a=RW, b=RO)
        assert [found.volume_id for found in one.target.observe()] == [one.volume.id]
        one.apply(b=RO)
        one.target.remove(one.volume.id)
        assert one.target.observe() == ()
        assert foreign() == before
