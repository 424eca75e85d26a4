"""Command: publishing what people type or pipe in: where messages come from, and who answers for them."""

from __future__ import annotations

import sys
import time
from collections.abc import Iterator, Mapping
from typing import Any, NamedTuple

import msgspec
from confluent_kafka import KafkaError

from headrace.cli.broker_link import BrokerLink
from headrace.cli.cluster_view import ClusterLink
from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.progress import Advance
from headrace.client.errors import headrace_error
from headrace.client.payload import encode_key
from headrace.client.reaching import LARGE_MESSAGES
from headrace.core.errors import ErrorKind

IMPATIENT_S = 2.0


class PartitionTally(msgspec.Struct):
    partition: int
    messages: int
    first_offset: int
    last_offset: int


class OutgoingLine(NamedTuple):
    key: bytes | None
    value: bytes | None
    read_bytes: int
    """Of the input, for the progress bar."""
    more: Mapping[str, Any] = {}
    """Headers, a partition, a time of its own."""


class LineSender:
    """Publishes everything and keeps count of the answers."""

    def __init__(
        self,
        link: BrokerLink,
        topic: str,
        settings: dict[str, Any],
        fixed: dict[str, Any],
        rate: float | None,
    ) -> None:
        """`settings` are for the producer, `fixed` is the same for every message."""
        self._link = link
        self._topic = topic
        self._fixed = fixed
        self._rate = rate
        self._tallies: dict[int, PartitionTally] = {}
        self.failure: Failure | None = None
        """The first."""
        self.failed = self.produced = self.bytes = 0
        self.seconds = 0.0
        self._producer = link.producer(
            {
                "message.timeout.ms": link.profile.timeout_ms,
                "topic.metadata.propagation.max.ms": min(5000, link.profile.timeout_ms),
                "queue.buffering.max.messages": 200_000,
                **LARGE_MESSAGES,
                **settings,
            }
        )

    def send_all(self, source: Iterator[OutgoingLine], advance: Advance) -> None:
        """Also when the input turns bad half-way: what was read before is published and answered."""
        started = time.monotonic()
        try:
            for count, outgoing in enumerate(source):
                if self._rate is not None:
                    self._wait_until(started + count / self._rate)
                self._send(outgoing)
                advance(outgoing.read_bytes)
        finally:
            self._wait_for_answers()
            self.seconds = time.monotonic() - started

    def _wait_for_answers(self) -> None:
        """Whoever refuses for want of room refuses until there is some: the client tries again and again, and would say
        "timed out" in the end. So when nobody answers, the brokers are asked why (F47)."""
        deadline = time.monotonic() + self._link.timeout_s + 1
        looked = False
        while self._producer.flush(min(IMPATIENT_S, max(0.0, deadline - time.monotonic()))):
            if time.monotonic() >= deadline:
                return
            if not self.produced and not looked:
                looked = True
                if refusal := self._why_refused():
                    self.failure = refusal
                    self._producer.purge()

    def _why_refused(self) -> Failure | None:
        try:
            link = ClusterLink(self._link)
            found = [one for one in link.troubles(link.view()) if ": disk: " in one]
        except Failure:
            return None
        if not found:
            return None
        kind = ErrorKind.KAFKA_STORAGE_ERROR
        return Failure(Exit.FAILED, "; ".join(found), kind.info.hint, code=kind.name)

    @property
    def tallies(self) -> list[PartitionTally]:
        return [self._tallies[number] for number in sorted(self._tallies)]

    def _send(self, outgoing: OutgoingLine) -> None:
        self.bytes += len(outgoing.value or b"")
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    outgoing.value,
                    outgoing.key,
                    on_delivery=self._answered,
                    **self._fixed,
                    **outgoing.more,
                )
                self._producer.poll(0)
                return
            except BufferError:
                self._producer.poll(0.1)

    def _wait_until(self, moment: float) -> None:
        while (left := moment - time.monotonic()) > 0:
            self._producer.poll(left)

    def _failure_of(self, error: KafkaError) -> Failure:
        if error.code() == KafkaError._UNKNOWN_PARTITION and "partition" in self._fixed:
            what = f'topic "{self._topic}" has no partition {self._fixed["partition"]}'
            return Failure(Exit.NOT_FOUND, what, f"headrace topic describe {self._topic}")
        return failure_of(headrace_error(error), f'topic "{self._topic}"')

    def _answered(self, error: KafkaError | None, message: Any) -> None:
        if error is not None:
            self.failed += 1
            self.failure = self.failure or self._failure_of(error)
            return
        self.produced += 1
        number, offset = message.partition(), message.offset()
        tally = self._tallies.get(number)
        if tally is None:
            self._tallies[number] = PartitionTally(number, 1, offset, offset)
        else:
            tally.messages += 1
            tally.last_offset = max(tally.last_offset, offset)


def outgoing_messages(
    values: tuple[str, ...],
    path: str | None,
    key: str | None,
    key_separator: str | None,
    key_field: str | None,
    tombstone: bool,
) -> Iterator[OutgoingLine]:
    fixed = encode_key(key)
    if tombstone:
        yield OutgoingLine(fixed, None, 0)
        return
    if values:
        lines: Iterator[bytes] = (value.encode() for value in values)
    else:
        lines = _lines(path)
    for number, line in enumerate(lines, 1):
        size, line = len(line), line.rstrip(b"\r\n")
        if key_separator is not None:
            front, separator, line = line.partition(key_separator.encode())
            if not separator:
                raise Failure(Exit.USAGE, f'line {number} has no "{key_separator}" in it')
            yield OutgoingLine(front, line, size)
        elif key_field is not None:
            yield OutgoingLine(_field(line, key_field, number), line, size)
        else:
            yield OutgoingLine(fixed, line, size)


def _lines(path: str | None) -> Iterator[bytes]:
    if path is None:
        yield from sys.stdin.buffer
        return
    with open(path, "rb") as file:
        yield from file


def _field(line: bytes, name: str, number: int) -> bytes | None:
    try:
        found = msgspec.json.decode(line)[name]
    except (msgspec.DecodeError, TypeError):
        raise Failure(Exit.USAGE, f"line {number} is not a JSON object") from None
    except KeyError:
        raise Failure(Exit.USAGE, f'line {number} has no field "{name}"') from None
    if found is None:
        return None
    return found.encode() if isinstance(found, str) else msgspec.json.encode(found)
