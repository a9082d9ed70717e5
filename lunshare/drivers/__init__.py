# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volume drivers, target drivers, and the root helper that works for them.

This package imports nothing of the daemon, its database or its configuration files,
so another control plane can use the same drivers.
"""
