"""What Headrace and Kafka have in common for the rig: the protocol."""

from __future__ import annotations

import struct
from abc import abstractmethod
from pathlib import Path
from typing import Any

from load import produce_frame

from headrace.wire.produce import decode_produce_response
from peers.servers import HERE, Line, Peer, connect

API_VERSIONS = struct.pack(">ihhih", 10, 18, 0, 1, 0)
"""ApiVersions 0 without a client id."""


class KafkaPeer(Peer):
    """A peer that speaks Kafka's protocol; `ports` are those of its brokers."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self._made: set[str] = set()

    @property
    @abstractmethod
    def ports(self) -> list[int]: ...

    @abstractmethod
    def launch(self) -> None:
        """The one broker, without waiting; it has been started before, so its port is known."""

    def start_broker(self, number: int) -> None:
        raise NotImplementedError

    def kill_broker(self, number: int) -> None:
        raise NotImplementedError

    @property
    def bootstrap(self) -> str:
        return ",".join(f"{HERE}:{port}" for port in self.ports)

    def create(self, topic: str, partitions: int = 1, replicas: int = 1, **config: str) -> None:
        from confluent_kafka.admin import NewTopic

        new = NewTopic(topic, partitions, replicas, config={key.replace("_", "."): value for key, value in config.items()})  # fmt: skip
        admin = self.admin()  # futures do not outlive it
        admin.create_topics([new], operation_timeout=60)[topic].result(90)

    def admin(self, **more: Any) -> Any:
        from confluent_kafka.admin import AdminClient

        return AdminClient({"bootstrap.servers": self.bootstrap, "log_level": 0, **more})

    def line(self, size: int = 100, topic: str = "single") -> Line:
        """Into the first partition of a topic, which is made when it is not there."""
        if topic not in self._made:
            self.create(topic)
            self._made.add(topic)
        return Line(connect(self.ports[0]), produce_frame(topic, -1, size), Answers().feed)


class Answers:
    def __init__(self) -> None:
        self._rest = b""
        self._count = 0

    def feed(self, data: bytes) -> int:
        self._rest += data
        while len(self._rest) >= 4 and len(self._rest) >= 4 + int.from_bytes(self._rest[:4], "big"):
            size = 4 + int.from_bytes(self._rest[:4], "big")
            answer, self._rest = self._rest[:size], self._rest[size:]
            response = decode_produce_response(memoryview(answer), 9, 9)
            code = response.topics[0].partitions[0].error_code
            if code:
                raise RuntimeError(f"produce was refused with {code}")
            self._count += 1
        return self._count


def serves_kafka(port: int) -> bool:
    with connect(port) as asked:
        asked.sendall(API_VERSIONS)
        return len(asked.recv(4)) > 0
