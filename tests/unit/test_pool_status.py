# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What lvm.pool and lvm.mapped ask the kernel; tests/system asks dmsetup, too."""

from __future__ import annotations

import errno
import fcntl
import struct
from typing import Any

import pytest

from lunshare.drivers.errors import DriverError, HelperRefused, InvalidValue
from lunshare.helper.lvm import pool_status
from lunshare.helper.lvm.pool_status import PoolVerbs
from lunshare.helper.served import Served

STATUS = "9 21/2048 7/16 - rw discard_passdown queue_if_no_space - 1024"
OURS = {"group": "lun-share", "pool": "the-pool"}
TABLE_STATUS = 0xC138FD0C  # DM_TABLE_STATUS, as a C program prints it
NO_FLUSH, FULL = 1 << 11, 1 << 8


class Kernel:
    """Device-mapper with these devices: a type and a status for each of their names."""

    def __init__(self, **devices: tuple[str, str]) -> None:
        self.devices = {name.replace("_", "-"): row for name, row in devices.items()}
        self.asked: list[str] = []
        self.targets, self.flags = 1, 0
        self.error: int | None = None

    def ioctl(self, file: int, request: int, given: bytearray) -> int:
        assert request == TABLE_STATUS
        # Above 1,024 bytes Python holds the interpreter's lock meanwhile.
        assert len(given) <= 1024
        *version, size, start, _, _, flags, _, _, device, name, _, _ = struct.unpack(
            "=6Ii3IQ128s129s7s", given[:312]
        )
        assert (version[0], size, start, device) == (4, len(given), 312, 0)
        assert flags == NO_FLUSH
        self.asked.append(name.rstrip(b"\0").decode())
        if self.error is not None:
            raise OSError(self.error, "no")
        if self.asked[-1] not in self.devices:
            raise OSError(errno.ENXIO, "No such device or address")
        kind, text = self.devices[self.asked[-1]]
        struct.pack_into("=Ii", given, 20, self.targets, 0)
        struct.pack_into("=I", given, 28, NO_FLUSH | self.flags)
        struct.pack_into("=QQiI16s", given, 312, 0, 8, 0, 0, kind.encode())
        given[352 : 352 + len(text) + 1] = text.encode() + b"\0"
        return 0


@pytest.fixture
def install(monkeypatch: pytest.MonkeyPatch) -> Any:
    def into_place(kernel: Kernel) -> PoolVerbs:
        monkeypatch.setattr(pool_status, "_CONTROL", "/dev/null")
        monkeypatch.setattr(fcntl, "ioctl", kernel.ioctl)
        return PoolVerbs(Served(groups=("lun-share",)))

    return into_place


def test_pool_below_its_volumes_is_asked_first(install: Any) -> None:
    kernel = Kernel(lun__share_the__pool_tpool=("thin-pool", STATUS))
    assert install(kernel).status(OURS, 5) == STATUS
    assert kernel.asked == ["lun--share-the--pool-tpool"]


def test_pool_without_volumes_is_found_by_its_own_name(install: Any) -> None:
    kernel = Kernel(lun__share_the__pool=("thin-pool", STATUS))
    assert install(kernel).status(OURS, 5) == STATUS


def test_pool_that_is_not_active_has_no_status(install: Any) -> None:
    assert install(Kernel()).status(OURS, 5) is None


def test_device_of_another_kind_has_no_status(install: Any) -> None:
    kernel = Kernel(lun__share_the__pool=("crypt", "aes-xts-plain64 0123"))
    assert install(kernel).status(OURS, 5) is None


def test_device_of_two_targets_has_no_status(install: Any) -> None:
    kernel = Kernel(lun__share_the__pool=("thin-pool", STATUS))
    kernel.targets = 2
    assert install(kernel).status(OURS, 5) is None


def test_node_without_device_mapper_has_no_status(
    install: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    verbs = install(Kernel())
    monkeypatch.setattr(pool_status, "_CONTROL", "/dev/mapper/no-such-file")
    assert verbs.status(OURS, 5) is None


def test_answer_that_is_not_complete_is_an_error(install: Any) -> None:
    kernel = Kernel(lun__share_the__pool=("thin-pool", STATUS))
    kernel.flags = FULL
    with pytest.raises(DriverError, match="Message too long"):
        install(kernel).status(OURS, 5)


def test_error_of_the_kernel_is_an_error(install: Any) -> None:
    kernel = Kernel()
    kernel.error = errno.EPERM
    with pytest.raises(DriverError, match="lun--share-the--pool"):
        install(kernel).status(OURS, 5)


def test_pool_of_another_group_is_refused(install: Any) -> None:
    kernel = Kernel()
    with pytest.raises(HelperRefused, match="not served"):
        install(kernel).status({"group": "lun", "pool": "share-the--pool"}, 5)
    assert kernel.asked == []


@pytest.mark.parametrize(
    "given",
    [
        {"group": "lun-share", "pool": "-pool"},
        {"group": "lun-share", "pool": ""},
        {"group": "lun-share", "pool": "a/b"},
        {"group": "lun-share", "pool": "a\0"},
        {"group": "lun-share", "pool": 7},
        {"group": "lun-share"},
        {"group": "lun-share", "pool": "a", "layer": "x"},
    ],
)
def test_other_arguments_are_refused(install: Any, given: Any) -> None:
    kernel = Kernel()
    with pytest.raises(InvalidValue):
        install(kernel).status(given, 5)
    assert kernel.asked == []


def test_name_that_device_mapper_cannot_have_is_not_asked_for(install: Any) -> None:
    kernel = Kernel()
    assert install(kernel).status({"group": "lun-share", "pool": "p" * 200}, 5) is None
    assert kernel.asked == []


def test_status_of_a_thin_volume_is_that_of_a_thin_device_only(install: Any) -> None:
    kernel = Kernel(
        lun__share_one=("thin", "512 511"), lun__share_pool=("thin-pool", STATUS)
    )
    verbs = install(kernel)
    given = {"group": "lun-share", "volume": "one"}
    assert verbs.mapped(given, 5) == "512 511"
    assert verbs.mapped({**given, "volume": "pool"}, 5) is None
    with pytest.raises(HelperRefused, match="not served"):
        verbs.mapped({**given, "group": "lun"}, 5)
