# SPDX-FileCopyrightText: The lunshare authors
# SPDX-License-Identifier: Apache-2.0
"""RabbitMQ as many cinder-volume hold it: their connections, queues and consumers.

Run by Cinder's Python. A cinder-volume of Cinder 29.0.0 has three connections for each
backend (``rabbitmqctl list_connections``): two servers that listen, and one that sends.
The names and arguments of queues and exchanges are oslo.messaging's. There are no
heartbeats here; 1,000 nodes send 50 of them each second.
"""

from __future__ import annotations

import json
import selectors
import threading
import uuid
from collections.abc import Callable
from typing import Any

import amqp

_EXPIRES = {"x-expires": 1_800_000}
_TOPIC = "cinder-volume"
_SHARED = "openstack"

#: Gets the name of a node and a message: its method, its arguments, its context.
Handler = Callable[[str, dict[str, Any]], None]


class NodeBus:
    """All connections, read by one thread."""

    def __init__(self, port: int, handle: Handler) -> None:
        self._port, self._handle = port, handle
        self._selector = selectors.DefaultSelector()
        self._mutex, self._ending = threading.Lock(), threading.Event()
        self._open: dict[str, list[amqp.Connection]] = {}
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()

    def join(self, node: str) -> None:
        """Connect as a cinder-volume with this ``host@backend``."""
        host = node.partition("@")[0]
        first, second, third = (self._connection() for _ in range(3))
        self._listen(first, node, _TOPIC, node)
        self._listen(second, node, f"{_TOPIC}.{node}", host)
        self._keep(node, first, second, third)

    def tap(self, name: str, topic: str) -> None:
        """Hear what is cast to a topic, as a node of this name; others hear it too."""
        connection = self._connection()
        channel = connection.channel()
        queue = f"tap-{uuid.uuid4().hex}"
        channel.queue_declare(queue, exclusive=True)
        channel.queue_bind(queue, _SHARED, routing_key=topic)
        self._consume(channel, queue, name)
        self._keep(name, connection)

    def leave(self) -> None:
        """Close every connection, and delete the queues that would stay."""
        self._ending.set()
        self._thread.join()
        for connections in self._open.values():
            for connection in connections:
                connection.close()
        self._open.clear()
        self._selector.close()

    def _connection(self) -> amqp.Connection:
        connection = amqp.Connection(
            f"127.0.0.1:{self._port}", "guest", "guest", heartbeat=0
        )
        connection.connect()
        return connection

    def _listen(self, by: amqp.Connection, node: str, topic: str, server: str) -> None:
        """As ``RPCServer`` with this topic and server: three queues."""
        channel = by.channel()
        channel.exchange_declare(_SHARED, "topic", durable=False, auto_delete=False)
        for queue in (topic, f"{topic}.{server}"):
            channel.queue_declare(queue, auto_delete=False)
            channel.queue_bind(queue, _SHARED, routing_key=queue)
            self._consume(channel, queue, node)
        fanout = f"{topic}_fanout"
        queue = f"{fanout}_{uuid.uuid4().hex}"
        channel.exchange_declare(fanout, "fanout", durable=False, auto_delete=True)
        channel.queue_declare(queue, auto_delete=False, arguments=_EXPIRES)
        channel.queue_bind(queue, fanout, routing_key=topic)
        self._consume(channel, queue, node)

    def _consume(self, channel: amqp.Channel, queue: str, node: str) -> None:
        def heard(message: amqp.Message) -> None:
            body = json.loads(message.body)
            self._handle(node, json.loads(body["oslo.message"]))

        channel.basic_consume(queue, callback=heard, no_ack=True)

    def _keep(self, node: str, *connections: amqp.Connection) -> None:
        with self._mutex:
            self._open.setdefault(node, []).extend(connections)
            for connection in connections:
                self._selector.register(
                    connection.sock, selectors.EVENT_READ, connection
                )

    def _read(self) -> None:
        while not self._ending.is_set():
            with self._mutex:
                ready = self._selector.select(0)
            for key, _ in ready:
                key.data.drain_events(timeout=5)
            if not ready:
                self._ending.wait(0.002)
