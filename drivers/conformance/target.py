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
from lunshare.drivers.conformance.ability_claims import asks, lacks
from lunshare.drivers.conformance.access import RO, RW, Share
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.killed_target import KilledAccessContract
from lunshare.drivers.conformance.shared import (
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


class TargetContract(KilledAccessContract):
    """A behaviour a test; bind them with a subclass named ``Test...``."""

    # remove

    @asks("enforces_read_only")
    @lacks("fences")
    def test_remove_ends_every_access(self, one: Shared) -> None:
        one.apply(a=RW, b=RO)
        a, b = one.login("a"), one.login("b")
        assert one.target.remove(one.volume.id)
        assert not a.alive
        assert not b.alive
        assert refuses(one, "a")
        assert one.live() == {}

    def test_remove_again_is_success(self, one: Shared) -> None:
        one.apply(a=RW)
        one.target.remove(one.volume.id)
        assert one.target.remove(one.volume.id) == ()

    def test_remove_of_the_unknown_is_success(self, target: TargetDriver) -> None:
        assert target.remove(new_volume(self.size).id) == ()

    def test_remove_of_a_name_that_is_no_uuid_is_refused(
        self, target: TargetDriver
    ) -> None:
        with pytest.raises(InvalidValue):
            target.remove("../other")

    @lacks("observes")
    def test_remove_leaves_other_volumes(self, share: Share) -> None:
        gone, kept = share(), share()
        for shared in (gone, kept):
            shared.apply(a=RW)
        session = kept.login("a")
        gone.target.remove(gone.volume.id)
        assert session.alive
        assert kept.live() == {"a": RW}

    def test_the_disk_is_free_after_remove(
        self, volumes: VolumeDriver, one: Shared
    ) -> None:
        one.apply(a=RW)
        one.login("a")
        one.target.remove(one.volume.id)
        volumes.delete(one.volume.id)
        with pytest.raises(UnknownDisk):
            volumes.disk(one.volume.id)

    # observe

    @asks("enforces_read_only")
    @lacks("observes")
    def test_observe_says_what_was_applied(self, share: Share) -> None:
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

    def test_observe_sees_nothing_at_first(self, target: TargetDriver) -> None:
        assert target.observe() == ()

    @asks("enforces_read_only")
    @lacks("observes")
    def test_observe_counts_hosts_that_are_logged_in(self, one: Shared) -> None:
        one.apply(a=RW, b=RO)
        one.login("a")
        (export,) = one.target.observe()
        counted = {found.initiator[-1]: found.sessions for found in export.connectors}
        assert counted == {"a": 1, "b": 0}

    @lacks("observes")
    def test_an_access_follows_its_attachment(self, one: Shared) -> None:
        one.apply(a=RW)
        session = one.login("a")
        one.target.apply(one.export_to([Connector(name("a"), RW, "attachment-z")]))
        (export,) = one.target.observe()
        assert grants(export) == {(name("a"), RW, "attachment-z")}
        assert session.alive

    # credentials

    @lacks("checks_credentials")
    def test_each_host_has_credentials_of_its_own(self, one: Shared) -> None:
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

    @asks("enforces_read_only")
    @lacks("checks_credentials")
    def test_a_host_without_credentials_shares_with_one_that_has_them(
        self, one: Shared
    ) -> None:
        key = Auth("user-a", "secret-of-a1")
        one.target.apply(
            one.export_to([one.connector("a", RW, key), one.connector("b", RO)])
        )
        assert one.login("b").alive
        assert one.login("a", key).alive

    @lacks("checks_credentials")
    def test_new_credentials_wait_for_the_next_login(self, one: Shared) -> None:
        old, new = Auth("user-a", "secret-of-a1"), Auth("user-a", "secret-of-a2")
        one.target.apply(one.export_to([one.connector("a", RW, old)]))
        session = one.login("a", old)
        one.target.apply(one.export_to([one.connector("a", RW, new)]))
        assert session.alive
        assert refuses(one, "a", old)
        assert one.login("a", new).alive

    # what a host is told

    def test_connection_speaks_os_bricks_words(self, one: Shared) -> None:
        one.apply(a=RW)
        info = one.target.connection_info(one.volume, one.connector("a", RW))
        kind, *keys = self.words or WORDS[one.target.PROTOCOL]
        assert info["driver_volume_type"] == kind
        assert not [key for key in keys if info.get(key) in (None, "")]
        assert not any(key.startswith("auth_") for key in info)

    @lacks("checks_credentials")
    def test_connection_has_the_credentials_of_the_host(self, one: Shared) -> None:
        key = Auth("user-a", "secret-of-a1")
        one.apply(a=RW)
        info = one.target.connection_info(one.volume, one.connector("a", RW, key))
        assert info.get("auth_method") == "CHAP"
        assert (info["auth_username"], info["auth_password"]) == (
            key.username,
            key.password,
        )

    def test_identity_is_the_same_after_remove_and_apply(
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

    def test_volumes_have_identities_of_their_own(self, share: Share) -> None:
        pair = share(), share()
        for shared in pair:
            shared.apply(a=RW)
        assert len({shared.login("a").serial for shared in pair}) == 2

    @asks("enforces_read_only")
    @lacks("shows_growth")
    def test_every_host_sees_a_disk_grow_and_keeps_its_session(
        self, volumes: VolumeDriver, one: Shared
    ) -> None:
        one.apply(a=RW, b=RO, c=RW)
        sessions = [one.login(letter) for letter in "abc"]
        assert {session.size for session in sessions} == {one.disk.size}
        one.disk = volumes.extend(Volume(one.volume.id, 2 * self.size))
        one.apply(a=RW, b=RO, c=RW)
        assert {session.size for session in sessions} == {one.disk.size}
        assert all(session.alive for session in sessions)

    @asks("enforces_read_only")
    def test_what_a_disk_grew_by_is_shared(
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

    def test_a_missing_disk_opens_nothing(
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

    @lacks("fences")
    def test_closing_works_when_the_disk_is_not_given(self, one: Shared) -> None:
        one.apply(a=RW)
        session = one.login("a")
        one.target.apply(Export(one.volume.id))
        assert not session.alive

    @asks("enforces_read_only")
    @lacks("observes")
    def test_a_restart_changes_nothing(self, build: Build, one: Shared) -> None:
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

    @asks("enforces_read_only")
    @lacks("observes")
    def test_foreign_exports_are_neither_listed_nor_touched(
        self, foreign: State, one: Shared
    ) -> None:
        before = foreign()
        one.apply(a=RW, b=RO)
        assert [found.volume_id for found in one.target.observe()] == [one.volume.id]
        one.apply(b=RO)
        one.target.remove(one.volume.id)
        assert one.target.observe() == ()
        assert foreign() == before
