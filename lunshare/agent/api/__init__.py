# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The HTTP API: Block Storage v3 over the services that it is given.

Start with routes.py, the complete API as one table. A request passes wsgi
(identity and microversion), routes (which handler) and one handler, which
parses (schemas, paging), calls a service and renders (views). Only faults
translates errors into HTTP.
"""
