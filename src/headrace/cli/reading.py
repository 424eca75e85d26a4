"""Command: reading messages for `consume` and `tail`: from where, how many, and when it is enough.

Without a group, partitions are assigned and nothing is committed: looking never changes anything. "The end" is where
each partition ended when the command began, so a busy topic can't keep it from finishing.
"""

from __future__ import annotations

import re
import time
from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from confluent_kafka import KafkaError, TopicPartition

from headrace.cli.broker_link import BrokerLink, Span
from headrace.cli.failure import Exit, Failure, failure_of
from headrace.client.errors import headrace_error
from headrace.records.filters import Filter, FilterInput
from headrace.records.positions import Anchor, Position

BATCH = 500
LOOK_SECONDS = 0.2
COMMIT_SECONDS = 1.0

Key = tuple[str, int]


class Reading(NamedTuple):
    topics: tuple[str, ...]
    start: Position
    limit: int | None = None
    follow: bool = False
    group: str | None = None
    partition: int | None = None
    pattern: re.Pattern[str] | None = None
    patience_ms: int | None = None
    """Give up after so long without a message."""
    where: Filter | None = None


class TopicConsumer:
    """Iterate over `messages()`, then `close()`, which also commits what was taken for a group."""

    def __init__(
        self,
        link: BrokerLink,
        reading: Reading,
        before_waiting: Callable[[], None],
        see: Callable[[Any], Any] | None = None,
    ) -> None:
        """`see` is done to each message before anybody looks at it."""
        self._link = link
        self._before_waiting = before_waiting
        self._see = see
        self._reading = reading
        self._ends: dict[Key, int] = {}
        self._open: set[Key] = set()
        """Partitions that have not reached their end yet."""
        self._assigned = reading.group is None
        self._taken: dict[Key, int] = {}
        self._committed_at = time.monotonic()
        self._trouble: KafkaError | None = None
        settings: dict[str, Any] = {"enable.partition.eof": True, "error_cb": self._heard}
        if not reading.follow:
            settings["fetch.wait.max.ms"] = 10  # the end is found by a fetch that brings nothing
        if reading.group is not None:
            settings["group.id"] = reading.group
            settings["auto.offset.reset"] = "latest" if reading.start.anchor is Anchor.END else "earliest"
        self._topics = link.need_topics(reading.topics)
        self._consumer = link.consumer(settings)
        self._begin()

    def _begin(self) -> None:
        if self._reading.group is not None:
            self._consumer.subscribe(list(self._topics), on_assign=self._gained, on_revoke=self._lost)
            return
        spans = {
            key: span
            for key, span in self._link.spans(self._topics).items()
            if self._reading.partition in (None, key[1])
        }
        if not spans:
            raise Failure(Exit.NOT_FOUND, f"there is no partition {self._reading.partition}")
        starts = self._starts(spans)
        self._ends = {key: span.end for key, span in spans.items()}
        self._open = {key for key in spans if starts[key] < spans[key].end}
        self._consumer.assign([TopicPartition(*key, starts[key]) for key in spans])

    def _starts(self, spans: dict[Key, Span]) -> dict[Key, int]:
        anchor, value = self._reading.start
        if anchor is Anchor.START:
            return {key: span.start for key, span in spans.items()}
        if anchor is Anchor.END:
            return {key: span.end for key, span in spans.items()}
        if anchor is Anchor.LAST:
            return {key: max(span.start, span.end - value) for key, span in spans.items()}
        if anchor is Anchor.OFFSET:
            return {key: min(max(span.start, value), span.end) for key, span in spans.items()}
        wanted = [TopicPartition(*key, value) for key in spans]
        found = self._consumer.offsets_for_times(wanted, timeout=self._link.timeout_s)
        return {
            (entry.topic, entry.partition): entry.offset if entry.offset >= 0 else spans[entry.topic, entry.partition].end
            for entry in found
        }  # fmt: skip

    def _gained(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._assigned = True
        self._open |= {(entry.topic, entry.partition) for entry in partitions}

    def _lost(self, consumer: Any, partitions: list[TopicPartition]) -> None:
        self._commit()
        self._open -= {(entry.topic, entry.partition) for entry in partitions}

    def _heard(self, error: KafkaError) -> None:
        self._trouble = error

    # -- messages ----------------------------------------------------------------------------------------------

    def messages(self) -> Iterator[Any]:
        """As they come; with a position of "the last N", those N in order of time first."""
        if self._reading.start.anchor is Anchor.LAST and self._reading.group is None:
            found = [message for message in self._until_end() if self._wanted(message)]
            found.sort(key=lambda message: message.timestamp()[1])
            yield from found[len(found) - min(self._reading.start.value, len(found)) :]
            if not self._reading.follow:
                return
        count = 0
        for message in self._stream():
            if self._wanted(message):
                yield message
                count += 1
            self._taken[message.topic(), message.partition()] = message.offset() + 1
            self._commit_now_and_then()
            if self._reading.limit is not None and count >= self._reading.limit:
                return

    def _until_end(self) -> Iterator[Any]:
        while self._open:
            yield from self._look(BATCH)

    def _stream(self) -> Iterator[Any]:
        quiet_since = time.monotonic()
        while self._reading.follow or self._open or not self._assigned:
            found = self._look(min(BATCH, self._reading.limit or BATCH))
            if found:
                quiet_since = time.monotonic()
                yield from found
                continue
            self._commit_now_and_then()
            patience_ms = self._reading.patience_ms
            if patience_ms is not None and (time.monotonic() - quiet_since) * 1000 > patience_ms:
                raise Failure(Exit.TIMEOUT, f"no message came for {patience_ms / 1000:g}s")
            self._check_trouble(quiet_since)

    def _look(self, count: int) -> list[Any]:
        """Wait a moment for the first, then take whatever else is there already."""
        self._before_waiting()
        first = self._consumer.poll(LOOK_SECONDS)
        if first is None:
            return []
        entries: list[Any] = [first, *self._consumer.consume(count - 1, timeout=0)]
        found = [entry for entry in entries if self._is_message(entry)]
        return found if self._see is None else [self._see(message) for message in found]

    def _is_message(self, entry: Any) -> bool:
        key, error = (entry.topic(), entry.partition()), entry.error()
        if error is None:
            end, offset = self._ends.get(key), entry.offset()
            if end is not None and offset + 1 >= end:
                self._open.discard(key)
            # What came after we began is for those who follow.
            return end is None or offset < end or self._reading.follow
        if error.code() == KafkaError._PARTITION_EOF:
            self._open.discard(key)
        elif not error.retriable():
            raise failure_of(headrace_error(error), f"{key[0]}-{key[1]}" if key[0] else "")
        return False

    def _check_trouble(self, quiet_since: float) -> None:
        """A broker that went away: whoever follows waits for it, everybody else is told."""
        trouble, self._trouble = self._trouble, None
        lost = trouble is not None and trouble.code() == KafkaError._ALL_BROKERS_DOWN
        if lost and not self._reading.follow and time.monotonic() - quiet_since > 1:
            raise Failure(
                Exit.UNREACHABLE, f"lost the broker at {self._link.profile.bootstrap}", "headrace doctor"
            )

    def _wanted(self, message: Any) -> bool:
        where = self._reading.where
        if where is not None and not where.matches(_filter_input(message)):
            return False
        pattern = self._reading.pattern
        if pattern is None:
            return True
        return any(
            pattern.search(part.decode(errors="replace")) for part in (message.value(), message.key()) if part
        )

    # -- the end -----------------------------------------------------------------------------------------------

    def _commit_now_and_then(self) -> None:
        if self._reading.group is not None and time.monotonic() - self._committed_at > COMMIT_SECONDS:
            self._commit()

    def _commit(self) -> None:
        self._committed_at = time.monotonic()
        taken, self._taken = self._taken, {}
        if self._reading.group is not None and taken:
            offsets = [TopicPartition(*key, offset) for key, offset in taken.items()]
            self._consumer.commit(offsets=offsets, asynchronous=False)

    def close(self) -> None:
        try:
            self._commit()
        finally:
            self._consumer.close()


def _filter_input(message: Any) -> FilterInput:
    return FilterInput(
        message.key(),
        message.value(),
        tuple(message.headers() or ()),
        message.timestamp()[1],
        message.offset(),
        message.topic(),
        message.partition(),
    )
