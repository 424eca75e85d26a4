"""Pipeline: topics of one cluster to the same topics of another, batch for batch, exactly once.

A task copies one partition: it claims the partition's transactional id on the target (which fences whoever held it),
reads there how far the mirror is (`ledger`), fetches from the source from that point, and stores batches and the new position
in one transaction. The truth is on the target alone, so a task may run twice or die anywhere. Batches are not opened: only the
producer's stamp in the header is replaced. Offsets of the target differ by the transaction markers in between.
"""

from __future__ import annotations

from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

from headrace.core.ids import TopicPartition
from headrace.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from headrace.records.batch import TRANSACTIONAL_BIT, BatchHeader, pack_header, seal
from headrace.spark.columns.decode import decode_columns, header_columns
from headrace.spark.columns.encode import BytesColumn, ProducerStamp, encode_batches, encode_headers
from headrace.spark.columns.ragged import Ragged
from headrace.spark.connection import ClusterAccess
from headrace.spark.fetching import Piece, fetch_range, shared_client
from headrace.spark.fused import FusedTask, run_fused
from headrace.spark.ledger import enter, read
from headrace.spark.options import source_options
from headrace.spark.pipelines.definition import Mirror
from headrace.spark.pipelines.rounds import Round, accepted, commit_progress
from headrace.spark.plan import OffsetRange, admit
from headrace.spark.positions import earliest, find_partitions, resolve
from headrace.spark.producer import Producer
from headrace.spark.stream_offsets import StreamOffset
from headrace.spark.sync_client import READ_COMMITTED, SyncClient
from headrace.spark.transactions import SinkTransaction
from headrace.spark.weave import weave

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_TRANSACTION_BYTES = 64 << 20
_TIMEOUT_MS = 300_000
_BATCH_BYTES = MIB


@dataclass
class MirrorTask(FusedTask):
    name: str
    source: ClusterAccess
    target: ClusterAccess
    wanted: OffsetRange
    """From where the mirror starts if the target has no position of this topic yet, or one that was given up."""
    on_loss: str = "fail"
    skipped: int = 0
    """Records that were gone before they were copied, so far."""

    def run(self) -> dict[str, Any]:
        source, target = shared_client(self.source), shared_client(self.target)
        tp, key = self.wanted.tp, mirror_key(self.name, self.wanted.tp)
        copied = size = 0
        position = self.wanted.start
        producer: Producer | None = None
        while True:
            with SinkTransaction(
                target, f"{mirror_group(self.name)}-{tp}", _TIMEOUT_MS, producer
            ) as transaction:
                if producer is None:
                    # Behind our claim of the id nobody else moves it: from here on our own commits say where it is.
                    entry = read(target, key)
                    if entry is not None and entry["topic_id"] == self.wanted.topic_id.hex():
                        position = max(position, entry["offset"])
                    producer = transaction.producer
                if position >= self.wanted.end:
                    break
                transaction.add_partitions([tp])
                copy = _Copy(transaction, tp, position)
                copy.fetch(source, self.wanted._replace(start=position), self.on_loss == "fail")
                # Up to the end when everything is copied: offsets without records (markers) are passed over too.
                position = copy.position if copy.full else self.wanted.end
                topic_id = self.wanted.topic_id.hex()
                enter(transaction, key, {"offset": position, "topic_id": topic_id, "skipped": self.skipped})
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

    def __init__(self, transaction: SinkTransaction, tp: TopicPartition, position: int) -> None:
        self._producer = transaction.producer
        self._tp = tp
        self.position = position
        self.records = self.bytes = 0
        self.full = False

    def fetch(self, source: SyncClient, wanted: OffsetRange, fail_on_data_loss: bool) -> None:
        pieces = fetch_range(
            source, wanted, isolation=READ_COMMITTED, fail_on_data_loss=fail_on_data_loss, max_bytes=4 * MIB
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


def mirror_key(name: str, tp: TopicPartition) -> str:
    return f"mirror/{name}/{tp}"


def _joined(known: StreamOffset, more: StreamOffset) -> StreamOffset:
    """Topics and partitions that came since, with what a life before may have noted of them."""
    return StreamOffset(
        {**more.offsets, **known.offsets},
        {**more.ids, **known.ids},
        known.begins,
        {**more.skipped, **known.skipped},
    )


class MirrorPipeline:
    def __init__(self, definition: Mirror, spark: SparkSession) -> None:
        self._definition = definition
        self._spark = spark
        self._options = source_options(
            {
                **definition.options,
                **(
                    {"subscribePattern": definition.pattern}
                    if definition.pattern
                    else {"subscribe": ",".join(definition.topics)}
                ),
                "startingOffsets": definition.starting,
                "onLoss": definition.on_loss,
            }
        )
        self._source = SyncClient(self._options.access)
        self._target = SyncClient(definition.target_login.access(definition.target_bootstrap))
        self._done: StreamOffset | None = None
        self._first: dict[TopicPartition, int] = {}

    @property
    def facts(self) -> dict[str, Any]:
        skipped = sum(self._done.skipped.values()) if self._done is not None else 0
        return {
            "topics": self._definition.topics or sorted(self._done.ids if self._done is not None else []),
            "target": self._definition.target_bootstrap,
            "skipped": skipped,
        }

    def round(self) -> Round:
        must_exist = self._definition.on_loss == "fail"
        partitions = [
            tp
            for tp in find_partitions(self._source, self._options, must_exist=must_exist)
            # A pattern does not mean our own books: those of the target are about the target.
            if not (self._definition.pattern and tp.topic.startswith("_headrace"))
        ]
        self._prepare_target(partitions)
        unknown = [tp for tp in partitions if self._done is None or tp not in self._done.offsets]
        if self._done is None:
            self._done = self._positions(partitions)
        elif unknown:
            self._done = _joined(self._done, self._positions(unknown))
        known = self._done
        start, ends = accepted(
            self._source, partitions, known, self._definition.on_loss, lambda new: self._begin(new, known)
        )
        target = admit(start.offsets, ends, self._definition.max_records_per_round)
        tasks = [
            MirrorTask(
                self._definition.name,
                self._source.access,
                self._target.access,
                OffsetRange(*tp, start.offsets[tp], target[tp], start.ids[tp.topic]),
                self._definition.on_loss,
                start.skipped.get(tp, 0),
            )
            for tp in partitions
            if target[tp] > start.offsets[tp]
        ]
        results = run_fused(self._spark, tasks)
        done = dict(start.offsets)
        for result in results:
            done[TopicPartition(result["topic"], result["partition"])] = result["end"]
        self._done = replace(start, offsets=done)
        commit_progress(self._source, mirror_group(self._definition.name), done)
        return Round(
            records=sum(result["records"] for result in results),
            bytes=sum(result["bytes"] for result in results),
            lag=sum(max(0, ends[tp] - done[tp]) for tp in ends),
        )

    def _positions(self, partitions: list[TopicPartition]) -> StreamOffset:
        """How far the target is: by its ledger, or by the group that mirrors committed to before there was one."""
        group = mirror_group(self._definition.name)
        found = {tp: read(self._target, mirror_key(self._definition.name, tp)) for tp in partitions}
        old = {tp: entry.offset for tp, entry in self._target.committed_offsets(group, partitions).items()}
        offsets = {tp: entry["offset"] if entry else old.get(tp) for tp, entry in found.items()}
        return StreamOffset(
            {tp: offset for tp, offset in offsets.items() if offset is not None},
            {tp.topic: bytes.fromhex(entry["topic_id"]) for tp, entry in found.items() if entry},
            skipped={tp: entry["skipped"] for tp, entry in found.items() if entry and entry["skipped"]},
        )

    def _begin(self, new: list[TopicPartition], known: StreamOffset) -> dict[TopicPartition, int]:
        """What the definition says, decided once in a run, for topics that were never met; else from the beginning."""
        unmet = [tp for tp in new if tp.topic not in known.ids and tp not in self._first]
        self._first.update(resolve(self._source, unmet, self._options.starting) if unmet else {})
        met = [tp for tp in new if tp.topic in known.ids]
        return {
            **{tp: self._first[tp] for tp in new if tp not in met},
            **(earliest(self._source, met) if met else {}),
        }

    def _prepare_target(self, partitions: list[TopicPartition]) -> None:
        wanted: dict[str, int] = {}
        for tp in partitions:
            wanted[tp.topic] = max(wanted.get(tp.topic, 0), tp.partition + 1)
        known = self._target.topics(wanted)
        for topic, count in wanted.items():
            if topic not in known:
                # As the source has it set: how long, how large, compacted or not. Later changes are the target's own business.
                self._target.create_topic(topic, count, self._source.topic_configs(topic))
            elif len(known[topic].leaders) < count:
                self._target.grow_topic(topic, count)

    def upkeep(self) -> int:
        return 0

    def close(self) -> None:
        self._source.close()
        self._target.close()
