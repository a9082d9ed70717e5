# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""The certificate and key of a listener, which may change while it serves."""

from __future__ import annotations

import os
import ssl
import stat

from oslo_config import cfg
from oslo_log import log

from lunshare.agent.conf.listeners import tls_section
from lunshare.agent.listen_addresses import Address
from lunshare.agent.model.errors import StartupError
from lunshare.agent.trusted_files import trust_problem
from lunshare.agent.watched_files import WatchedFiles

LOG = log.getLogger(__name__)

#: Bytes of a file. A certificate with a long chain has less than 20,000.
_MAX_SIZE = 2**20
_CHECK_SECONDS = 1.0  # between two looks at the files


class Certificates:
    """TLS 1.2 or later with the certificate that the files have now.

    The thread of the connections reads ``context``; a thread that may wait for files
    calls ``check``. A connection keeps the certificate with which it began.
    """

    def __init__(self, certificate: str, key: str) -> None:
        """Read the files.

        :raises StartupError: one cannot be read, or the key is of another one.
        """
        self._files = (certificate, key)
        self._watch = WatchedFiles(lambda: self._files, self._reload, _CHECK_SECONDS)
        self.context = self._load()

    def read_again(self) -> None:
        """Let the next ``check`` read the files, changed or not."""
        self._watch.force()

    def check(self) -> None:
        """Read the files again if they have changed. It costs nothing most times.

        If they cannot be used, the certificate stays as it is, and the log has the
        reason. A key that is written after its certificate is found by the next
        check.
        """
        self._watch.check()

    def _reload(self) -> None:
        try:
            self.context = self._load()
        except StartupError as error:
            LOG.error("[tls] reload failed, the former certificate stays: %s", error)
        else:
            LOG.info("[tls] certificate loaded: %s", self._files[0])

    def _load(self) -> ssl.SSLContext:
        """Return a new context, so that a failure changes nothing.

        :raises StartupError: names the files and what is wrong.
        """
        context = ssl.SSLContext(ssl.PROTOCOL_TLS_SERVER)
        context.minimum_version = ssl.TLSVersion.TLSv1_2
        context.options |= ssl.OP_NO_RENEGOTIATION | ssl.OP_NO_COMPRESSION
        certificate, key = self._files
        try:
            _check_file("cert_file", certificate, secret=False)
            _check_file("key_file", key, secret=True)
            # Without a password OpenSSL would ask for one at the terminal.
            context.load_cert_chain(certificate, key, password="")
        except OSError as error:  # also those of OpenSSL
            raise StartupError(f"[tls] {_problem(certificate, key, error)}") from None
        return context


def _check_file(option: str, path: str, *, secret: bool) -> None:
    """:raises StartupError: it is no file, too large, or a key that others can use."""
    status = os.stat(path)
    problem = trust_problem(status, secret=True) if secret else None
    if not stat.S_ISREG(status.st_mode):
        problem = "is not a file: give a file of PEM"
    elif status.st_size > _MAX_SIZE:
        problem = (
            f"has {status.st_size} bytes, more than {_MAX_SIZE}: give only the"
            " certificate with its chain, or its key"
        )
    if problem:
        raise StartupError(f"[tls] {option} {path} {problem}")


def _problem(certificate: str, key: str, error: OSError) -> str:
    """Return why the files could not be loaded, and what to do."""
    files = f"cert_file {certificate} and key_file {key}"
    if not isinstance(error, ssl.SSLError):
        return (
            f"{files} cannot be read ({error.strerror}): check the paths, and that the"
            " user of the daemon may read them"
        )
    if error.reason == "KEY_VALUES_MISMATCH":
        return (
            f"key_file {key} is not the key of the certificate in cert_file"
            f" {certificate}: give the pair that was made together"
        )
    reason = error.reason or error
    return (
        f"{files} cannot be used ({reason}): give PEM files, the key without a password"
    )


def certificates(
    conf: cfg.ConfigOpts, address: Address, option: str = "listen"
) -> Certificates | None:
    """Return those of an address of the option, or None if it has no TLS.

    :raises StartupError: none are named, or they cannot be used.
    """
    if not address.tls or isinstance(address.bind, str):
        return None
    section = conf[tls_section(conf, *address.bind)]
    if not (section.cert_file and section.key_file):
        raise StartupError(
            f"{option} = {address} needs a certificate: set cert_file and key_file in"
            " section [tls]"
        )
    return Certificates(section.cert_file, section.key_file)
