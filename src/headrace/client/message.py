"""Port of the SDK: what a subscriber is handed, and what a publisher gets back."""

from __future__ import annotations

import asyncio
from collections.abc import Callable, Generator
from concurrent.futures import Future
from datetime import UTC, datetime
from typing import Any, NamedTuple

import msgspec


class Receipt(NamedTuple):
    """Where a published message is."""

    partition: int
    offset: int


class Delivery(Future[Receipt]):
    """The answer to one publish: `.result(timeout)`, or `await` it. Fails with HeadraceError."""

    observed = False
    """Somebody asked for the outcome, so `flush` has no need to tell of it."""

    def result(self, timeout: float | None = None) -> Receipt:
        self.observed = True
        return super().result(timeout)

    def exception(self, timeout: float | None = None) -> BaseException | None:
        self.observed = True
        return super().exception(timeout)

    def __await__(self) -> Generator[Any, None, Receipt]:
        self.observed = True
        return asyncio.wrap_future(self).__await__()


class Message:
    """One message. `value` and `key` are the bytes as published; `text` and `json()` read them."""

    __slots__ = ("_ack", "headers", "key", "offset", "partition", "timestamp_ms", "topic", "value")

    def __init__(
        self,
        topic: str,
        partition: int,
        offset: int,
        key: bytes | None,
        value: bytes | None,
        headers: tuple[tuple[str, bytes | None], ...],
        timestamp_ms: int | None,
        ack: Callable[[str, int, int], None],
    ) -> None:
        self.topic = topic
        self.partition = partition
        self.offset = offset
        self.key = key
        self.value = value
        self.headers = headers
        self.timestamp_ms = timestamp_ms
        self._ack = ack

    def ack(self) -> None:
        """Done with this one. Its offset is committed once everything before it in its partition is done too."""
        self._ack(self.topic, self.partition, self.offset)

    @property
    def timestamp(self) -> datetime | None:
        return None if self.timestamp_ms is None else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def text(self) -> str:
        return (self.value or b"").decode()

    def json(self) -> Any:
        return msgspec.json.decode(self.value or b"null")

    def __repr__(self) -> str:
        size = "tombstone" if self.value is None else f"{len(self.value)} bytes"
        return f"<Message {self.topic}[{self.partition}]@{self.offset} key={self.key!r} {size}>"
