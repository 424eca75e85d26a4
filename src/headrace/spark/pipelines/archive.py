"""Pipeline: topic(s) into Parquet by date and hour, exactly once: how history outlives retention.

A round: from where the archive's own log ends to where the topic ends now. Fused tasks fetch, decode and write; the driver
links the round into the log. There is no Spark checkpoint: the archive itself says where it ends, so no crash can make the
two disagree. A round that was interrupted is planned anew, and its files were never part of the archive.
"""

from __future__ import annotations

import uuid
from collections import defaultdict
from dataclasses import dataclass
from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.core.ids import TopicPartition
from headrace.spark.arrow import record_batches
from headrace.spark.fetching import shared_client
from headrace.spark.fused import FusedTask, run_fused
from headrace.spark.options import SourceOptions, source_options
from headrace.spark.pipelines.archive_log import ArchiveLog, ArchiveState
from headrace.spark.pipelines.definition import Archive
from headrace.spark.pipelines.parquet_files import COLUMNS, SCHEMA, HourFiles, merge_files
from headrace.spark.pipelines.rounds import Round, accepted, commit_progress, task_count
from headrace.spark.plan import OffsetRange, admit, pack, ranges_between, split
from headrace.spark.positions import earliest, find_partitions, resolve
from headrace.spark.reader import RangeReader
from headrace.spark.stream_offsets import StreamOffset
from headrace.spark.sync_client import SyncClient

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

_RECORDS_PER_TASK = 2_000_000


@dataclass
class ArchiveTask(FusedTask):
    reader: RangeReader
    ranges: tuple[OffsetRange, ...]
    staging: str
    compression: str

    def run(self) -> dict[str, Any]:
        client = shared_client(self.reader.options.access)
        schema = SCHEMA if "headers" in self.reader.columns else SCHEMA.remove(len(SCHEMA) - 1)
        with HourFiles(Path(self.staging), schema, self.compression) as files:
            for wanted in self.ranges:
                batches = (
                    batch
                    for piece in self.reader.pieces(client, wanted)
                    for batch in record_batches(piece, wanted, self.reader.layout)
                )
                files.write(batches, wanted)
            return {"files": files.finish()}


@dataclass
class ArchiveMergeTask(FusedTask):
    archive: str
    paths: list[str]
    facts: dict[str, Any]
    compression: str

    def run(self) -> dict[str, Any]:
        target = Path(self.archive) / "_staging" / self.facts["staged"]
        merged = merge_files([f"{self.archive}/{path}" for path in self.paths], target, self.compression)
        return {**self.facts, **merged, "merged": self.paths}


class ArchivePipeline:
    def __init__(self, definition: Archive, spark: SparkSession) -> None:
        self._definition = definition
        self._spark = spark
        self.options = _options(definition)
        self._client = SyncClient(self.options.access)
        self._log = ArchiveLog(Path(definition.path).resolve())
        self._state = self._log.open_for_writing()

    @property
    def facts(self) -> dict[str, Any]:
        """What `headrace sql` and `headrace pipeline status` want to know."""
        return {
            "path": str(self._log.path),
            "topics": self._definition.topics,
            "skipped": sum(self._state.skipped.values()),
        }

    def round(self) -> Round:
        """Archive what is there now, up to the limit."""
        must_exist = self._definition.on_loss == "fail"
        partitions = find_partitions(self._client, self.options, must_exist=must_exist)
        state = self._state
        known = StreamOffset(
            dict(state.end),
            {topic: bytes.fromhex(text) for topic, text in state.ids.items()},
            skipped=dict(state.skipped),
        )
        start, ends = accepted(self._client, partitions, known, self._definition.on_loss, self._begin)
        target = admit(start.offsets, ends, self._definition.max_records_per_round)
        ranges = ranges_between(start.offsets, target, start.ids)
        if not ranges and start.skipped == known.skipped:
            return Round(lag=0)
        pieces = split(ranges, max_records_per_task=_RECORDS_PER_TASK)
        tasks = [
            ArchiveTask(_reader(self.options), group, str(self._log.staging), _codec(self._definition))
            for group in pack(pieces, max(task_count(self._spark), len(pieces) // 4))
            if group
        ]
        results = run_fused(self._spark, tasks)
        files = [file for result in results for file in result["files"]]
        self._log.commit(
            state,
            start=start.offsets,
            end=target,
            files=files,
            ids={topic: start.ids[topic].hex() for topic in {tp.topic for tp in partitions}},
            skipped=start.skipped,
        )
        commit_progress(self._client, f"headrace-archive-{self._definition.name}", target)
        return Round(
            records=sum(file["rows"] for file in files),
            bytes=sum(file["bytes"] for file in files),
            lag=sum(max(0, ends[tp] - target[tp]) for tp in ends),
        )

    def _begin(self, new: list[TopicPartition]) -> dict[TopicPartition, int]:
        """The first round begins as the definition says; what comes later is archived from its beginning."""
        if self._state.end:
            return earliest(self._client, new)
        return resolve(self._client, new, self.options.starting)

    def upkeep(self) -> int:
        """Make one file of the many small ones of an hour; how many files went away."""
        tasks = small_file_merges(
            self._state,
            str(self._log.path),
            self._definition.compact_files,
            self._definition.small_file_mb << 20,
            _codec(self._definition),
        )
        if not tasks:
            return 0
        merged = run_fused(self._spark, tasks)
        removed = [path for result in merged for path in result.pop("merged")]
        self._log.commit(self._state, start={}, end={}, files=merged, removed=removed)
        return len(removed) - len(merged)

    def close(self) -> None:
        self._client.close()


def small_file_merges(
    state: ArchiveState, archive: str, at_least: int, small: int, compression: str
) -> list[ArchiveMergeTask]:
    groups: dict[tuple[str, str, str], list[dict[str, Any]]] = defaultdict(list)
    for file in state.files.values():
        if file["bytes"] < small:
            groups[file["topic"], file.get("topic_id", ""), file["path"].rsplit("/", 1)[0]].append(file)
    tasks = []
    for (topic, topic_id, directory), files in sorted(groups.items()):
        if len(files) >= at_least:
            name = f"{topic}-merged-{uuid.uuid4().hex}.parquet"
            facts = {
                "path": f"{directory}/{name}",
                "staged": name,
                "topic": topic,
                "topic_id": topic_id,
                "partition": -1,
            }
            tasks.append(ArchiveMergeTask(archive, [file["path"] for file in files], facts, compression))
    return tasks


def _codec(definition: Archive) -> str:
    return definition.compression.upper()


def _options(definition: Archive) -> SourceOptions:
    return source_options(
        {
            **definition.options,
            "subscribe": ",".join(definition.topics),
            "startingOffsets": definition.starting,
            "includeHeaders": str(definition.headers).lower(),
            "directRead": str(definition.direct_read).lower(),
            "onLoss": definition.on_loss,
        }
    )


def _reader(options: SourceOptions) -> RangeReader:
    from headrace.spark.arrow import ColumnLayout

    columns = (*COLUMNS, "headers") if options.include_headers else COLUMNS
    return RangeReader(options, columns, ColumnLayout(columns))
