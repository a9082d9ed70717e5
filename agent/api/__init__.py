# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: the Block Storage v3 words over the services handed in.

Read routes.py first: it is the whole API as one table. A request passes wsgi
(who asks, which microversion), routes (which handler) and one handler, which
parses (schemas, paging), calls a service and renders (views). Errors become
HTTP in faults, and nowhere else.
"""
