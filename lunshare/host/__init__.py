# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What runs on a host that uses volumes; it needs nothing of the daemon."""
