# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Where a new volume goes: filters, weighers, and the explanation of the choice."""
