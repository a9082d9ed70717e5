# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Every option, by group. There is no global configuration: it is handed in."""
