# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Users and secrets of CHAP: a letter, then letters and digits, from one number.

In iSCSI text a value that starts with 0x or 0b is a number, hex or base64 (RFC 7143
section 6.1), and LIO parses a CHAP_N that starts so as one (extract_param in
drivers/target/iscsi/iscsi_target_nego.c, 6.1): no host can log in with such a name. So
the first character is a letter.
"""

from __future__ import annotations

import string

# RFC 7143 section 9.2.1 asks for at least 96 random bits in a CHAP secret, and
# Windows accepts at most 16 characters: 16 of these are 95 bits.
SECRET_LENGTH = 16
USERNAME_LENGTH = 20
_FIRST = string.ascii_letters
_ALPHABET = _FIRST + string.digits
# Two digits of the number at once, the low one first.
_PAIRS = [low + high for high in _ALPHABET for low in _ALPHABET]


def count(length: int) -> int:
    """Return how many different texts of ``length`` characters there are."""
    following: int = len(_ALPHABET) ** (length - 1)
    return len(_FIRST) * following


def text(number: int, length: int) -> str:
    """Return a text; numbers from 0 below ``count(length)`` give different ones."""
    number, index = divmod(number, len(_FIRST))
    letters = _FIRST[index]
    while len(letters) < length:
        number, index = divmod(number, len(_PAIRS))
        letters += _PAIRS[index]
    return letters[:length]
