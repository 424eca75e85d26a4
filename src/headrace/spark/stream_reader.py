"""Adapter: streaming reads for Spark: the checkpoint says what is done, a consumer group shows it.

Three traps of the API are closed here (spark.md 1.3):

* `initialOffset` is asked again after a restart while batch 0 is not committed. "latest" or a time would then mean
  something else, and rows would be lost. So the first answer is *pinned*: committed to the group with the note PINNED.
  The pin goes when Spark asks for a batch behind it, which it does only when batch 0 is in the checkpoint.
* `commit` lags one batch and is not called for the last one of `availableNow`. But `latestOffset(start)` is, and
  `start` is exactly what the checkpoint holds as done: that is what goes to the group, so lag is 0 after a run.
* `stop` is never called, so nothing here needs it.

A trigger of a quiet stream costs one request, for the ends of partitions: metadata is a second old at most, and so is what
the group shows; what the progress report wants to know was just found out.
"""

from __future__ import annotations

import hashlib
import time
from collections.abc import Iterator, Mapping
from dataclasses import replace
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceStreamReader, InputPartition
from pyspark.sql.types import StructType

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.fetching import LOSS_HINT
from headrace.spark.options import SourceOptions
from headrace.spark.plan import admit, pack, split, stream_tasks, to_json
from headrace.spark.positions import earliest, find_partitions, latest, records_in, resolve, topic_ids
from headrace.spark.reader import ReadTask, explained, range_reader
from headrace.spark.schema import chosen_columns
from headrace.spark.stream_offsets import Offsets, Sight, StreamOffset, losses, ranges, settled
from headrace.spark.sync_client import GroupOffset, SyncClient
from headrace.spark.versions import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxBytes,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
    need_limits,
)
from headrace.spark.worker_memory import settle

PINNED = "headrace-spark: where the query starts"
PROGRESS = "headrace-spark: progress"

_FRESH_SECONDS = 1.0


class HeadraceStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        self._options = options
        self._schema = schema
        self._client: SyncClient | None = None
        self._initial: StreamOffset | None = None
        self._shown: Offsets = {}
        self._shown_at = float("-inf")
        self._frozen: Sight | None = None
        self._partitions: list[TopicPartition] = []
        self._ids: dict[str, bytes] = {}
        self._partitions_at = float("-inf")
        self._reported: Offsets | None = None
        """The ends that the last micro-batch was planned with."""
        chosen_columns(schema, options)

    @property
    def _link(self) -> SyncClient:
        # Not in __init__: the reader is pickled to the tasks before anybody asks it for offsets.
        if self._client is None:
            self._client = SyncClient(self._options.access)
        return self._client

    def __getstate__(self) -> dict[str, Any]:
        return {**self.__dict__, "_client": None}

    # -- offsets, in the driver ----------------------------------------------------------------------------------

    def initialOffset(self) -> dict[str, Any]:
        if self._initial is None:
            try:
                self._initial = self._first_offsets()
            except HeadraceError as problem:
                raise explained(problem) from problem
        return self._initial.to_json()

    def _first_offsets(self) -> StreamOffset:
        options = self._options
        partitions = find_partitions(self._link, options)
        ids = topic_ids(self._link, partitions)
        pinned = self._pinned(partitions, ids)
        if pinned:
            return StreamOffset(pinned, ids)
        start = resolve(self._link, partitions, options.starting, options.isolation)
        if options.group is not None and start:
            pins = {tp: GroupOffset(offset, self._pin(ids[tp.topic])) for tp, offset in start.items()}
            self._link.commit_offsets(options.group, pins)
        return StreamOffset(start, ids)

    def _pin(self, topic_id: bytes) -> str:
        """A pin holds for the topic and the question it answered; whoever asks otherwise gets another answer."""
        asked = hashlib.sha256(repr(self._options.starting).encode() + topic_id).hexdigest()[:12]
        return f"{PINNED} ({asked})"

    def _pinned(self, partitions: list[TopicPartition], ids: Mapping[str, bytes]) -> Offsets:
        if self._options.group is None:
            return {}
        known = self._link.committed_offsets(self._options.group, partitions)
        return {tp: entry.offset for tp, entry in known.items() if entry.metadata == self._pin(ids[tp.topic])}

    def getDefaultReadLimit(self) -> ReadLimit:
        if self._options.max_records_per_trigger is not None:
            return ReadMaxRows(self._options.max_records_per_trigger)
        if self._options.max_bytes_per_trigger is not None:
            return ReadMaxBytes(self._options.max_bytes_per_trigger)
        return ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:
        try:
            return self._admitted(StreamOffset.from_json(start), limit).to_json()
        except HeadraceError as problem:
            raise explained(problem) from problem

    def _admitted(self, start: StreamOffset, limit: ReadLimit) -> StreamOffset:
        if self._frozen is None:
            now = self._look()
            self._reported = dict(now.ends)
        else:
            now = self._frozen
        self._show_progress(start)
        start = self._accepted(start, now)
        ends = {tp: max(end, start.offsets[tp]) for tp, end in now.ends.items()}
        if isinstance(limit, ReadMaxRows):
            ends = admit(start.offsets, ends, limit.max_rows)
        max_bytes = self._options.max_bytes_per_trigger
        if max_bytes is not None and not isinstance(limit, ReadAllAvailable):
            ends = admit(start.offsets, ends, records_in(self._link, max_bytes, self._latest()))
        return replace(start, offsets=ends)

    def _accepted(self, start: StreamOffset, now: Sight) -> StreamOffset:
        """Where to go on: what is gone is refused, passed over and counted, or begun anew, as `onLoss` says. Partitions that came
        while the query runs are read from their beginning, so nothing in them is missed."""
        lost = losses(start, now)
        told = lost.told(self._options.on_loss)
        if told:
            raise HeadraceError(ErrorKind.OFFSET_OUT_OF_RANGE, told, LOSS_HINT)
        unknown = [
            tp for tp in now.ends if tp not in start.offsets or tp.topic in lost.other or tp in lost.back
        ]
        return settled(start, now, lost, earliest(self._link, unknown) if unknown else {})

    def _look(self) -> Sight:
        """Ends always; which topics there are once a second; where they begin when somebody may have to be told what was lost."""
        if time.monotonic() - self._partitions_at > _FRESH_SECONDS:
            self._refresh()
            firsts = self._firsts()
        else:
            firsts = {} if self._options.on_loss == "fail" else self._firsts()
        try:
            return Sight(self._latest(), dict(self._ids), firsts)
        except HeadraceError as problem:
            if problem.kind != ErrorKind.UNKNOWN_TOPIC_OR_PARTITION:
                raise
        # Deleted since we looked.
        self._refresh()
        return Sight(self._latest(), dict(self._ids), self._firsts())

    def _refresh(self) -> None:
        must_exist = self._options.on_loss == "fail"
        self._partitions = find_partitions(self._link, self._options, must_exist=must_exist)
        self._ids = topic_ids(self._link, self._partitions)
        self._partitions_at = time.monotonic()

    def _firsts(self) -> Offsets:
        return earliest(self._link, self._partitions) if self._partitions else {}

    def _latest(self) -> Offsets:
        return latest(self._link, self._partitions, self._options.isolation) if self._partitions else {}

    def _show_progress(self, done: StreamOffset) -> None:
        """Tell the group what the checkpoint holds as done. For people and dashboards; nothing depends on it."""
        group = self._options.group
        if group is None or done.offsets == self._shown or done == self._initial:
            return
        now = time.monotonic()
        if self._frozen is None and now - self._shown_at < _FRESH_SECONDS:
            return
        self._shown_at = now
        known = self._link.topics({tp.topic for tp in done.offsets})
        self._link.commit_offsets(
            group,
            {
                tp: GroupOffset(
                    offset, f"{PROGRESS}, {done.skipped[tp]} skipped" if tp in done.skipped else PROGRESS
                )
                for tp, offset in done.offsets.items()
                if tp.topic in known
                and tp.partition in known[tp.topic].leaders
                and done.is_of(tp.topic, known[tp.topic].topic_id)
            },
        )
        self._shown = dict(done.offsets)

    def reportLatestOffset(self) -> dict[str, Any] | None:
        known, self._reported = self._reported, None
        try:
            return to_json(known if known is not None else self._look().ends)
        except HeadraceError:
            return None

    def prepareForTriggerAvailableNow(self) -> None:
        self._partitions_at = float("-inf")
        self._frozen = self._look()

    def commit(self, end: Mapping[str, Any]) -> None:
        """Too late and not always (trap 5): see `latestOffset`."""

    # -- tasks ---------------------------------------------------------------------------------------------------

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        wanted = ranges(StreamOffset.from_json(start), StreamOffset.from_json(end))
        options = self._options
        if options.min_partitions:
            pieces = split(
                wanted,
                min_tasks=options.min_partitions,
                max_records_per_task=options.max_records_per_partition,
            )
            tasks = pack(pieces, len(pieces)) if pieces else []
        else:
            tasks = stream_tasks(wanted, options.max_records_per_partition)
        return [ReadTask(group) for group in tasks]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, ReadTask)
        settle()
        return range_reader(self._options, self._schema).read(partition.ranges)

    def stop(self) -> None:
        if self._client is not None:
            self._client.close()


class UnlimitedStreamReader(HeadraceStreamReader):
    """For Spark 4.0 and 4.1, which ask where the topics end without saying where the query is: all that is there is one micro-batch, and what
    is gone is noticed when a batch is planned, and refused."""

    def __init__(self, options: SourceOptions, schema: StructType) -> None:
        super().__init__(options, schema)
        if options.max_records_per_trigger is not None:
            need_limits("maxRecordsPerTrigger")
        if options.max_bytes_per_trigger is not None:
            need_limits("maxBytesPerTrigger")
        if options.on_loss != "fail":
            need_limits(f"onLoss={options.on_loss}")

    def latestOffset(self) -> dict[str, Any]:  # type: ignore[override]
        try:
            now = self._look()
        except HeadraceError as problem:
            raise explained(problem) from problem
        first = self._initial.offsets if self._initial is not None else {}
        return StreamOffset(
            {tp: max(end, first.get(tp, 0)) for tp, end in now.ends.items()}, now.ids
        ).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> list[InputPartition]:
        known, wanted = StreamOffset.from_json(start), StreamOffset.from_json(end)
        try:
            firsts = earliest(self._link, list(wanted.offsets)) if wanted.offsets else {}
            told = losses(known, Sight(wanted.offsets, wanted.ids, firsts)).told("fail")
            if told:
                raise HeadraceError(ErrorKind.OFFSET_OUT_OF_RANGE, told, LOSS_HINT)
            self._show_progress(known)
        except HeadraceError as problem:
            raise explained(problem) from problem
        begins = {tp: first for tp, first in firsts.items() if tp not in known.offsets}
        return super().partitions(start, replace(wanted, begins=begins).to_json())
