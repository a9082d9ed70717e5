# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The quick guest: the same Debian under User-mode Linux, a kernel that is a process.

Python runs 3 to 10 times faster in it than under QEMU's emulation. It has one processor
and Debian's user-mode-linux kernel (6.1); QEMU with the stock kernels stays the judge
of reboots, power cuts and everything that processors do beside each other.
"""
