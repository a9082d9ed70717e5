# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The tests of every target driver. Its promises are in lunshare.drivers.base.

If the target is real, the hosts are real too: they log in, read and write as a compute
host does. ``access`` tests what each host can do, ``killed_target`` tests kills.
"""

from __future__ import annotations

import uuid
from collections.abc import Callable, Mapping

import pytest

from lunshare.drivers.base import TargetDriver, VolumeDriver
from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.access import RO, RW, CreateShared
from lunshare.drivers.conformance.differences import DifferencesContract
from lunshare.drivers.conformance.fixtures import new_volume
from lunshare.drivers.conformance.killed_target import KilledTargetContract
from lunshare.drivers.conformance.shared_volume import (
    PAGE,
    HostFactory,
    SharedVolume,
    can_write,
    data,
    grants,
    login_is_refused,
    name,
)
from lunshare.drivers.errors import InvalidValue, TargetFailed, UnknownDisk
from lunshare.drivers.values import Auth, Connector, Disk, Export, Snapshot, Volume

Build = Callable[[], TargetDriver]
ForeignState = Callable[[], object]

#: Hosts of one volume, more than a page of an answer may have.
_MANY = 33

#: From PROTOCOL to the type in ``connection_info`` and the keys that it must have
#: (os-brick 6.7, initiator/connectors).
CONNECTION_KEYS: Mapping[str, tuple[str, ...]] = {
    "iSCSI": ("iscsi", "target_iqn", "target_portal", "target_lun"),
    "NFS": ("nfs", "export", "name", "format"),
    "NVMe-oF": ("nvmeof", "target_nqn", "vol_uuid", "portals"),
    "FC": ("fibre_channel", "target_wwn", "target_lun"),
}


class TargetContract(KilledTargetContract, DifferencesContract):
    """One test for each behaviour; bind them with a subclass named ``Test...``."""

    # remove

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_remove_ends_all_access(self, shared_volume: SharedVolume) -> None:
        shared_volume.apply(a=RW, b=RO)
        a, b = shared_volume.login("a"), shared_volume.login("b")
        assert shared_volume.target.remove(shared_volume.volume.id)
        assert not a.alive
        assert not b.alive
        assert login_is_refused(shared_volume, "a")
        assert shared_volume.live() == {}

    def test_a_retried_remove_succeeds(self, shared_volume: SharedVolume) -> None:
        shared_volume.apply(a=RW)
        shared_volume.target.remove(shared_volume.volume.id)
        assert shared_volume.target.remove(shared_volume.volume.id) == ()

    def test_remove_of_an_unknown_volume_succeeds(self, target: TargetDriver) -> None:
        assert target.remove(new_volume(self.size).id) == ()

    def test_remove_refuses_an_id_that_is_not_a_uuid(
        self, target: TargetDriver
    ) -> None:
        with pytest.raises(InvalidValue):
            target.remove("../other")

    @enforced_by("observes")
    def test_remove_leaves_other_volumes_exported(
        self, create_shared: CreateShared
    ) -> None:
        removed, other = create_shared(), create_shared()
        for shared_volume in (removed, other):
            shared_volume.apply(a=RW)
        session = other.login("a")
        removed.target.remove(removed.volume.id)
        assert session.alive
        assert other.live() == {"a": RW}

    def test_a_disk_can_be_deleted_after_remove(
        self, volumes: VolumeDriver, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        shared_volume.login("a")
        shared_volume.target.remove(shared_volume.volume.id)
        volumes.delete(shared_volume.volume.id)
        with pytest.raises(UnknownDisk):
            volumes.disk(shared_volume.volume.id)

    def test_a_new_export_has_the_disk_of_now(
        self, volumes: VolumeDriver, shared_volume: SharedVolume
    ) -> None:
        """A disk of the same name, which was created again or reverted meanwhile."""
        shared, volume = shared_volume, shared_volume.volume
        shared.write_once("a")
        volumes.delete(volume.id)
        shared.disk = volumes.create(volume)
        assert shared.write_once("b") == bytes(PAGE)
        if not volumes.abilities.supports_snapshots:
            return
        snapshot = Snapshot(str(uuid.uuid4()), volume.id, volume.size)
        volumes.create_snapshot(snapshot)
        assert shared.write_once("c") == data("b")
        shared.disk = volumes.revert(snapshot)
        volumes.delete_snapshot(snapshot.id)
        assert shared.write_once("d") == data("b")
        assert shared.write_once("e") == data("d")

    # observe

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_observe_returns_what_was_applied(
        self, create_shared: CreateShared
    ) -> None:
        first, second = create_shared(), create_shared()
        first.apply(a=RW, b=RO)
        many = [f"h{number}" for number in range(_MANY)]
        second.apply(**dict.fromkeys(many, RO))
        found = {export.volume_id: export for export in first.target.observe()}
        assert found.keys() == {first.volume.id, second.volume.id}
        assert grants(found[first.volume.id]) == {
            (name("a"), RW, "attachment-a"),
            (name("b"), RO, "attachment-b"),
        }
        assert grants(found[second.volume.id]) == {
            (name(host), RO, f"attachment-{host}") for host in many
        }
        assert all(export.enabled for export in found.values())

    def test_observe_returns_nothing_at_first(self, target: TargetDriver) -> None:
        assert target.observe() == ()

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_observe_counts_sessions(self, create_shared: CreateShared) -> None:
        """Those to that volume: each host has one to another volume too."""
        shared, other = create_shared(), create_shared()
        for each, letters in ((shared, "a"), (other, "ab")):
            each.apply(a=RW, b=RO)
            assert all(each.login(letter).alive for letter in letters)
        live = shared.target.observe_volume(shared.volume.id)
        assert live is not None
        counted = {host.initiator[-1]: host.sessions for host in live.connectors}
        assert counted == {"a": 1, "b": 0}
        one_by_one = [
            shared.target.observe_host(shared.volume.id, name(letter))
            for letter in "abc"
        ]
        assert one_by_one == [*sorted(live.connectors, key=str), None]

    @enforced_by("observes")
    def test_an_access_gets_the_id_of_a_new_attachment(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        session = shared_volume.login("a")
        shared_volume.target.apply(
            shared_volume.export_to([Connector(name("a"), RW, "attachment-z")])
        )
        (export,) = shared_volume.target.observe()
        assert grants(export) == {(name("a"), RW, "attachment-z")}
        assert session.alive

    # credentials

    @enforced_by("checks_credentials")
    def test_each_host_has_its_own_credentials(
        self, shared_volume: SharedVolume
    ) -> None:
        keys = {
            letter: Auth(f"user-{letter}", f"secret-of-{letter}") for letter in "ab"
        }
        shared_volume.target.apply(
            shared_volume.export_to(
                shared_volume.connector(k, RW, auth) for k, auth in keys.items()
            )
        )
        assert shared_volume.login("a", keys["a"]).alive
        assert shared_volume.login("b", keys["b"]).alive
        assert login_is_refused(shared_volume, "a")
        assert login_is_refused(shared_volume, "a", keys["b"])
        assert login_is_refused(shared_volume, "a", Auth("user-a", "another-secret"))

    @enforced_by("checks_credentials")
    def test_a_host_has_separate_credentials_for_each_volume(
        self, create_shared: CreateShared
    ) -> None:
        pair = create_shared(), create_shared()
        keys = [Auth("user-a", f"secret-of-a{number}") for number in (1, 2)]
        for shared, key in zip(pair, keys, strict=True):
            shared.target.apply(shared.export_to([shared.connector("a", RW, key)]))
        for shared, right, wrong in zip(pair, keys, reversed(keys), strict=True):
            assert login_is_refused(shared, "a", wrong)
            assert shared.login("a", right).alive

    @requires("enforces_read_only")
    @enforced_by("checks_credentials")
    def test_hosts_with_and_without_credentials_can_share_a_volume(
        self, shared_volume: SharedVolume
    ) -> None:
        key = Auth("user-a", "secret-of-a1")
        shared_volume.target.apply(
            shared_volume.export_to(
                [
                    shared_volume.connector("a", RW, key),
                    shared_volume.connector("b", RO),
                ]
            )
        )
        assert shared_volume.login("b").alive
        assert shared_volume.login("a", key).alive

    @enforced_by("checks_credentials")
    def test_new_credentials_apply_at_the_next_login(
        self, shared_volume: SharedVolume
    ) -> None:
        old, new = Auth("user-a", "secret-of-a1"), Auth("user-a", "secret-of-a2")
        shared_volume.target.apply(
            shared_volume.export_to([shared_volume.connector("a", RW, old)])
        )
        session = shared_volume.login("a", old)
        shared_volume.target.apply(
            shared_volume.export_to([shared_volume.connector("a", RW, new)])
        )
        assert session.alive
        assert login_is_refused(shared_volume, "a", old)
        assert shared_volume.login("a", new).alive
        shared_volume.apply(a=RW)
        assert shared_volume.login("a").alive

    # connection_info

    def test_connection_info_has_the_keys_of_os_brick(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        info = shared_volume.target.connection_info(
            shared_volume.volume, shared_volume.connector("a", RW)
        )
        kind, *keys = (
            self.connection_keys or CONNECTION_KEYS[shared_volume.target.PROTOCOL]
        )
        assert info["driver_volume_type"] == kind
        assert not [key for key in keys if info.get(key) in (None, "")]
        assert not any(key.startswith("auth_") for key in info)

    @enforced_by("checks_credentials")
    def test_connection_info_has_the_credentials_of_the_host(
        self, shared_volume: SharedVolume
    ) -> None:
        key = Auth("user-a", "secret-of-a1")
        shared_volume.apply(a=RW)
        info = shared_volume.target.connection_info(
            shared_volume.volume, shared_volume.connector("a", RW, key)
        )
        assert info.get("auth_method") == "CHAP"
        assert (info["auth_username"], info["auth_password"]) == (
            key.username,
            key.password,
        )

    def test_identity_does_not_change_after_remove_and_apply(
        self, build: Build, shared_volume: SharedVolume
    ) -> None:
        asked = (shared_volume.volume, shared_volume.connector("a", RW))
        shared_volume.apply(a=RW)
        before = (
            shared_volume.target.connection_info(*asked),
            shared_volume.login("a").serial,
        )
        shared_volume.target.remove(shared_volume.volume.id)
        shared_volume.apply(a=RW)
        again = build()
        again.apply(shared_volume.export(a=RW))
        assert (
            again.connection_info(*asked),
            shared_volume.login("a").serial,
        ) == before

    def test_each_volume_has_its_own_identity(
        self, create_shared: CreateShared
    ) -> None:
        pair = create_shared(), create_shared()
        for shared_volume in pair:
            shared_volume.apply(a=RW)
        assert len({shared_volume.login("a").serial for shared_volume in pair}) == 2

    @requires("enforces_read_only")
    @enforced_by("shows_growth")
    def test_hosts_see_an_extended_disk_and_their_sessions_stay_alive(
        self, volumes: VolumeDriver, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO, c=RW)
        sessions = [shared_volume.login(letter) for letter in "abc"]
        assert {session.size for session in sessions} == {shared_volume.disk.size}
        for size in (2 * self.size, 3 * self.size):
            shared_volume.disk = volumes.extend(Volume(shared_volume.volume.id, size))
            shared_volume.apply(a=RW, b=RO, c=RW)
            assert {session.size for session in sessions} == {shared_volume.disk.size}
        assert all(session.alive for session in sessions)

    @requires("enforces_read_only")
    def test_hosts_share_the_extended_part_of_a_disk(
        self, volumes: VolumeDriver, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO)
        a, b = shared_volume.login("a"), shared_volume.login("b")
        a.write(0, data("a"))
        shared_volume.disk = volumes.extend(
            Volume(shared_volume.volume.id, 2 * self.size)
        )
        shared_volume.apply(a=RW, b=RO)
        last = shared_volume.disk.size - PAGE
        assert b.read(last, PAGE) == bytes(PAGE)
        a.write(last, data("z"))
        assert b.read(last, PAGE) == data("z")
        assert b.read(0, PAGE) == data("a")
        for session in (b, shared_volume.login("b")):
            assert not can_write(session, "b", last)
            assert not can_write(session, "b")

    # failures

    def test_apply_with_a_missing_disk_opens_nothing(
        self, target: TargetDriver, host: HostFactory
    ) -> None:
        volume = new_volume(self.size)
        missing = Disk(volume.id, "/dev/lunshare-kit/missing", volume.size)
        shared_volume = SharedVolume(volume, missing, target, host)
        try:
            with pytest.raises(TargetFailed):
                shared_volume.apply(a=RW)
            assert RW not in shared_volume.live().values()
            assert login_is_refused(shared_volume, "a")
        finally:
            shared_volume.close()

    @enforced_by("fences")
    def test_access_can_be_closed_without_a_disk(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        session = shared_volume.login("a")
        shared_volume.target.apply(Export(shared_volume.volume.id))
        assert not session.alive

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_a_restart_changes_no_export(
        self, build: Build, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO)
        a, b = shared_volume.login("a"), shared_volume.login("b")
        again = build()
        again.check()
        assert sorted(map(grants, again.observe()), key=str) == sorted(
            map(grants, shared_volume.target.observe()), key=str
        )
        assert again.apply(shared_volume.export(a=RW, b=RO)) == ()
        assert a.alive
        assert b.alive

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_foreign_exports_are_not_listed_or_changed(
        self, foreign_state: ForeignState, shared_volume: SharedVolume
    ) -> None:
        before = foreign_state()
        shared_volume.apply(a=RW, b=RO)
        assert [live.volume_id for live in shared_volume.target.observe()] == [
            shared_volume.volume.id
        ]
        shared_volume.apply(b=RO)
        shared_volume.target.remove(shared_volume.volume.id)
        assert shared_volume.target.observe() == ()
        assert foreign_state() == before
