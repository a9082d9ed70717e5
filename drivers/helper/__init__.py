# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that runs as root. Read it whole: it is meant to be short enough.

``server`` owns the socket, ``requests`` checks what comes in, ``commands`` runs
what the filters in rootwrap.d allow, ``lio`` and the files it uses write
configfs. Nothing here keeps state: the kernel is asked every time.
"""
