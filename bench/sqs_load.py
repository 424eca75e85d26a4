"""SQS clients that cost much less than the servers they load: many keep-alive sockets, one thread, one epoll.

What a client does is a generator: it yields the bytes of a request and is sent the body of the answer.

def sender(target):
    for _ in range(1000):
        body = yield target.request("SendMessage", QueueUrl=url, MessageBody="hello")
"""

from __future__ import annotations

import json
import select
import socket
from collections.abc import Generator, Iterable, Sequence
from typing import Any

Client = Generator[bytes, bytes, int]
"""Yields requests, is sent answers, and returns how many messages it has dealt with."""


def request(action: str, **parameters: Any) -> bytes:
    body = json.dumps(parameters).encode()
    head = (
        "POST / HTTP/1.1\r\nHost: 127.0.0.1\r\n"
        f"X-Amz-Target: AmazonSQS.{action}\r\nContent-Type: application/x-amz-json-1.0\r\n"
        "Authorization: AWS4-HMAC-SHA256 Credential=x/20260101/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0\r\n"
        f"Content-Length: {len(body)}\r\n\r\n"
    )
    return head.encode() + body


class _Connection:
    """One client's socket; opened again when the server closes it after an answer."""

    def __init__(self, port: int, client: Client) -> None:
        self._port = port
        self._client = client
        self._received = bytearray()
        self.socket = self._connect()
        self.result: int | None = None

    def _connect(self) -> socket.socket:
        made = socket.create_connection(("127.0.0.1", self._port))
        made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
        return made

    def start(self) -> None:
        self._ask(None)

    def readable(self) -> bool:
        """Whether the socket is another one now."""
        data = self.socket.recv(262_144)
        self._received += data
        answer, closes = _cut_answer(self._received, ended=not data)
        if answer is None:
            if not data:
                raise ConnectionError("the server closed the connection instead of answering")
            return False
        self._received.clear()
        if closes or not data:
            self.socket.close()
            self.socket = self._connect()
        self._ask(answer)
        return closes or not data

    def _ask(self, answer: bytes | None) -> None:
        try:
            self.socket.sendall(next(self._client) if answer is None else self._client.send(answer))
        except StopIteration as stop:
            self.result = int(stop.value)


def _cut_answer(received: bytearray, *, ended: bool) -> tuple[bytes | None, bool]:
    """(the body once it is whole, whether the server closes the connection). Raises when it is no 200."""
    at = received.find(b"\r\n\r\n")
    if at < 0:
        return None, False
    head = bytes(received[:at]).lower()
    closes = b"\r\nconnection: close" in head or head.startswith(b"http/1.0")
    body = bytes(received[at + 4 :])
    mark = head.find(b"\r\ncontent-length:")
    if mark >= 0:
        if len(body) < int(head[mark + 17 :].split(b"\r\n", 1)[0]):
            return None, False
    elif not ended:
        return None, False
    if head.split(b" ", 2)[1] != b"200":
        raise RuntimeError(f"{head.splitlines()[0].decode()}: {body[:200]!r}")
    return body, closes


def run(port: int | Sequence[int], clients: Iterable[Client]) -> int:
    """All of them at once, spread over the ports; how many messages they dealt with together."""
    ports = [port] if isinstance(port, int) else port
    connections = {}
    epoll = select.epoll()
    for number, client in enumerate(clients):
        connection = _Connection(ports[number % len(ports)], client)
        connections[connection.socket.fileno()] = connection
        epoll.register(connection.socket, select.EPOLLIN)
        connection.start()
    total = 0
    while connections:
        for number, _ in epoll.poll(30):
            connection = connections[number]
            if connection.readable():
                del connections[number]
                connections[connection.socket.fileno()] = connection
                epoll.register(connection.socket, select.EPOLLIN)
            if connection.result is not None:
                total += connection.result
                del connections[connection.socket.fileno()]
                epoll.unregister(connection.socket)
                connection.socket.close()
    epoll.close()
    return total


def ask(port: int, action: str, **parameters: Any) -> dict[str, Any]:
    """One question on a connection of its own."""
    answers: list[bytes] = []

    def once() -> Client:
        answers.append((yield request(action, **parameters)))
        return 1

    run(port, [once()])
    found: dict[str, Any] = json.loads(answers[0]) if answers[0] else {}
    return found
