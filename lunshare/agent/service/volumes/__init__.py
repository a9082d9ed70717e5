# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What is done to a volume: create, delete, extend, revert, migrate, manage."""
