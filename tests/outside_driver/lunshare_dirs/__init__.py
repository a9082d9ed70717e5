# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Volumes as files in one directory: a driver from outside lunshare."""
