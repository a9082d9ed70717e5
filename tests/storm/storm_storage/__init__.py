# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The fake storage in a process of its own, and the drivers that reach it.

``server`` holds the disks and the target; ``driver`` is what the daemon loads. A
daemon that is killed leaves the storage, its exports and its hosts' sessions as
they are, as a kernel does.
"""
