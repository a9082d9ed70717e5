# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""What the node does: every rule about volumes and attachments, no HTTP, no SQL."""
