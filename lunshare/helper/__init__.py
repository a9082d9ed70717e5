# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Everything that runs as root, in 7,000 lines: an auditor can read all of it.

``main`` starts it and has the table of verbs; ``server`` answers the requests of a
socket, whose forms are in ``requests``. ``commands`` runs the commands that the filters
in rootwrap.d allow, ``copying`` copies bytes. Below them are three parts that do not
know each other: ``lio`` writes configfs, ``lvm`` changes volume groups, ``nfs`` works
on the files of shares. Nothing here stores state: each request reads the kernel again.
"""
