# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""``lunshare``: what an operator asks a node. A client of its API, and no more."""
