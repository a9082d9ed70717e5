# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The fake storage in a separate process, and the drivers that use it.

``server`` holds the disks and the target; ``driver`` is what the daemon loads. A
daemon that is killed leaves the storage, its exports and its hosts' sessions as
they are, as a kernel does.
"""
