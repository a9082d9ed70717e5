# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that runs as root. It is short, so that an auditor can read all of it.

``main`` starts it and has the table of verbs; ``server`` answers the requests of a
socket. ``commands`` runs the commands that the filters in rootwrap.d allow. ``lio``
writes configfs, ``lvm`` changes volume groups, ``nfs`` works on the files of shares,
and ``data`` copies bytes. Nothing here stores state: each request reads the kernel
again.
"""
