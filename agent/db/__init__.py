# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The truth, in SQL. Nothing outside this package knows SQLAlchemy."""
