# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The handlers of the routes: parse, call a service, render. A file per resource."""
