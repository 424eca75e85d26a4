"""Driver: reading. A Subscription is an iterator and an async iterator of messages, for a group or on its own.

Asking for the next message finishes the one before (`ack="auto"`), or `message.ack()` does (`ack="manual"`, in any
order). At-least-once: finished offsets are committed. At-most-once: offsets are committed before messages are handed out.
Exactly-once: finished offsets are committed with what was published meanwhile, in one transaction, whenever nothing is
half done. Without a group nothing is committed: every subscription reads for itself.
"""

from __future__ import annotations

import asyncio
import difflib
import time
from collections.abc import AsyncIterator, Iterator, Mapping, Sequence
from concurrent.futures import ThreadPoolExecutor
from types import TracebackType
from typing import Any, Literal

from confluent_kafka import OFFSET_BEGINNING, OFFSET_END, Consumer, KafkaError, KafkaException, TopicPartition
from confluent_kafka import Message as KafkaMessage

from headrace.client.errors import headrace_error
from headrace.client.message import Message
from headrace.client.progress import Progress
from headrace.client.semantics import CommitOrder
from headrace.client.transaction import TransactionAborted, TransactionalPublisher
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.records.positions import Anchor, Position

POLL_SECONDS = 0.5
"""How long one look for messages may take; also how soon Ctrl+C and close are noticed."""

PREFETCH = 200
"""Messages taken at once when they are there anyway. At-most-once can lose this many in a crash."""

TRANSACTION_SECONDS = 1.0
"""Exactly-once: results are visible after about this long at the latest, or when there is nothing more to do."""

METADATA_SECONDS = 10.0
STORE_SECONDS = 0.2
"""How old a finished offset may be before librdkafka hears of it. It commits every few seconds."""
CREATED_SECONDS = 0.05
_OFFSET_TAIL_BASE = -2000
"""librdkafka: -2000 - n is n before the end."""

_PASSING = (KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN, KafkaError._RESOLVE)
"""librdkafka goes on trying by itself."""

Ack = Literal["auto", "manual"]


class Subscription:
    def __init__(
        self,
        config: Mapping[str, Any],
        topics: Sequence[str],
        *,
        group: str | None,
        start: Position,
        commit: CommitOrder,
        ack: Ack,
        follow: bool,
        transaction: TransactionalPublisher | None = None,
    ) -> None:
        """`transaction` is what messages published because of ours go through, when offsets go with them."""
        self._group = group
        self._start = start
        self._transaction = transaction if group is not None else None
        self._done: dict[tuple[str, int], int] = {}
        """Finished offsets that wait for the transaction's commit, or to be told to librdkafka, which commits them in its time."""
        self._due = time.monotonic() + TRANSACTION_SECONDS
        """When finished offsets have waited long enough: looked at before each message."""
        self._commits_first = commit is CommitOrder.BEFORE_WORK and group is not None
        self._acks_itself = ack == "auto"
        self._accounts = group is not None and not self._commits_first
        """Somebody wants to know what is finished. One who reads alone keeps no account."""
        self._follow = follow
        self._batch: list[Message] = []
        """What was taken last: handed out up to `_next`, and with `ack="auto"` in `_done` up to `_noted`."""
        self._next = 0
        self._noted = 0
        self._working = False
        """`ack="auto"`: the one handed out last is not finished yet."""
        self._progress: dict[tuple[str, int], Progress] = {}
        self._assigned: set[tuple[str, int]] | None = None
        self._at_end: set[tuple[str, int]] = set()
        self._closed = False
        self._pool: ThreadPoolExecutor | None = None
        # The end is found by a fetch that brings nothing, so it had better not wait for something to come.
        at_end = {} if follow else {"enable.partition.eof": True, "fetch.wait.max.ms": 10}
        self._consumer = Consumer({**config, **at_end})
        try:
            found = self._need(topics, create=bool(config.get("allow.auto.create.topics")))
        except BaseException:
            self._consumer.close()
            raise
        if group is None:
            self._read_alone(found, start)
        else:
            self._consumer.subscribe(
                list(topics), on_assign=self._gained, on_revoke=self._lost, on_lost=self._lost
            )

    # -- partitions --------------------------------------------------------------------------------------------

    def _read_alone(self, topics: Mapping[str, Any], start: Position) -> None:
        partitions = [
            TopicPartition(topic, number, _logical(start))
            for topic, found in topics.items()
            for number in found.partitions
        ]
        if start.anchor is Anchor.SINCE:
            partitions = self._consumer.offsets_for_times(partitions, timeout=METADATA_SECONDS)
        self._assigned = {(entry.topic, entry.partition) for entry in partitions}
        self._consumer.assign(partitions)

    def _need(self, topics: Sequence[str], *, create: bool) -> dict[str, Any]:
        """Their metadata. Asking for a topic creates it where that is wanted and the broker allows it: librdkafka asks
        in this way only here; a group that waits for a topic does not create it."""
        found = {}
        deadline = time.monotonic() + METADATA_SECONDS
        for topic in topics:
            while True:
                known = self._metadata(topic).topics[topic]
                if known.error is None and known.partitions:
                    found[topic] = known
                    break
                if known.error is not None and not _not_there(known.error):
                    raise headrace_error(known.error)
                if not create or time.monotonic() > deadline:
                    raise self._no_such_topic(topic)
                time.sleep(CREATED_SECONDS)  # noqa: TID251 - the broker makes it
        return found

    def _metadata(self, topic: str | None = None) -> Any:
        try:
            if topic is None:
                return self._consumer.list_topics(timeout=METADATA_SECONDS)
            return self._consumer.list_topics(topic, timeout=METADATA_SECONDS)
        except KafkaException as problem:
            raise headrace_error(problem.args[0]) from None

    def _no_such_topic(self, topic: str) -> HeadraceError:
        near = difflib.get_close_matches(topic, list(self._metadata().topics), 1)
        meant = f'Did you mean "{near[0]}"? ' if near else ""
        return HeadraceError(
            ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
            f'topic "{topic}" does not exist',
            f"{meant}subscribe(…, create=True) makes it.",
        )

    def _gained(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        gained = {(entry.topic, entry.partition) for entry in partitions}
        self._assigned = gained | (self._assigned or set())

    def _lost(self, consumer: Consumer, partitions: list[TopicPartition]) -> None:
        """They belong to another member from now on: what was not handed out is its work, and so are late acks."""
        self._store()
        lost = {(entry.topic, entry.partition) for entry in partitions}
        self._batch[self._next :] = [entry for entry in self._batch[self._next :] if entry.place not in lost]
        for key in lost:
            self._progress.pop(key, None)
            self._done.pop(key, None)
        self._assigned = (self._assigned or set()) - lost
        self._at_end -= lost

    @property
    def partitions(self) -> frozenset[tuple[str, int]]:
        """What this member reads now, as (topic, partition); empty until the group has settled."""
        return frozenset(self._assigned or ())

    @property
    def in_transaction(self) -> bool:
        """Its offsets are committed with what its client publishes."""
        return self._transaction is not None and not self._closed

    # -- messages ----------------------------------------------------------------------------------------------

    def _fill(self) -> bool:
        """Look once for messages. False when there is nothing more to come."""
        # A rebalance happens inside consume and poll: with the transaction committed before, it finds nothing half done.
        self._commit_transaction()
        self._note()
        taken = self._consumer.consume(PREFETCH, timeout=0)
        if not taken:
            self._store()  # there is time
            first = self._consumer.poll(POLL_SECONDS)
            if first is None:
                return not self._finished
            taken = [first, *self._consumer.consume(PREFETCH, timeout=0)]
        told = [entry for entry in taken if entry.error() is not None]
        if told:
            taken = [entry for entry in taken if entry.error() is None]
        if self._commits_first and taken:
            self._commit(taken)
        acked = self._acked
        self._batch, self._next, self._noted = [Message(entry.value(), entry, acked) for entry in taken], 0, 0
        for entry in told:
            self._hear(entry)
        return bool(taken) or not self._finished

    @property
    def _finished(self) -> bool:
        caught_up = not self._follow and self._assigned is not None and self._at_end >= self._assigned
        return self._closed or caught_up

    def _hear(self, entry: KafkaMessage) -> None:
        """What librdkafka tells beside messages. HeadraceError: it can't go on."""
        error = entry.error()
        assert error is not None
        if error.code() == KafkaError._PARTITION_EOF:
            self._at_end.add((entry.topic() or "", entry.partition() or 0))
        elif error.retriable() or error.code() in _PASSING:
            pass
        elif self._follow and error.code() == KafkaError.UNKNOWN_TOPIC_OR_PART:
            pass  # it may be created yet
        else:
            raise headrace_error(error)

    def _commit(self, messages: list[KafkaMessage]) -> None:
        ends = {(entry.topic(), entry.partition()): entry for entry in messages}
        offsets = [
            TopicPartition(entry.topic() or "", entry.partition() or 0, (entry.offset() or 0) + 1)
            for entry in ends.values()
        ]
        try:
            self._consumer.commit(offsets=offsets, asynchronous=False)
        except KafkaException as problem:
            raise headrace_error(problem.args[0]) from None

    def _acked(self, message: Message) -> None:
        """By the program: in any order with `ack="manual"`; otherwise ahead of asking for the next one, which says the same."""
        if self._acks_itself:
            if self._next and message is self._batch[self._next - 1]:
                self._working = False
            return
        progress = self._progress.get(message.place)
        done = None if progress is None else progress.finished(message.offset)
        if done is None or self._closed:
            return
        self._done[message.place] = done
        if self._transaction is None:
            self._store()

    def _note(self) -> None:
        """How far each partition is finished. Once for many messages: for each, it cost more than reading it.

        With `ack="auto"` there are no gaps, so that the last of each partition tells all."""
        end = self._next - self._working
        if self._accounts and self._acks_itself and self._noted < end:
            passed, self._noted = self._batch[self._noted : end], end
            last = {(entry._raw.topic(), entry._raw.partition()): entry for entry in passed}
            for entry in last.values():
                self._done[entry.place] = entry.offset + 1

    def _settle(self) -> None:
        """Finished offsets are old enough to be told."""
        if self._transaction is None:
            self._store()
        else:
            self._commit_transaction()

    def _store(self) -> None:
        """Not for every message: that cost more than reading it."""
        self._note()
        self._due = time.monotonic() + STORE_SECONDS
        if self._transaction is not None or not self._done:
            return
        done, self._done = self._done, {}
        for (topic, partition), offset in done.items():
            try:
                self._consumer.store_offsets(offsets=[TopicPartition(topic, partition, offset)])
            except KafkaException as problem:
                # The partition was taken away in this very moment; its new owner will do the work again.
                if problem.args[0].code() != KafkaError._STATE:
                    raise headrace_error(problem.args[0]) from None

    # -- transactions ------------------------------------------------------------------------------------------

    def _commit_transaction(self) -> None:
        """Results and offsets together, unless something handed out is still being worked on."""
        if self._transaction is None:
            return
        self._due = time.monotonic() + TRANSACTION_SECONDS
        self._note()
        if self._unfinished:
            return
        offsets = [TopicPartition(topic, number, offset) for (topic, number), offset in self._done.items()]
        try:
            self._transaction.commit(offsets, self._consumer.consumer_group_metadata())
            self._done.clear()
        except TransactionAborted:
            self._rewind()

    def _rewind(self) -> None:
        """What was rolled back is handed out again, for as long as its partitions are ours."""
        self._forget()
        self._done.clear()
        self._progress.clear()
        self._at_end.clear()
        try:
            for entry in self._consumer.committed(self._consumer.assignment(), timeout=METADATA_SECONDS):
                offset = entry.offset if entry.offset >= 0 else _logical(self._start)
                self._consumer.seek(TopicPartition(entry.topic, entry.partition, offset))
        except KafkaException as problem:
            # A partition that is being taken away can't be sought, and need not be.
            if problem.args[0].code() != KafkaError._STATE:
                raise headrace_error(problem.args[0]) from None

    @property
    def _unfinished(self) -> bool:
        """Something that was handed out is still being worked on."""
        if self._acks_itself:
            return self._working
        return any(entry.unfinished for entry in self._progress.values())

    # -- iteration ---------------------------------------------------------------------------------------------

    def __iter__(self) -> Iterator[Message]:
        accounts, clock = self._accounts, time.monotonic
        any_order = accounts and not self._acks_itself
        while True:
            self._working = False  # since the next one is asked for
            if accounts and clock() > self._due:
                self._settle()
            if self._next >= len(self._batch) and not self._find():
                return
            message = self._batch[self._next]
            self._next += 1
            self._working = True
            if any_order:
                self._track(message)
            yield message

    def __next__(self) -> Message:
        for message in self:
            return message
        raise StopIteration

    def _find(self) -> bool:
        """Until there is something to hand out. False: nothing more will come."""
        while self._next >= len(self._batch) and not self._closed:
            if not self._fill():
                self.close()
        return not self._closed

    def _track(self, message: Message) -> None:
        """It may be acknowledged in any order."""
        progress = self._progress.get(message.place)
        if progress is None:
            progress = self._progress[message.place] = Progress()
        progress.handed_out(message.offset)

    def __aiter__(self) -> AsyncIterator[Message]:
        return self

    async def __anext__(self) -> Message:
        self._working = False
        if self._accounts and time.monotonic() > self._due:
            if self._transaction is None:
                self._settle()
            else:
                await self._in_thread(self._settle)
        while not self._closed:
            if self._next < len(self._batch):
                message = self._batch[self._next]
                self._next += 1
                self._working = True
                if self._accounts and not self._acks_itself:
                    self._track(message)
                return message
            if not await self._in_thread(self._fill):
                await self.aclose()
        raise StopAsyncIteration

    async def _in_thread(self, work: Any) -> Any:
        """librdkafka blocks. A cancelled wait loses nothing: what the thread finds stays in the buffer."""
        if self._pool is None:
            self._pool = ThreadPoolExecutor(1, thread_name_prefix="headrace-subscription")
        return await asyncio.get_running_loop().run_in_executor(self._pool, work)

    # -- the end -----------------------------------------------------------------------------------------------

    def abandon(self) -> None:
        """The work failed: what was published for it is rolled back, and what was read will be read again."""
        if self._transaction is not None and not self._closed:
            self._forget()
            self._done.clear()
            self._transaction.abort()

    def close(self) -> None:
        """Commits what is finished and leaves the group. The message being worked on stays unfinished.

        A transaction can't be committed in part: with something unfinished in it, it is rolled back.
        """
        if not self._closed:
            self._closed = True
            if self._pool is not None:
                self._pool.shutdown(wait=True)
            try:
                if self._transaction is not None:
                    self._commit_transaction()
                    self._transaction.abort()
                self._store()
            finally:
                self._consumer.close()
                self._forget()

    def _forget(self) -> None:
        self._batch, self._next, self._noted = [], 0, 0

    async def aclose(self) -> None:
        if not self._closed:
            await asyncio.get_running_loop().run_in_executor(None, self.close)

    def __enter__(self) -> Subscription:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            self.abandon()
        self.close()

    async def __aenter__(self) -> Subscription:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if kind is not None:
            await self._in_thread(self.abandon)
        await self.aclose()


def _not_there(error: KafkaError) -> bool:
    """Not there, or so new that it has no leader yet."""
    return error.code() in (
        KafkaError.UNKNOWN_TOPIC_OR_PART,
        KafkaError._UNKNOWN_TOPIC,
        KafkaError.LEADER_NOT_AVAILABLE,
    )


def _logical(start: Position) -> int:
    """The offset librdkafka knows this position by; for SINCE it is the time, which is then looked up."""
    if start.anchor is Anchor.START:
        return int(OFFSET_BEGINNING)
    if start.anchor is Anchor.END:
        return int(OFFSET_END)
    if start.anchor is Anchor.LAST:
        return _OFFSET_TAIL_BASE - start.value
    return start.value
