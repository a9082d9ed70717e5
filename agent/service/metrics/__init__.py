# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Figures for Prometheus: what happens is counted, what is so is read on a scrape."""
