# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is read about a host's session: the kernel's text, not what the host gives."""

from __future__ import annotations

from pathlib import Path

import pytest

from lunshare.drivers.errors import DeadlineExceeded
from lunshare.drivers.values import Auth
from lunshare.helper.lio import acls
from lunshare.helper.named_locks import Locks

# lio_target_nacl_info_show (6.1 and 6.12). The alias is any text of the initiator.
INFO = """InitiatorName: iqn.1994-05.com.example:host1
InitiatorAlias: {alias}
LIO Session ID: 5   ISID: 0x80 00 00 00 00 01  TSIH: 5  SessionType: Normal
Session State: TARG_SESS_STATE_LOGGED_IN
---------------------[iSCSI Connections]-------------------------
CID: 0  Connection State: TARG_CONN_STATE_LOGGED_IN
   Address 192.0.2.1 TCP  StatSN: 0x00000004
"""
FAKE = "LIO Session ID: {}   Address 203.0.113.9 TCP  StatSN: 0x00000004"


def acl(directory: Path, alias: str) -> str:
    for name in ("tag", "cmdsn_depth"):
        (directory / name).write_text("64")
    (directory / "info").write_text(INFO.format(alias=alias))
    return str(directory)


@pytest.mark.parametrize("number", ["0", "4", "4294967295"])
@pytest.mark.parametrize("before", ["", "x\n"])
def test_host_cannot_end_the_wait_for_its_writes(
    tmp_path: Path, number: str, before: str
) -> None:
    """With a 0 the session counted as ended while its writes were still landing."""
    path = acl(tmp_path, before + FAKE.format(number))
    with (
        pytest.raises(DeadlineExceeded, match="ending the sessions"),
        Locks().hold("target", 0.3) as lock,
    ):
        acls.set_read_only(path, lock)
    (tmp_path / "info").write_text(
        INFO.format(alias=FAKE.format(5)).replace("ID: 5   ISID", "ID: 6   ISID")
    )
    assert acls.session(path) == 6


def test_host_does_not_choose_the_address_that_is_shown(tmp_path: Path) -> None:
    assert acls.addresses(acl(tmp_path, FAKE.format(5))) == ["192.0.2.1"]
    assert acls.in_session(str(tmp_path))


def test_the_user_of_a_host_is_set_after_its_password() -> None:
    """A closed ACL has no user, and still the password of the attachment before."""
    names = list(acls.credentials(Auth("user", "a secret of sixteen")))
    assert names[-2:] == ["auth/password", "auth/userid"]
