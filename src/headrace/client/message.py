"""Port of the SDK: what a subscriber is handed, and what a publisher gets back."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import threading
from collections.abc import Callable, Generator
from datetime import UTC, datetime
from typing import Any, NamedTuple, Protocol, TypeVar

import msgspec
from confluent_kafka import KafkaError
from confluent_kafka import Message as KafkaMessage

from headrace.client.errors import headrace_error
from headrace.client.payload import decode_payload
from headrace.core.errors import HeadraceError

LOG = logging.getLogger("headrace.client")
T = TypeVar("T")
_WAITING = threading.Lock()
"""Held for a moment by who begins to wait and by who tells them; one for all, because there is next to nothing to do under it."""


class AnswerServer(Protocol):
    def expect(self, delivery: Delivery) -> None:
        """Somebody waits for this one: go and hear answers until it is there."""

    def failed(self, delivery: Delivery) -> None:
        """Keep it, for `flush` to tell of."""


class Receipt(NamedTuple):
    """Where a published message is."""

    partition: int
    offset: int


class Delivery(msgspec.Struct, gc=False, eq=False):
    """The answer to one publish: `.result(timeout)`, or `await` it. Fails with HeadraceError.

    Most are never asked for, so one is made of a few plain fields, and what it takes to wait is made when somebody waits. An outcome is
    written before `_waiting` is read, and who waits writes `_waiting` before it reads the outcome: one of them sees the other.

    The garbage collector does not look at it (a hundred thousand may be on their way): what it refers to either lives longer or, as
    `_waiting`, is dropped with the answer.
    """

    _server: AnswerServer
    _outcome: int | HeadraceError | None = None
    """The offset, or what went wrong."""
    _partition: int = 0
    _waiting: list[Callable[[Delivery], None]] | None = None
    observed: bool = False
    """Somebody asked for the outcome, so `flush` has no need to tell of it."""

    def done(self) -> bool:
        return self._outcome is not None

    def answered(self, error: KafkaError | None, message: KafkaMessage) -> None:
        """For librdkafka: what became of it."""
        if error is None:
            self._partition = message.partition() or 0
            offset = message.offset()
            self._outcome = -1 if offset is None else offset
        else:
            self._server.failed(self)
            self._outcome = headrace_error(error)
        if self._waiting is not None:
            self._tell()

    def add_done_callback(self, tell: Callable[[Delivery], None]) -> None:
        """Called once it is answered, by the thread that hears of it; at once when it already is."""
        self.observed = True
        with _WAITING:
            if self._waiting is None:
                self._waiting = []
                self._server.expect(self)
            self._waiting.append(tell)
        if self._outcome is not None:
            self._tell()

    def _tell(self) -> None:
        with _WAITING:
            waiting, self._waiting = self._waiting, None
        for tell in waiting or ():
            try:
                tell(self)
            except Exception:
                LOG.exception("a callback of a delivery failed")

    def result(self, timeout: float | None = None) -> Receipt:
        outcome = self._wait(timeout)
        if isinstance(outcome, HeadraceError):
            raise outcome
        return Receipt(self._partition, outcome)

    def exception(self, timeout: float | None = None) -> HeadraceError | None:
        outcome = self._wait(timeout)
        return outcome if isinstance(outcome, HeadraceError) else None

    def _wait(self, timeout: float | None) -> int | HeadraceError:
        self.observed = True
        if self._outcome is None:
            answered = threading.Event()
            self.add_done_callback(lambda _: answered.set())
            answered.wait(timeout)
            if self._outcome is None:
                raise TimeoutError(f"not acknowledged within {timeout} s; it may still be")
        return self._outcome

    def __repr__(self) -> str:
        return f"<Delivery {'on its way' if self._outcome is None else self._outcome!r}>"

    def __await__(self) -> Generator[Any, None, Receipt]:
        loop = asyncio.get_running_loop()
        waiting: asyncio.Future[None] = loop.create_future()

        def wake() -> None:
            if not waiting.done():
                waiting.set_result(None)

        def answered(_: Delivery) -> None:
            with contextlib.suppress(RuntimeError):  # the loop is closed: nobody waits any more
                loop.call_soon_threadsafe(wake)

        self.add_done_callback(answered)
        yield from waiting
        return self.result()


class Message(msgspec.Struct, eq=False):
    """One message. `value` and `key` are the bytes as published; `text` and `json()` read them.

    It is librdkafka's own, with our words for it: what nobody asks for is not copied.
    """

    value: bytes | None
    _raw: KafkaMessage
    _ack: Callable[[Message], None]

    @property
    def topic(self) -> str:
        return self._raw.topic() or ""

    @property
    def partition(self) -> int:
        return self._raw.partition() or 0

    @property
    def offset(self) -> int:
        return self._raw.offset() or 0

    @property
    def place(self) -> tuple[str, int]:
        """Topic and partition."""
        raw = self._raw
        return raw.topic() or "", raw.partition() or 0

    @property
    def key(self) -> bytes | None:
        return self._raw.key()

    @property
    def headers(self) -> tuple[tuple[str, bytes | None], ...]:
        found = self._raw.headers()
        return tuple(found) if found else ()  # type: ignore[arg-type]

    @property
    def timestamp_ms(self) -> int | None:
        kind, timestamp_ms = self._raw.timestamp()
        return timestamp_ms if kind else None

    def ack(self) -> None:
        """Done with this one. Its offset is committed once everything before it in its partition is done too."""
        self._ack(self)

    @property
    def timestamp(self) -> datetime | None:
        return None if self.timestamp_ms is None else datetime.fromtimestamp(self.timestamp_ms / 1000, UTC)

    @property
    def text(self) -> str:
        return (self.value or b"").decode()

    def json(self) -> Any:
        return msgspec.json.decode(self.value or b"null")

    def decode(self, kind: type[T]) -> T:
        """The value as a dataclass, a msgspec struct, a pydantic model, a TypedDict. HeadraceError: it is something else."""
        return decode_payload(self.value, kind)

    def __repr__(self) -> str:
        size = "tombstone" if self.value is None else f"{len(self.value)} bytes"
        return f"<Message {self.topic}[{self.partition}]@{self.offset} key={self.key!r} {size}>"
