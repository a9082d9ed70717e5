# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Writes docs/openapi.json and docs/api-reference.md."""
