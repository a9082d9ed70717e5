# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Storage drivers: disks, exports, and the small border to root.

This package stands alone. It knows nothing of the daemon, its database or
its configuration files, so the same drivers can serve another control plane.
"""
