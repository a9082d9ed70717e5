# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Tests: how a live export differs from a wanted one is found, and nothing changes.

The live export stays as it is here, and another one is wanted each time.
"""

from __future__ import annotations

from lunshare.drivers.conformance.ability_claims import enforced_by, requires
from lunshare.drivers.conformance.access import AccessContract
from lunshare.drivers.conformance.shared_volume import SharedVolume, can_write, name
from lunshare.drivers.drifts import DriftKind
from lunshare.drivers.values import Auth, Export, Mode

RO, RW = Mode.RO, Mode.RW
WIDER, NARROWER = DriftKind.WIDER, DriftKind.NARROWER
_AUTH, _OTHER = Auth("user", "secret-of-the-kit"), Auth("user", "another-secret-1")


def _found(shared: SharedVolume, export: Export) -> set[tuple[DriftKind, str | None]]:
    """The kind of each difference, and the letter of its host."""
    return {
        (drift.kind, drift.initiator and drift.initiator[-1])
        for drift in shared.target.compare(export)
    }


class DifferencesContract(AccessContract):
    """One test for each behaviour; part of ``TargetContract``."""

    def test_what_was_applied_does_not_differ(
        self, shared_volume: SharedVolume
    ) -> None:
        assert shared_volume.target.compare(Export(shared_volume.volume.id)) == ()
        shared_volume.apply(a=RW, b=RW)
        session = shared_volume.login("a")
        assert _found(shared_volume, shared_volume.export(a=RW, b=RW)) == set()
        assert session.alive

    @enforced_by("observes")
    def test_a_host_that_is_not_wanted_is_found_and_keeps_its_access(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RW)
        session = shared_volume.login("b")
        for _ in range(2):
            assert (WIDER, "b") in _found(shared_volume, shared_volume.export(a=RW))
        assert can_write(session, "b")

    @enforced_by("observes")
    def test_a_wanted_host_without_access_is_found(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW)
        export = shared_volume.export(a=RW, b=RW)
        assert _found(shared_volume, export) == {(NARROWER, "b")}
        shared_volume.target.remove(shared_volume.volume.id)
        assert {(NARROWER, "a"), (NARROWER, "b")} <= _found(shared_volume, export)

    @requires("enforces_read_only")
    @enforced_by("observes")
    def test_another_mode_is_found_by_what_it_allows(
        self, shared_volume: SharedVolume
    ) -> None:
        shared_volume.apply(a=RW, b=RO)
        pairs = _found(shared_volume, shared_volume.export(a=RO, b=RO))
        assert {(WIDER, "a")} == {pair for pair in pairs if pair[1]}
        pairs = _found(shared_volume, shared_volume.export(a=RW, b=RW))
        assert {(NARROWER, "b")} == {pair for pair in pairs if pair[1]}

    @enforced_by("compares")
    def test_other_credentials_are_found_and_not_shown(
        self, shared_volume: SharedVolume
    ) -> None:
        target = shared_volume.target
        live, other, without = (
            shared_volume.export_to([shared_volume.connector("a", RW, auth)])
            for auth in (_AUTH, _OTHER, None)
        )
        target.apply(live)
        assert target.compare(live) == ()
        drifts = target.compare(other)
        for found in (drifts, target.compare(without)):
            assert {(drift.kind, drift.initiator) for drift in found} == {
                (DriftKind.CREDENTIAL, name("a"))
            }
        assert not any(
            auth.password in drift.what for auth in (_AUTH, _OTHER) for drift in drifts
        )
