"""Adapter: `write.format("headrace")` and `writeStream.format("headrace")`.

*At least once* (the default): an idempotent producer for each task; a task that is tried again writes again.

*Exactly once* (`delivery=exactly-once`): each task writes in a transaction together with the note that this task of this
batch is done. A replayed batch finds the note and writes nothing. What a reader sees appears task by task, not batch by
batch. A task has to get the same rows again, which Headrace's source guarantees; keep the number of shuffle partitions.
"""

from __future__ import annotations

import contextlib
import time
import uuid
from collections.abc import Iterator
from dataclasses import dataclass
from typing import Any, NamedTuple

import pyarrow as pa
from pyspark import TaskContext
from pyspark.sql.datasource import DataSourceArrowWriter, WriterCommitMessage
from pyspark.sql.types import StructType

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.records.batch import read_header
from headrace.spark.columns.encode import ProducerStamp, encode_batches
from headrace.spark.connection import ClusterAccess
from headrace.spark.fetching import shared_client
from headrace.spark.ledger import enter, ledger_partition, read
from headrace.spark.options import OptionError, SinkOptions
from headrace.spark.producer import Producer, idempotent_producer
from headrace.spark.reader import explained
from headrace.spark.row_batches import batches_of
from headrace.spark.sink_columns import PartitionRows, SinkBatch, check_sink_schema, partition_rows
from headrace.spark.sync_client import SyncClient, pause
from headrace.spark.transactions import SinkTransaction
from headrace.spark.versions import WRITES_ROWS, StreamWriterBase
from headrace.spark.weave import weave
from headrace.spark.worker_memory import settle

CONTROL_TOPIC = "_headrace_sinks"
"""Holds no records. Until 0.9 the offsets that groups committed for its partitions said which batch each task had finished; such
notes are still read."""

_GATHER_BYTES = 4 << 20
_CLAIMS_AT_MOST = 64


@dataclass
class Written(WriterCommitMessage):
    """What a task tells the driver."""

    records: int = 0
    bytes: int = 0
    skipped: bool = False


class TaskWriter:
    """Turns Arrow batches into record batches and sends them, gathering small ones."""

    def __init__(
        self,
        client: SyncClient,
        options: SinkOptions,
        producer: Producer,
        transaction: SinkTransaction | None,
        seed: int,
    ) -> None:
        self._client = client
        self._options = options
        self._producer = producer
        self._transaction = transaction
        self._turn = seed
        self._records = self._bytes = 0
        self._started = time.monotonic()

    def write(self, batches: Iterator[pa.RecordBatch]) -> Written:
        """Hands everything to the producer; the last batches may still be on the way when this returns."""
        waiting: list[pa.RecordBatch] = []
        size = 0
        for batch in batches:
            if not batch.num_rows:
                continue
            waiting.append(batch)
            size += batch.nbytes
            if size >= _GATHER_BYTES:
                self._send(waiting)
                waiting, size = [], 0
        if waiting:
            self._send(waiting)
        return Written(self._records, self._bytes)

    def _send(self, batches: list[pa.RecordBatch]) -> None:
        rows = (
            batches[0]
            if len(batches) == 1
            else pa.Table.from_batches(batches).combine_chunks().to_batches()[0]
        )
        gathered = SinkBatch(rows, self._options.topic)
        now_ms = int(time.time() * 1000)
        for topic in gathered.topics():
            leaders = self._client.topic(topic).leaders
            self._turn += 1
            parts = list(partition_rows(gathered.of_topic(topic), topic, len(leaders), self._turn, now_ms))
            if self._transaction is not None:
                self._transaction.add_partitions(part.tp for part in parts)
            for part in parts:
                self._send_partition(part)
        self._records += rows.num_rows
        self._slow_down()

    def _send_partition(self, part: PartitionRows) -> None:
        sequence = self._producer.next_sequence(part.tp, len(part.timestamps))
        stamp = ProducerStamp(*self._producer.identity, sequence, self._transaction is not None)
        for batch in encode_batches(
            part.keys,
            part.values,
            part.timestamps,
            part.headers,
            max_batch_bytes=self._options.max_batch_bytes,
            codec=self._options.compression,
            producer=stamp,
            weave=weave,
        ):
            self._bytes += len(batch)
            if len(batch) > self._options.max_batch_bytes and read_header(batch).record_count == 1:
                self._check_size(part, len(batch))
            self._producer.send(part.tp, batch)

    def _check_size(self, part: PartitionRows, size: int) -> None:
        """A record larger than a batch should be: the topic may still take it, and says so itself when it does not."""
        if size > 100 << 20:
            raise HeadraceError(
                ErrorKind.MESSAGE_TOO_LARGE,
                f"a record of {int(part.sizes.max())} bytes for {part.tp} is more than one request holds",
            )

    def _slow_down(self) -> None:
        rate = self._options.max_records_per_second
        if rate is not None:
            ahead = self._records / rate - (time.monotonic() - self._started)
            if ahead > 0:
                pause(ahead)


def write_task(
    options: SinkOptions, batches: Iterator[pa.RecordBatch], sink_id: str, batch_id: int
) -> Written:
    """What one task does."""
    settle()
    context = TaskContext.get()
    task = context.partitionId() if context is not None else 0
    client = shared_client(options.access)
    try:
        if options.exactly_once:
            return _write_once(client, options, batches, sink_id, batch_id, task)
        return _write_again_if_tried_again(client, options, batches, task)
    except HeadraceError as problem:
        raise explained(problem) from problem


class Claim(NamedTuple):
    """A transactional id that this process holds, as far as it knows, and the batch it has not done yet."""

    producer: Producer
    next_batch: int


_producers: dict[ClusterAccess, Producer] = {}
_claims: dict[tuple[ClusterAccess, str], Claim] = {}
"""Python workers live through many micro-batches, and every claim costs a few synced writes. Only what ended well is kept."""


def _write_again_if_tried_again(
    client: SyncClient, options: SinkOptions, batches: Iterator[pa.RecordBatch], task: int
) -> Written:
    producer = _producers.pop(options.access, None) or idempotent_producer(client)
    try:
        written = TaskWriter(client, options, producer, None, task).write(batches)
        producer.flush()
    except BaseException:
        producer.abandon()
        raise
    _producers[options.access] = producer
    return written


def _write_once(
    client: SyncClient,
    options: SinkOptions,
    batches: Iterator[pa.RecordBatch],
    sink_id: str,
    batch_id: int,
    task: int,
) -> Written:
    group = f"headrace-sink-{sink_id}"
    with _begin(client, options, group, batch_id, task) as transaction:
        if transaction is None:
            for _ in batches:
                pass
            return Written(skipped=True)
        written = TaskWriter(client, options, transaction.producer, transaction, task).write(batches)
        # While the last batches are on their way; the commit waits for them.
        enter(transaction, _note(group, task), {"batches": batch_id + 1})
        transaction.commit()
    if len(_claims) >= _CLAIMS_AT_MOST:
        _claims.clear()
    _claims[options.access, f"{group}-{task}"] = Claim(transaction.producer, batch_id + 1)
    return written


@contextlib.contextmanager
def _begin(
    client: SyncClient, options: SinkOptions, group: str, batch_id: int, task: int
) -> Iterator[SinkTransaction | None]:
    """The transaction of this task and batch; None: it is done already."""
    name = f"{group}-{task}"
    timeout_ms = options.transaction_timeout_ms
    known = _claims.pop((options.access, name), None)
    if known is not None and known.next_batch <= batch_id:
        transaction = SinkTransaction(client, name, timeout_ms, known.producer)
        try:
            # Whoever claimed the id after us fenced us, and this says so. Else what we noted last is still the last.
            transaction.add_partitions([ledger_partition(_note(group, task))])
        except HeadraceError:
            pass
        else:
            with transaction:
                yield transaction
            return
    with SinkTransaction(client, name, timeout_ms) as transaction:
        # After the claim: from here on nobody else can commit under this id, so the answer stays true.
        done = _batches_done(client, group, task)
        yield None if done > batch_id else transaction


def _note(group: str, task: int) -> str:
    return f"{group}/{task}"


def _batches_done(client: SyncClient, group: str, task: int) -> int:
    entry = read(client, _note(group, task))
    if entry is not None:
        return int(entry["batches"])
    known = client.topics([CONTROL_TOPIC])
    if CONTROL_TOPIC not in known or task not in known[CONTROL_TOPIC].leaders:
        return 0
    old = TopicPartition(CONTROL_TOPIC, task)
    done = client.committed_offsets(group, [old]).get(old)
    return done.offset if done is not None else 0


class HeadraceWriter(DataSourceArrowWriter):
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink_schema(schema, options.topic)
        self._options = options
        self._sink_id = options.sink_id or uuid.uuid4().hex

    def write(self, iterator: Iterator[pa.RecordBatch]) -> WriterCommitMessage:
        return write_task(self._options, iterator, self._sink_id, self._options.batch_id)

    def commit(self, messages: list[WriterCommitMessage | None]) -> None:
        """The tasks have committed already."""

    def abort(self, messages: list[WriterCommitMessage | None]) -> None:
        """What tasks have written stays: a log takes nothing back. Their open transactions are aborted by themselves."""


class HeadraceStreamWriter(StreamWriterBase):  # type: ignore[misc]
    def __init__(self, options: SinkOptions, schema: StructType) -> None:
        check_sink_schema(schema, options.topic)
        self._options = options
        self._schema = schema

    def write(self, iterator: Iterator[Any]) -> WriterCommitMessage:
        context = TaskContext.get()
        query = context.getLocalProperty("sql.streaming.queryId") if context is not None else None
        batch = context.getLocalProperty("streaming.sql.batchId") if context is not None else None
        sink_id = self._options.sink_id or query
        if self._options.exactly_once and (batch is None or sink_id is None):
            raise OptionError("Spark does not tell the query and the batch; exactly-once needs both")
        batches = batches_of(iterator, self._schema) if WRITES_ROWS else iterator
        return write_task(self._options, batches, sink_id or "", int(batch or 0))

    def commit(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """The tasks have committed already."""

    def abort(self, messages: list[WriterCommitMessage | None], batchId: int) -> None:
        """What is committed is noted, so that the replay of this batch skips it."""
