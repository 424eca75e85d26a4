"""Adapter: a Spark stream as a worker of a queue (S4): messages are acknowledged when the sink has committed them.

A micro-batch is a set of messages that the queue has handed to us. Which ones they are, and their receipts, is the
offset that Spark writes to its checkpoint before it works on them; their bytes are read from the log by the tasks, so a
replayed batch is the same batch. `latestOffset(start)` is asked only when `start` is done: then its messages are acknowledged.

While the query lives a thread prolongs what it holds. After a longer death the queue hands messages out again; those that
the checkpoint knows as done are *owed*: they are acknowledged as soon as they come by, and Spark does not see them twice.

Invariant: with an exactly-once sink each message reaches it once, as long as the checkpoint is kept; none is acknowledged
before the batch that holds it is committed.
"""

from __future__ import annotations

import itertools
import logging
import threading
from collections.abc import Iterable, Iterator, Sequence
from typing import Any, NamedTuple

import numpy as np
import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.client.queue_client import QueueClient, Received
from headrace.core.errors import HeadraceError
from headrace.core.ids import TopicPartition
from headrace.core.limits import MAX_DECOMPRESSED_BYTES
from headrace.records.filters import Filter, FilterInput, compile_filter
from headrace.spark.arrow import ColumnLayout, to_arrow
from headrace.spark.columns.decode import RecordColumns, iter_columns
from headrace.spark.fetching import shared_client
from headrace.spark.options import QueueOptions, SourceOptions
from headrace.spark.plan import OffsetRange
from headrace.spark.reader import explained, range_reader, value_decoder
from headrace.spark.schema import chosen_columns
from headrace.spark.versions import ReadLimit, ReadMaxRows, SupportsTriggerAvailableNow

log = logging.getLogger(__name__)

_RECEIVE_AT_ONCE = 1000
_POLL_MS = 300
_FAR_APART = 10_000
"""Messages of a partition with so many others between them are fetched apart."""

Place = tuple[TopicPartition, int]


class TakenMessage(NamedTuple):
    """One message of a micro-batch, as the checkpoint holds it."""

    topic: str
    partition: int
    offset: int
    receipt: str
    id: str

    @property
    def place(self) -> Place:
        return TopicPartition(self.topic, self.partition), self.offset


class Hand(NamedTuple):
    """An offset of this source: the batch with this number is these messages; those before it are done."""

    number: int = 0
    taken: tuple[TakenMessage, ...] = ()
    owed: tuple[Place, ...] = ()
    """Done, but not acknowledged yet: the queue may hand them out again."""

    def to_json(self) -> dict[str, Any]:
        owed = [[*tp, offset] for tp, offset in self.owed]
        return {"number": self.number, "taken": [list(one) for one in self.taken], "owed": owed}

    @classmethod
    def from_json(cls, given: dict[str, Any]) -> Hand:
        owed = tuple((TopicPartition(topic, number), offset) for topic, number, offset in given["owed"])
        return cls(given["number"], tuple(TakenMessage(*one) for one in given["taken"]), owed)


class QueueTask(InputPartition):
    def __init__(self, wanted: Sequence[tuple[OffsetRange, tuple[int, ...]]]) -> None:
        super().__init__(None)
        self.wanted = tuple(wanted)


class Leases:
    """What is handed to us is prolonged until it is settled. The thread ends with the process."""

    def __init__(self, client: QueueClient, visibility_ms: int) -> None:
        self._client = client
        self._visibility_ms = visibility_ms
        self._receipts: dict[Place, str] = {}
        self._lock = threading.Lock()
        self._ended = threading.Event()
        threading.Thread(target=self._prolong, name="queue leases", daemon=True).start()

    def hold(self, place: Place, receipt: str) -> None:
        with self._lock:
            self._receipts[place] = receipt

    def let_go(self, place: Place) -> None:
        with self._lock:
            self._receipts.pop(place, None)

    def end(self) -> None:
        self._ended.set()

    def _prolong(self) -> None:
        while not self._ended.wait(self._visibility_ms / 3000):
            with self._lock:
                held = list(self._receipts.items())
            try:
                refused = self._client.settle(
                    extend=[receipt for _, receipt in held], visibility_ms=self._visibility_ms
                )
            except HeadraceError as problem:
                log.warning("leases are not prolonged now: %s", problem.detail)
                continue
            with self._lock:
                for place, receipt in held:
                    # Unless it was handed to us again meanwhile.
                    if receipt in refused and self._receipts.get(place) == receipt:
                        del self._receipts[place]


class QueueStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        assert options.queue is not None
        self._options = options
        self._queue: QueueOptions = options.queue
        self._schema = schema
        self._client: QueueClient | None = None
        self._leases: Leases | None = None
        self._wanted: Filter | None = None
        self._owed: set[Place] = set()
        self._settled = -1
        self._given: tuple[int, Hand] | None = None
        """The number of the batch before, and what was given for it: Spark may ask again."""
        chosen_columns(schema, options)

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None, "_leases": None, "_wanted": None}

    @property
    def _link(self) -> QueueClient:
        if self._client is None:
            queue = self._queue
            self._client = QueueClient(queue.url, queue.name, queue.token)
            self._leases = Leases(QueueClient(queue.url, queue.name, queue.token), queue.visibility_ms)
            self._wanted = compile_filter(queue.filter) if queue.filter else None
        return self._client

    # -- in the driver -------------------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        return Hand().to_json()

    def getDefaultReadLimit(self) -> ReadLimit:
        return ReadMaxRows(self._queue.max_messages)

    def prepareForTriggerAvailableNow(self) -> None:
        """Nothing to prepare: a run ends when the queue has nothing to hand out for a moment. Not at once: what a
        transaction has just committed is taken in by the queue a few milliseconds later."""

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        done = Hand.from_json(start)
        if self._given is not None and self._given[0] == done.number:
            return self._given[1].to_json()
        try:
            self._settle(done)
            taken = self._take(limit.max_rows if isinstance(limit, ReadMaxRows) else self._queue.max_messages)
        except HeadraceError as problem:
            raise explained(problem) from problem
        if not taken:
            return start
        hand = Hand(done.number + 1, tuple(taken), tuple(sorted(self._owed)))
        self._given = (done.number, hand)
        return hand.to_json()

    def _settle(self, done: Hand) -> None:
        """The checkpoint has this batch as committed: its messages are done."""
        if self._settled == done.number:
            return
        self._owed |= set(done.owed)
        link, leases = self._link, self._leases
        assert leases is not None
        refused = link.settle(ack=[one.receipt for one in done.taken])
        for one in done.taken:
            if one.receipt in refused and not link.is_done(one.id):
                self._owed.add(one.place)
            leases.let_go(one.place)
        self._settled = done.number

    def _take(self, count: int) -> list[TakenMessage]:
        taken: list[TakenMessage] = []
        while len(taken) < count:
            wait_ms = _POLL_MS if not taken else 0
            found = self._link.receive(
                min(count - len(taken), _RECEIVE_AT_ONCE), self._queue.visibility_ms, wait_ms
            )
            if not found:
                break
            taken += [_taken(message) for message in self._fit(found)]
        return taken

    def _fit(self, found: Sequence[Received]) -> list[Received]:
        """Those that are for Spark: not done already, wanted, and of the format that was promised."""
        link, leases = self._link, self._leases
        assert leases is not None
        owed: dict[str, Place] = {}
        poison: list[str] = []
        fit: list[Received] = []
        for message, is_sound in zip(found, self._sound(found), strict=True):
            place = (message.tp, message.offset)
            if place in self._owed:
                owed[message.receipt] = place
            elif self._wanted is not None and not self._wanted.matches(_filter_input(message)):
                # Kept from view while the query runs, so that it is not handed out over and over.
                leases.hold(place, message.receipt)
            elif not is_sound:
                poison.append(message.receipt)
            else:
                leases.hold(place, message.receipt)
                fit.append(message)
        refused = link.settle(ack=list(owed), give_back=poison)
        self._owed -= {place for receipt, place in owed.items() if receipt not in refused}
        return fit

    def _sound(self, found: Sequence[Received]) -> Iterable[bool]:
        """A value that does not parse is poison: it goes back, and to the dead letters when that is often enough."""
        if self._options.value_schema is None:
            return itertools.repeat(True, len(found))
        decoder = value_decoder(self._options, self._schema)
        raw = pa.array([message.value for message in found], pa.binary())
        return decoder.is_sound(raw)

    def commit(self, end: dict[str, Any]) -> None:
        """Too late and not always (trap 5): `latestOffset` settles."""

    def stop(self) -> None:
        if self._leases is not None:
            self._leases.end()
        if self._client is not None:
            self._client.close()

    # -- tasks ---------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        pieces = read_plan(Hand.from_json(end).taken)
        tasks = max(1, min(self._options.min_partitions, len(pieces)))
        return [QueueTask(pieces[number::tasks]) for number in range(tasks)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, QueueTask)
        reader = range_reader(self._options, self._schema)
        client = shared_client(self._options.access)
        try:
            for wanted, offsets in partition.wanted:
                for piece in reader.pieces(client, wanted):
                    for columns in iter_columns(
                        piece.buffer, piece.batches, max_bytes=MAX_DECOMPRESSED_BYTES * 4
                    ):
                        yield from _rows_at(columns, offsets, wanted, reader.layout)
        except HeadraceError as problem:
            raise explained(problem) from problem


def read_plan(taken: Iterable[TakenMessage]) -> list[tuple[OffsetRange, tuple[int, ...]]]:
    """What to fetch for these messages, and which offsets of it are theirs. In the order of the log, whatever came first."""
    pieces: list[tuple[OffsetRange, tuple[int, ...]]] = []
    places = sorted({one.place for one in taken})
    for tp, group in itertools.groupby(places, key=lambda place: place[0]):
        offsets = [offset for _, offset in group]
        first = 0
        for index in range(1, len(offsets) + 1):
            if index == len(offsets) or offsets[index] - offsets[index - 1] > _FAR_APART:
                near = tuple(offsets[first:index])
                pieces.append((OffsetRange(tp.topic, tp.partition, near[0], near[-1] + 1), near))
                first = index
    return pieces


def _rows_at(
    columns: RecordColumns, offsets: tuple[int, ...], wanted: OffsetRange, layout: ColumnLayout
) -> Iterator[pa.RecordBatch]:
    chosen = np.flatnonzero(np.isin(columns.offsets, offsets))
    if chosen.size:
        ours = RecordColumns._make((columns.data, *(column[chosen] for column in columns[1:])))
        yield to_arrow(ours, wanted, layout)


def _taken(message: Received) -> TakenMessage:
    return TakenMessage(*message.tp, message.offset, message.receipt, message.id)


def _filter_input(message: Received) -> FilterInput:
    return FilterInput(
        message.key,
        message.value,
        message.headers,
        message.timestamp,
        message.offset,
        message.tp.topic,
        message.tp.partition,
    )
