"""NATS with JetStream, built from the Go proxy."""

from __future__ import annotations

import json
import re
from pathlib import Path
from typing import Any

from headrace.testing.etcd_server import free_ports
from peers.servers import HERE, KEPT, Line, ProcessPeer, Receiver, connect, has_program, obtained

VERSION = "2.15.2"
MODULE = f"github.com/nats-io/nats-server/v2@v{VERSION}"
HELLO = b'CONNECT {"verbose":false,"pedantic":false,"headers":true}\r\nPING\r\n'


class Nats(ProcessPeer):
    name = "nats"
    title = f"NATS {VERSION}"
    durability = "page cache; synced every two minutes (the default)"
    sync = "2m"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.port = 0
        self._lines = 0
        self._has_stream = False

    def obtain(self) -> None:
        if not self._binary.exists():
            has_program("go")
            obtained(["go", "install", MODULE], KEPT / "go", GOBIN=str(KEPT / "go"))

    @property
    def _binary(self) -> Path:
        return KEPT / "go" / "nats-server"

    def version(self) -> str:
        return VERSION

    def command(self) -> list[str]:
        if not self.port:
            (self.port,) = free_ports(1)
        settings = self.directory / "nats.conf"
        store = f'store_dir: "{self.directory}", sync_interval: {self.sync}'
        settings.write_text(f"listen: {HERE}:{self.port}\njetstream {{ {store} }}\n")
        return [str(self._binary), "-c", str(settings)]

    def ready(self) -> bool:
        with connect(self.port) as asked:
            asked.settimeout(5)
            self._greet(Receiver(asked), asked)
            return "error" not in self._api(asked, "INFO", {})

    @staticmethod
    def _greet(receiver: Receiver, asked: Any) -> None:
        receiver.line()
        asked.sendall(HELLO)
        while receiver.line() != b"PONG":
            pass

    def _api(self, asked: Any, what: str, body: dict[str, Any]) -> dict[str, Any]:
        """On a connection that has greeted and got nothing since."""
        data = json.dumps(body).encode()
        asked.sendall(
            b"SUB _INBOX.api 9\r\nPUB $JS.API.%s _INBOX.api %d\r\n%s\r\n" % (what.encode(), len(data), data)
        )
        receiver = Receiver(asked)
        while not (head := receiver.line()).startswith(b"MSG _INBOX.api"):
            pass
        found: dict[str, Any] = json.loads(receiver.take(int(head.rsplit(b" ", 1)[1]) + 2))
        asked.sendall(b"UNSUB 9\r\n")
        return found

    def _open(self) -> tuple[Any, Receiver]:
        asked = connect(self.port)
        receiver = Receiver(asked)
        self._greet(receiver, asked)
        if not self._has_stream:
            body = {"name": "T", "subjects": ["tasks"], "storage": "file", "retention": "limits"}
            self._api(asked, "STREAM.CREATE.T", body)
            consumer = {"durable_name": "workers", "ack_policy": "explicit", "max_ack_pending": 100_000}
            self._api(asked, "CONSUMER.DURABLE.CREATE.T.workers", {"stream_name": "T", "config": consumer})
            self._has_stream = True
        return asked, receiver

    def line(self, size: int = 100) -> Line:
        asked, _ = self._open()
        self._lines += 1
        inbox = b"_INBOX.%d" % self._lines
        asked.sendall(b"SUB %s 1\r\n" % inbox)
        received = bytearray()

        def tally(data: bytes) -> int:
            received.extend(data)
            if b'"error"' in received or b"-ERR" in received:
                raise RuntimeError(bytes(received[:200]).decode())
            return received.count(b'"seq":')

        return Line(asked, b"PUB tasks %s %d\r\n%s\r\n" % (inbox, size, b"x" * size), tally)

    def take_tasks(self, count: int) -> int:
        asked, _ = self._open()
        with asked:
            receiver = Receiver(asked)
            asked.sendall(b"SUB _INBOX.take 2\r\n")
            wanted = json.dumps({"batch": 100, "no_wait": True}).encode()
            pull = b"PUB $JS.API.CONSUMER.MSG.NEXT.T.workers _INBOX.take %d\r\n%s\r\n" % (len(wanted), wanted)
            taken = 0
            while taken < count:
                asked.sendall(pull)
                replies = self._pulled(receiver)
                if not replies:
                    break
                asked.sendall(b"".join(b"PUB %s 4\r\n+ACK\r\n" % reply for reply in replies))
                taken += len(replies)
        return taken

    @staticmethod
    def _pulled(receiver: Receiver) -> list[bytes]:
        """Where to send the acknowledgements of one pull: a hundred messages, or fewer and a word that there are no more."""
        replies: list[bytes] = []
        while len(replies) < 100:
            head = receiver.line()
            if head.startswith(b"MSG "):
                _, _, _, reply, size = head.split(b" ")
                receiver.take(int(size) + 2)
                replies.append(reply)
            elif match := re.match(rb"HMSG .* (\d+) (\d+)$", head):
                receiver.take(int(match[2]) + 2)
                break
        return replies


class NatsSynced(Nats):
    name = "nats-always"
    synced = True
    title = f"NATS {VERSION}, always"
    durability = "fsync before the ack (sync_interval: always)"
    sync = "always"
