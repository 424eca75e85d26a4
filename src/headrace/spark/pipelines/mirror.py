"""Pipeline: topics of one cluster to the same topics of another, batch for batch, exactly once.

A task copies one partition: it claims the partition's transactional id on the target (which fences whoever held it),
reads there how far the mirror is, fetches from the source from that point, and stores batches and the new position in one
transaction. The truth is on the target alone, so a task may run twice or die anywhere. Batches are not opened: only the
producer's stamp in the header is replaced. Offsets of the target differ by the transaction markers in between.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from headrace.core.ids import TopicPartition
from headrace.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from headrace.records.batch import TRANSACTIONAL_BIT, BatchHeader, pack_header, seal
from headrace.spark.columns.decode import decode_columns, header_columns
from headrace.spark.columns.encode import BytesColumn, ProducerStamp, encode_batches, encode_headers
from headrace.spark.columns.ragged import Ragged
from headrace.spark.connection import Access
from headrace.spark.fetching import Piece, fetch_range, shared_client
from headrace.spark.fused import FusedTask, run_fused
from headrace.spark.options import source_options
from headrace.spark.pipelines.definition import Mirror
from headrace.spark.pipelines.rounds import Round, commit_progress
from headrace.spark.plan import OffsetRange, admit
from headrace.spark.positions import find_partitions, latest, resolve
from headrace.spark.producer import Producer
from headrace.spark.sync_client import READ_COMMITTED, CommittedOffset, SyncClient
from headrace.spark.transactions import Transaction
from headrace.spark.weave import weave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRANSACTION_BYTES = 64 << 20
_TIMEOUT_MS = 300_000
_BATCH_BYTES = MIB


@dataclass
class MirrorTask(FusedTask):
    name: str
    source: Access
    target: Access
    wanted: OffsetRange
    """From where the mirror starts if the target has no position yet."""

    def run(self) -> dict[str, Any]:
        source, target = shared_client(self.source), shared_client(self.target)
        tp, group = self.wanted.tp, mirror_group(self.name)
        copied = size = 0
        position = self.wanted.start
        producer: Producer | None = None
        while True:
            with Transaction(target, f"{group}-{tp}", _TIMEOUT_MS, producer) as transaction:
                if producer is None:
                    # Behind our claim of the id nobody else moves it: from here on our own commits say where it is.
                    done = target.committed_offsets(group, [tp]).get(tp)
                    position = done.offset if done is not None else self.wanted.start
                    producer = transaction.producer
                if position >= self.wanted.end:
                    break
                transaction.add_partitions([tp])
                copy = _Copy(transaction, tp, position)
                copy.fetch(source, self.wanted._replace(start=position))
                # Up to the end when everything is copied: offsets without records (markers) are passed over too.
                position = copy.position if copy.full else self.wanted.end
                note = CommittedOffset(position, "headrace-mirror: copied up to here")
                transaction.note_offsets(group, {tp: note})
                transaction.commit()
                copied, size = copied + copy.records, size + copy.bytes
        return {
            "records": copied,
            "bytes": size,
            "topic": tp.topic,
            "partition": tp.partition,
            "end": position,
        }


class _Copy:
    """What goes into one transaction."""

    def __init__(self, transaction: Transaction, tp: TopicPartition, position: int) -> None:
        self._producer = transaction.producer
        self._tp = tp
        self.position = position
        self.records = self.bytes = 0
        self.full = False

    def fetch(self, source: SyncClient, wanted: OffsetRange) -> None:
        pieces = fetch_range(
            source, wanted, isolation=READ_COMMITTED, fail_on_data_loss=False, max_bytes=4 * MIB
        )
        for piece in pieces:
            for position, header in piece.batches:
                cut = header.base_offset < max(wanted.start, piece.first) or header.next_offset > wanted.end
                if cut or not _can_go_as_is(header):
                    self._rebuild(piece, position, header, wanted)
                else:
                    self._restamp(piece, position, header)
                self.position = min(header.next_offset, wanted.end)
            if self.bytes >= _TRANSACTION_BYTES and self.position < wanted.end:
                self.full = True
                pieces.close()  # type: ignore[attr-defined]
                return

    def _restamp(self, piece: Piece, position: int, header: BatchHeader) -> None:
        batch = bytearray(piece.buffer[position : position + header.size])
        identity = self._producer.identity
        stamped = header._replace(
            base_offset=0,
            leader_epoch=-1,
            attributes=header.attributes | TRANSACTIONAL_BIT,
            producer_id=identity.producer_id,
            producer_epoch=identity.epoch,
            base_sequence=self._producer.next_sequence(self._tp, header.record_count),
        )
        pack_header(batch, 0, stamped)
        seal(batch, 0, len(batch))
        self._send(batch, header.record_count)

    def _rebuild(self, piece: Piece, position: int, header: BatchHeader, wanted: OffsetRange) -> None:
        """A batch with holes (compaction), with the broker's times, or with records outside of the range."""
        columns = decode_columns(piece.buffer, [(position, header)], max_bytes=MAX_DECOMPRESSED_BYTES)
        columns = columns.between_offsets(max(wanted.start, piece.first), wanted.end)
        count = columns.offsets.size
        if not count:
            return
        headers = header_columns(columns)
        stamp = ProducerStamp(
            *self._producer.identity, self._producer.next_sequence(self._tp, count), transactional=True
        )
        for batch in encode_batches(
            BytesColumn(_gather(columns.data, columns.key_starts, columns.key_ends), columns.key_nulls),
            BytesColumn(_gather(columns.data, columns.value_starts, columns.value_ends), columns.value_nulls),
            columns.timestamps,
            encode_headers(
                headers.list_offsets,
                BytesColumn(_gather(columns.data, headers.key_starts, headers.key_ends)),
                BytesColumn(
                    _gather(columns.data, headers.value_starts, headers.value_ends), headers.value_nulls
                ),
            ),
            max_batch_bytes=_BATCH_BYTES,
            codec=header.codec,
            producer=stamp,
            weave=weave,
        ):
            self._send(batch, 0)
        self.records += count

    def _send(self, batch: bytearray, records: int) -> None:
        self._producer.send(self._tp, batch)
        self.records += records
        self.bytes += len(batch)


def _can_go_as_is(header: BatchHeader) -> bool:
    return header.last_offset_delta + 1 == header.record_count and not header.is_log_append_time


def _gather(data: Any, starts: Any, ends: Any) -> Ragged:
    """Spans of a buffer as a column of their own."""
    import numpy as np

    lengths = ends - starts
    offsets = np.zeros(lengths.size + 1, dtype=np.int64)
    np.cumsum(lengths, out=offsets[1:])
    places = np.repeat(starts - offsets[:-1], lengths) + np.arange(int(offsets[-1]))
    return Ragged(data[places], offsets)


def mirror_group(name: str) -> str:
    return f"headrace-mirror-{name}"


class MirrorPipeline:
    def __init__(self, definition: Mirror, spark: SparkSession) -> None:
        self._definition = definition
        self._spark = spark
        self._options = source_options(
            {
                "bootstrap": definition.bootstrap,
                "subscribe": ",".join(definition.topics),
                "startingOffsets": definition.starting,
            }
        )
        self._source = SyncClient(self._options.access)
        self._target = SyncClient(Access(definition.target_bootstrap))
        self._first: dict[TopicPartition, int] = {}

    @property
    def facts(self) -> dict[str, Any]:
        return {"topics": self._definition.topics, "target": self._definition.target_bootstrap}

    def round(self) -> Round:
        partitions = find_partitions(self._source, self._options)
        self._prepare_target(partitions)
        group = mirror_group(self._definition.name)
        done = {tp: entry.offset for tp, entry in self._target.committed_offsets(group, partitions).items()}
        start = self._start(partitions, done)
        ends = latest(self._source, partitions)
        target = admit(start, ends, self._definition.max_records_per_round)
        tasks = [
            MirrorTask(
                self._definition.name,
                self._source.access,
                self._target.access,
                OffsetRange(*tp, start[tp], target[tp]),
            )
            for tp in partitions
            if target[tp] > start[tp]
        ]
        results = run_fused(self._spark, tasks)
        for result in results:
            start[TopicPartition(result["topic"], result["partition"])] = result["end"]
        commit_progress(self._source, group, start)
        return Round(
            records=sum(result["records"] for result in results),
            bytes=sum(result["bytes"] for result in results),
            lag=sum(max(0, ends[tp] - start[tp]) for tp in ends),
        )

    def _start(
        self, partitions: list[TopicPartition], done: dict[TopicPartition, int]
    ) -> dict[TopicPartition, int]:
        """The target's position; else what the definition says, decided once in a run and written down by the first commit."""
        new = [tp for tp in partitions if tp not in done and tp not in self._first]
        if new:
            self._first.update(resolve(self._source, new, self._options.starting))
        return {tp: done.get(tp, self._first.get(tp, 0)) for tp in partitions}

    def _prepare_target(self, partitions: list[TopicPartition]) -> None:
        wanted: dict[str, int] = {}
        for tp in partitions:
            wanted[tp.topic] = max(wanted.get(tp.topic, 0), tp.partition + 1)
        known = self._target.topics(wanted)
        for topic, count in wanted.items():
            if topic not in known:
                self._target.create_topic(topic, count)
            elif len(known[topic].leaders) < count:
                self._target.grow_topic(topic, count)

    def upkeep(self) -> int:
        return 0

    def close(self) -> None:
        self._source.close()
        self._target.close()
