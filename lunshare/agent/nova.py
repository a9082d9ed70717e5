# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Ask Nova which attachment of a volume one of its servers uses.

keystoneauth is loaded only if the configuration has a section [nova]. The answer is
that of GET /servers/{server}/os-volume_attachments/{volume}, from microversion 2.89 on.
"""

from __future__ import annotations

from importlib import import_module
from typing import Any

from oslo_config import cfg

from lunshare.agent.conf.unknown_options import unknown
from lunshare.agent.model.errors import BackendFailed, StartupError
from lunshare.agent.threads.limit import Limit, patience
from lunshare.agent.threads.turn import waiting

_GROUP = "nova"
_VERSION = "2.89"
#: Seconds that a request waits for Nova, unless the option has a value.
_TIMEOUT = 5


class Nova:
    """A client of Nova's API, with the identity of the section [nova]."""

    def __init__(self, adapter: Any, limit: Limit) -> None:
        """``limit``: the threads that may wait for Nova."""
        self._adapter, self._limit = adapter, limit

    def attachment_of(self, server: str, volume_id: str) -> str | None:
        """Return the attachment by which a server has a volume; None without one.

        The empty text: it has the volume, and Nova does not say by which attachment.

        :raises BackendFailed: Nova does not answer, or not this.
        """
        with waiting(), self._limit.place(patience()) as holder:
            if holder is None:
                raise BackendFailed("Nova answers slowly: try again.")
            return self._ask(f"/servers/{server}/os-volume_attachments/{volume_id}")

    def _ask(self, path: str) -> str | None:
        try:
            answer = self._adapter.get(path, microversion=_VERSION, raise_exc=False)
            if answer.status_code == 404:
                # KeyError if it is of a wrong endpoint, or of a proxy before Nova.
                answer.json()["itemNotFound"]
                return None
            attachment = answer.json()["volumeAttachment"].get("attachment_id")
        except Exception as error:  # those of keystoneauth, requests and json
            said = str(error) or type(error).__name__
            raise BackendFailed(f"Nova cannot be asked ({said}): try again.") from error
        return str(attachment or "")


def client(conf: cfg.ConfigOpts, at_once: int) -> Nova | None:
    """Return the client that the section [nova] describes, None without one.

    ``at_once``: threads that may wait for Nova together.

    :raises StartupError: the section is not usable, or keystoneauth is missing.
    """
    if _GROUP not in conf.list_all_sections():
        return None
    try:
        loading: Any = import_module("keystoneauth1.loading")
    except ImportError as error:
        raise StartupError(
            f"[nova] needs keystoneauth1 ({error}): install lunshare[keystone]"
        ) from None
    loading.register_auth_conf_options(conf, _GROUP)
    loading.register_session_conf_options(conf, _GROUP)
    loading.register_adapter_conf_options(conf, _GROUP)
    conf.set_default("service_type", "compute", _GROUP)
    conf.set_default("timeout", _TIMEOUT, _GROUP)
    if not conf.nova.auth_type:
        raise StartupError(
            "[nova] auth_type is missing: set it as in [keystone_authtoken], or remove"
            " the section"
        )
    try:
        auth = loading.load_auth_from_conf_options(conf, _GROUP)
        session = loading.load_session_from_conf_options(conf, _GROUP, auth=auth)
        adapter = loading.load_adapter_from_conf_options(conf, _GROUP, session=session)
    except Exception as error:
        raise StartupError(f"[nova] is not usable: {error}") from error
    if wrong := unknown(conf, _GROUP):
        raise StartupError(f"[nova]: {', '.join(wrong)}: no such option")
    return Nova(adapter, Limit(at_once))
