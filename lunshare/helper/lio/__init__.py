# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The kernel's iSCSI target (LIO), by plain calls on configfs."""
