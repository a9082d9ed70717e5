# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Figures for Prometheus: events are counted, current values are read on a scrape."""
