# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The daemon: an HTTP API over a database of volumes and attachments.

It decides what every host may do, and calls the drivers; see ARCHITECTURE.md.
"""
