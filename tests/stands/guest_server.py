# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""Runs in a guest of the lab and does what tests outside it ask (quick_guest.py).

``python -m tests.stands.guest_server ADDRESS``. They ask over XML-RPC, in the network
of the run only.
"""

from __future__ import annotations

import subprocess
import sys
from socketserver import ThreadingMixIn
from xmlrpc.server import SimpleXMLRPCServer

PORT = 8999


class Machine:
    """What tests can ask; each method's result fits into XML-RPC."""

    def run(self, words: list[str]) -> tuple[int, str]:
        """Run a command; its exit code and output."""
        done = subprocess.run(
            words,
            check=False,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.STDOUT,
        )
        return done.returncode, done.stdout


class _Server(ThreadingMixIn, SimpleXMLRPCServer):
    """Answers several tests' threads at a time."""

    daemon_threads = True


def serve(address: str, machine: Machine) -> None:
    """Answer until a test asks for the end."""
    with _Server(
        (address, PORT), logRequests=False, allow_none=True, use_builtin_types=True
    ) as server:
        server.register_instance(machine)
        server.register_function(server.shutdown, "end")
        server.serve_forever()


if __name__ == "__main__":
    serve(sys.argv[1], Machine())
