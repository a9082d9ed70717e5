# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The tests of every target driver. Its promises are in lunshare.drivers.base.

If the target is real, the hosts are real too: they log in, read and write as a compute
host does. ``access`` tests what each host can do, ``killed_target`` tests kills.
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
    HostFactory,
    SharedVolume,
    data,
    grants,
    login_is_refused,
    name,
)
from lunshare.drivers.errors import InvalidValue, TargetFailed, UnknownDisk
from lunshare.drivers.values import Auth, Connector, Disk, Export, Volume

Build = Callable[[], TargetDriver]
ForeignState = Callable[[], object]


#: From PROTOCOL to the type in ``connection_info`` and the keys that it must have
#: (os-brick 6.7, initiator/connectors).
CONNECTION_KEYS: Mapping[str, tuple[str, ...]] = {
    "iSCSI": ("iscsi", "target_iqn", "target_portal", "target_lun"),
    "NFS": ("nfs", "export", "name", "format"),
    "NVMe-oF": ("nvmeof", "target_nqn", "vol_uuid", "portals"),
    "FC": ("fibre_channel", "target_wwn", "target_lun"),
}


class TargetContract(KilledTargetContract):
    """One test for each behaviour; bind them with a subclass named ``Test...``."""

    # remove

    @requires("enforces_read_only")
    @enforced_by("fences")
    def test_remove_ends_all_access(self, shared: SharedVolume) -> None:
        shared.apply(a=RW, b=RO)
        a, b = shared.login("a"), shared.login("b")
        assert shared.target.remove(shared.volume.id)
        assert not a.alive
        assert not b.alive
        assert login_is_refused(shared, "a")
        assert shared.live() == {}

    def test_a_retried_remove_succeeds(self, shared: SharedVolume) -> None:
        shared.apply(a=RW)
        shared.target.remove(shared.volume.id)
        assert shared.target.remove(shared.volume.id) == ()

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
        self, volumes: VolumeDriver, shared: SharedVolume
    ) -> None:
        shared.apply(a=RW)
        shared.login("a")
        shared.target.remove(shared.volume.id)
        volumes.delete(shared.volume.id)
        with pytest.raises(UnknownDisk):
            volumes.disk(shared.volume.id)

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
    def test_observe_counts_sessions(self, shared: SharedVolume) -> None:
        shared.apply(a=RW, b=RO)
        shared.login("a")
        (export,) = shared.target.observe()
        counted = {found.initiator[-1]: found.sessions for found in export.connectors}
        assert counted == {"a": 1, "b": 0}

    @enforced_by("observes")
    def test_an_access_gets_the_id_of_a_new_attachment(
        self, shared: SharedVolume
    ) -> None:
        shared.apply(a=RW)
        session = shared.login("a")
        shared.target.apply(
            shared.export_to([Connector(name("a"), RW, "attachment-z")])
        )
        (export,) = shared.target.observe()
        assert grants(export) == {(name("a"), RW, "attachment-z")}
        assert session.alive

    # credentials

    @enforced_by("checks_credentials")
    def test_each_host_has_its_own_credentials(self, shared: SharedVolume) -> None:
        keys = {
            letter: Auth(f"user-{letter}", f"secret-of-{letter}") for letter in "ab"
        }
        shared.target.apply(
            shared.export_to(shared.connector(k, RW, auth) for k, auth in keys.items())
        )
        assert shared.login("a", keys["a"]).alive
        assert shared.login("b", keys["b"]).alive
        assert login_is_refused(shared, "a")
        assert login_is_refused(shared, "a", keys["b"])
        assert login_is_refused(shared, "a", Auth("user-a", "another-secret"))

    @requires("enforces_read_only")
    @enforced_by("checks_credentials")
    def test_hosts_with_and_without_credentials_can_share_a_volume(
        self, shared: SharedVolume
    ) -> None:
        key = Auth("user-a", "secret-of-a1")
        shared.target.apply(
            shared.export_to(
                [shared.connector("a", RW, key), shared.connector("b", RO)]
            )
        )
        assert shared.login("b").alive
        assert shared.login("a", key).alive

    @enforced_by("checks_credentials")
    def test_new_credentials_apply_at_the_next_login(
        self, shared: SharedVolume
    ) -> None:
        old, new = Auth("user-a", "secret-of-a1"), Auth("user-a", "secret-of-a2")
        shared.target.apply(shared.export_to([shared.connector("a", RW, old)]))
        session = shared.login("a", old)
        shared.target.apply(shared.export_to([shared.connector("a", RW, new)]))
        assert session.alive
        assert login_is_refused(shared, "a", old)
        assert shared.login("a", new).alive

    # connection_info

    def test_connection_info_has_the_keys_of_os_brick(
        self, shared: SharedVolume
    ) -> None:
        shared.apply(a=RW)
        info = shared.target.connection_info(shared.volume, shared.connector("a", RW))
        kind, *keys = self.connection_keys or CONNECTION_KEYS[shared.target.PROTOCOL]
        assert info["driver_volume_type"] == kind
        assert not [key for key in keys if info.get(key) in (None, "")]
        assert not any(key.startswith("auth_") for key in info)

    @enforced_by("checks_credentials")
    def test_connection_info_has_the_credentials_of_the_host(
        self, shared: SharedVolume
    ) -> None:
        key = Auth("user-a", "secret-of-a1")
        shared.apply(a=RW)
        info = shared.target.connection_info(
            shared.volume, shared.connector("a", RW, key)
        )
        assert info.get("auth_method") == "CHAP"
        assert (info["auth_username"], info["auth_password"]) == (
            key.username,
            key.password,
        )

    def test_identity_does_not_change_after_remove_and_apply(
        self, build: Build, shared: SharedVolume
    ) -> None:
        asked = (shared.volume, shared.connector("a", RW))
        shared.apply(a=RW)
        before = shared.target.connection_info(*asked), shared.login("a").serial
        shared.target.remove(shared.volume.id)
        shared.apply(a=RW)
        again = build()
        again.apply(shared.export(a=RW))
        assert (again.connection_info(*asked), shared.login("a").serial) == before

    def test_each_volume_has_its_own_identity(self, share: Share) -> None:
        pair = share(), share()
        for shared in pair:
            shared.apply(a=RW)
        assert len({shared.login("a").serial for shared in pair}) == 2

    @requires("enforces_read_only")
    @enforced_by("shows_growth")
    def test_hosts_see_an_extended_disk_and_their_sessions_stay_alive(
        self, volumes: VolumeDriver, shared: SharedVolume
    ) -> None:
        shared.apply(a=RW, b=RO, c=RW)
        sessions = [shared.login(letter) for letter in "abc"]
        assert {session.size for session in sessions} == {shared.disk.size}
        shared.disk = volumes.extend(Volume(shared.volume.id, 2 * self.size))
        shared.apply(a=RW, b=RO, c=RW)
        assert {session.size for session in sessions} == {shared.disk.size}
        assert all(session.alive for session in sessions)

    @requires("enforces_read_only")
    def test_hosts_share_the_extended_part_of_a_disk(
        self, volumes: VolumeDriver, shared: SharedVolume
    ) -> None:
        shared.apply(a=RW, b=RO)
        a, b = shared.login("a"), shared.login("b")
        a.write(0, data("a"))
        shared.disk = volumes.extend(Volume(shared.volume.id, 2 * self.size))
        shared.apply(a=RW, b=RO)
        last = shared.disk.size - PAGE
        assert b.read(last, PAGE) == bytes(PAGE)
        a.write(last, data("z"))
        assert b.read(last, PAGE) == data("z")
        assert b.read(0, PAGE) == data("a")

    # failures

    def test_apply_with_a_missing_disk_opens_nothing(
        self, target: TargetDriver, host: HostFactory
    ) -> None:
        volume = new_volume(self.size)
        missing = Disk(volume.id, "/dev/lunshare-kit/missing", volume.size)
        shared = SharedVolume(volume, missing, target, host)
        try:
            with pytest.raises(TargetFailed):
                shared.apply(a=RW)
            assert RW not in shared.live().values()
            assert login_is_refused(shared, "a")
        finally:
            shared.close()

    @enforced_by("fences")
    def test_access_can_be_closed_without_a_disk(self, shared: SharedVolume) -> None:
        shared.apply(a=RW)
        session = shared.login("a")
        shared.target.apply(Export(shared.volume.id))
        assert not session.alive

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_a_restart_changes_no_export(
        self, build: Build, shared: SharedVolume
    ) -> None:
        shared.apply(a=RW, b=RO)
        a, b = shared.login("a"), shared.login("b")
        again = build()
        again.check()
        assert sorted(map(grants, again.observe()), key=str) == sorted(
            map(grants, shared.target.observe()), key=str
        )
        assert again.apply(shared.export(a=RW, b=RO)) == ()
        assert a.alive
        assert b.alive

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_foreign_exports_are_not_listed_or_changed(
        self, foreign_state: ForeignState, shared: SharedVolume
    ) -> None:
        before = foreign_state()
        shared.apply(a=RW, b=RO)
        assert [found.volume_id for found in shared.target.observe()] == [
            shared.volume.id
        ]
        shared.apply(b=RO)
        shared.target.remove(shared.volume.id)
        assert shared.target.observe() == ()
        assert foreign_state() == before
