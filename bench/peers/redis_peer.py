"""Redis from Debian, with a stream and its consumer groups as the queue."""

from __future__ import annotations

from pathlib import Path
from typing import Any

from headrace.testing.etcd_server import free_ports
from peers.debian import libraries, unpack
from peers.servers import HERE, Line, ProcessPeer, Receiver, connect

STREAM = "tasks"


def command(*words: str | bytes) -> bytes:
    parts = [f"*{len(words)}\r\n".encode()]
    for word in words:
        data = word.encode() if isinstance(word, str) else word
        parts.append(b"$%d\r\n%s\r\n" % (len(data), data))
    return b"".join(parts)


def answer(receiver: Receiver) -> Any:
    head = receiver.line()
    kind, rest = head[:1], head[1:]
    if kind == b"-":
        raise RuntimeError(rest.decode())
    if kind == b"*":
        return None if rest == b"-1" else [answer(receiver) for _ in range(int(rest))]
    if kind == b"$":
        return None if rest == b"-1" else receiver.take(int(rest) + 2)[:-2]
    return rest


class Redis(ProcessPeer):
    name = "redis"
    title = "Redis, everysec"
    durability = "memory; appended file synced every second (appendfsync everysec)"
    sync = "everysec"

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.port = 0
        self._root = Path("/")

    def obtain(self) -> None:
        self._root = unpack("redis-server")

    def command(self) -> list[str]:
        if not self.port:
            (self.port,) = free_ports(1)
        return [
            str(self._root / "usr/bin/redis-server"), "--port", str(self.port), "--bind", HERE, "--dir", str(self.directory),
            "--appendonly", "yes", "--appendfsync", self.sync, "--save", "",
        ]  # fmt: skip

    def environment(self) -> dict[str, str]:
        return libraries(self._root)

    def ready(self) -> bool:
        with connect(self.port) as asked:
            asked.sendall(command("PING"))
            return asked.recv(100).startswith(b"+PONG")

    def version(self) -> str:
        return str(self._ask("INFO", "server").split(b"redis_version:")[1].split()[0].decode())

    def line(self, size: int = 100) -> Line:
        """XADD answers with an id, the only thing in an answer that has a length."""
        received = bytearray()

        def tally(data: bytes) -> int:
            received.extend(data)
            if received[:1] == b"-":  # it loads its data yet, or can't write
                raise RuntimeError(bytes(received[:200]).decode())
            return received.count(b"$")

        return Line(connect(self.port), command("XADD", STREAM, "*", "b", b"x" * size), tally)

    def take_tasks(self, count: int) -> int:
        with connect(self.port) as asked:
            receiver = Receiver(asked)
            asked.sendall(command("XGROUP", "CREATE", STREAM, "workers", "0", "MKSTREAM"))
            try:
                answer(receiver)
            except RuntimeError as failed:
                if "BUSYGROUP" not in str(failed):
                    raise
            taken = 0
            read = command("XREADGROUP", "GROUP", "workers", "one", "COUNT", "100", "STREAMS", STREAM, ">")
            while taken < count:
                asked.sendall(read)
                found = answer(receiver)
                if not found:
                    break
                ids = [entry[0] for entry in found[0][1]]
                asked.sendall(command("XACK", STREAM, "workers", *ids))
                answer(receiver)
                taken += len(ids)
        return taken

    def _ask(self, *words: str) -> Any:
        with connect(self.port) as asked:
            asked.sendall(command(*words))
            return answer(Receiver(asked))


class RedisSynced(Redis):
    name = "redis-always"
    synced = True
    title = "Redis, always"
    durability = "fsync before the ack (appendfsync always)"
    sync = "always"
