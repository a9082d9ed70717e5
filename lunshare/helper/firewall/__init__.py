# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Who may open a connection to a portal: the nftables table ``inet lunshare``."""
