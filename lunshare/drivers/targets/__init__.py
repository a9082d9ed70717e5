# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Target drivers: each makes the live exports equal to the wanted ones."""
