"""Pipeline: a topic kept as an Iceberg table, exactly once: anybody reads it, with or without us.

A round: from where the newest snapshot says the table is, to where the topic ends now. Fused tasks fetch, decode and write
Parquet; the driver commits their files together with the new offsets in one snapshot, by compare-and-swap on the one that the round
was planned from. There is no checkpoint to disagree with the table: after any crash the next driver reads the newest snapshot and
goes on there, and files that no snapshot names never were part of the table.

Rows that are not what the schema says go to a second table. It is committed first and holds its own offsets, so that a crash between
the two commits repeats no dead row: the next round leaves out those that are there.
"""

from __future__ import annotations

import contextlib
import hashlib
import time
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

import msgspec
import pyarrow as pa
import pyarrow.compute as pc
from pyiceberg.exceptions import NoSuchTableError

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.arrow import ColumnLayout, record_batches
from headrace.spark.fetching import shared_client
from headrace.spark.fused import FusedTask, run_fused
from headrace.spark.iceberg.avro_columns import from_avro_schema
from headrace.spark.iceberg.columns import (
    DEAD,
    SOURCE,
    Columns,
    SchemaProblem,
    from_json_schema,
)
from headrace.spark.iceberg.evolution import follow
from headrace.spark.iceberg.files import DataFiles
from headrace.spark.iceberg.partitioning import Splitter
from headrace.spark.iceberg.registry import newest_schema
from headrace.spark.iceberg.tables import (
    CommitTaken,
    TableState,
    commit,
    data_directory,
    dead_name,
    held,
    open_catalog,
    open_dead_table,
    open_table,
    remember_columns,
    splitter,
    store_of,
)
from headrace.spark.options import SourceOptions, source_options
from headrace.spark.pipelines.definition import Table
from headrace.spark.pipelines.rounds import Round, accepted, commit_progress, task_count
from headrace.spark.plan import OffsetRange, admit, pack, ranges_between, split
from headrace.spark.positions import earliest, find_partitions, records_in, resolve
from headrace.spark.reader import RangeReader
from headrace.spark.stream_offsets import StreamOffset
from headrace.spark.sync_client import SyncClient

if TYPE_CHECKING:
    from pyiceberg.table import Table as IcebergTable
    from pyspark.sql import SparkSession

_RECORDS_PER_TASK = 2_000_000
_SWEEP_SECONDS = 6 * 3600.0


@dataclass
class TableTask(FusedTask):
    reader: RangeReader
    ranges: tuple[OffsetRange, ...]
    columns: Columns
    directory: str
    dead_directory: str
    """Empty: a row that is not what the schema says fails the round."""
    dead_from: dict[TopicPartition, int]
    """Dead rows before these offsets are in their table already."""
    compression: str
    splitter: Splitter
    store: dict[str, str]

    def run(self) -> dict[str, Any]:
        client = shared_client(self.reader.options.access)
        newest = dead_rows = 0
        with (
            DataFiles(
                self.directory, self.columns.schema, self.compression, self.splitter, self.store
            ) as files,
            DataFiles(self.dead_directory, DEAD, self.compression, store=self.store) as dead_files,
        ):
            for wanted in self.ranges:
                for piece in self.reader.pieces(client, wanted):
                    for rows in record_batches(piece, wanted, self.reader.layout):
                        good, dead = self.columns.make(rows)
                        files.write(good)
                        dead_rows += self._bury(dead, wanted, dead_files)
                        newest = max(newest, pc.max(rows.column("timestamp").cast(pa.int64())).as_py())
            return {
                "files": files.finish(),
                "dead": dead_files.finish(),
                "dead_rows": dead_rows,
                "newest_us": newest,
            }

    def _bury(self, dead: pa.Table, wanted: OffsetRange, files: DataFiles) -> int:
        if not dead.num_rows:
            return 0
        if not self.dead_directory:
            raise HeadraceError(
                ErrorKind.INVALID_RECORD,
                f"offset {dead.column('_offset')[0]} of {wanted.tp}: {dead.column('_reason')[0]}",
                'on_error = "dead_letter" keeps such rows in a table of their own',
            )
        new = dead.filter(pc.greater_equal(dead.column("_offset"), self.dead_from.get(wanted.tp, 0)))
        files.write(new)
        return int(dead.num_rows)


class TablePipeline:
    def __init__(self, definition: Table, spark: SparkSession, fence: int = 0) -> None:
        """`fence`: of the lease that a supervisor holds (T3); 0: nobody does, and only the compare-and-swap decides."""
        self._definition = definition
        self._spark = spark
        self._fence = fence
        self.options = _options(definition)
        self._client = SyncClient(self.options.access)
        # What can be known now is: a definition that can't work ends here.
        columns_of(definition)
        self._catalog = open_catalog(definition.warehouse, definition.catalog)
        self._swept = float("-inf")
        self._dead_rows = 0
        self._newest_us = 0
        self._skipped = 0

    @property
    def facts(self) -> dict[str, Any]:
        return {
            "topics": [self._definition.topic],
            "path": self._definition.warehouse,
            "table": self._definition.table_name,
            "dead_rows": self._dead_rows,
            "skipped": self._skipped,
            "newest_ms": self._newest_us // 1000,
        }

    def round(self) -> Round:
        definition = self._definition
        # Each time: a registry may have a newer schema.
        columns = columns_of(definition)
        table = open_table(self._catalog, definition.table_name, columns.schema)
        known = held(table)
        self._check_topic(known)
        self._check_fence(known)
        columns = follow(table, columns, definition.on_schema)
        remember_columns(table, columns)
        table = open_table(self._catalog, definition.table_name, columns.schema, definition.partitions)
        buries = definition.on_error == "dead_letter"
        grave = open_dead_table(self._catalog, definition.table_name) if buries else None
        buried = held(grave) if grave is not None else TableState()
        start, ends, target = self._plan(known)
        ranges = ranges_between(start.offsets, target, start.ids)
        if not ranges and start.skipped == known.skipped:
            return Round(lag=0)
        same = buried.topic_id == start.ids[definition.topic].hex()
        pieces = split(ranges, max_records_per_task=_RECORDS_PER_TASK)
        tasks = [
            TableTask(
                _reader(self.options),
                group,
                columns,
                data_directory(table),
                data_directory(grave) if grave is not None else "",
                buried.offsets if same else {},
                definition.compression.upper(),
                splitter(table, definition.partitions),
                store_of(table),
            )
            for group in pack(pieces, max(task_count(self._spark), len(pieces) // 4))
            if group
        ]
        results = run_fused(self._spark, tasks)
        fence = max(self._fence, known.fence)
        begins = {
            **{tp: offset for tp, offset in start.offsets.items() if offset and tp not in known.offsets}, **known.begins,
        }  # fmt: skip
        now = TableState(
            definition.topic, start.ids[definition.topic].hex(), target, start.skipped, fence, begins
        )
        said = now.properties(definition.name, fingerprint(definition))
        dead = [file for result in results for file in result["dead"]]
        if grave is not None and dead:
            commit(grave, dead, said)
        files = [file for result in results for file in result["files"]]
        commit(table, files, said)
        commit_progress(self._client, f"headrace-table-{definition.name}", target)
        self._skipped = sum(start.skipped.values())
        self._dead_rows += sum(result["dead_rows"] for result in results)
        self._newest_us = max([self._newest_us, *(result["newest_us"] for result in results)])
        return Round(
            records=sum(file["rows"] for file in files),
            lag=sum(max(0, ends[tp] - target[tp]) for tp in ends),
        )

    def _check_topic(self, known: TableState) -> None:
        if known.topic not in ("", self._definition.topic):
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f"{self._definition.table_name} is the table of the topic {known.topic}",
                "One table holds one topic; name another with table = …",
            )

    def _check_fence(self, known: TableState) -> None:
        """A run that slept through the end of its lease reads the table as its successor left it, so the compare-and-swap alone would let
        it go on beside that one."""
        if self._fence and known.fence > self._fence:
            raise CommitTaken(
                f"{self._definition.table_name} was written to under a later lease ({known.fence}) than this run's ({self._fence}): "
                "another supervisor has taken over"
            )

    def _plan(
        self, known: TableState
    ) -> tuple[StreamOffset, dict[TopicPartition, int], dict[TopicPartition, int]]:
        """Where to start, where the topic ends now, and up to where this round goes."""
        partitions = find_partitions(self._client, self.options)
        ids = {known.topic: bytes.fromhex(known.topic_id)} if known.topic else {}
        before = StreamOffset(dict(known.offsets), ids, skipped=dict(known.skipped))

        def begin(new: list[TopicPartition]) -> dict[TopicPartition, int]:
            # What the topic held before is part of its table; what comes later is read from its beginning.
            if known.offsets:
                return earliest(self._client, new)
            return resolve(self._client, new, self.options.starting)

        start, ends = accepted(self._client, partitions, before, self._definition.on_loss, begin)
        most = self._definition.max_records_per_round
        if self._definition.max_commit_mb:
            most = min(most, records_in(self._client, self._definition.max_commit_mb << 20, ends))
        return start, ends, admit(start.offsets, ends, most)

    def upkeep(self) -> int:
        """Of the table, and of the one of its dead rows."""
        sweeps = time.monotonic() - self._swept > _SWEEP_SECONDS
        name = self._definition.table_name
        gone = self._tend(self._catalog.load_table(name), sweeps)
        with contextlib.suppress(NoSuchTableError):
            gone += self._tend(self._catalog.load_table(dead_name(name)), sweeps)
        if sweeps:
            self._swept = time.monotonic()
        return gone

    def _tend(self, table: IcebergTable, sweeps: bool) -> int:
        from headrace.spark.iceberg.upkeep import sweep, tend

        definition = self._definition
        known = held(table)
        self._check_fence(known)
        gone = tend(
            self._spark,
            table,
            known.properties(definition.name, fingerprint(definition)),
            at_least=definition.compact_files,
            target_bytes=definition.target_file_mb << 20,
            keep_seconds=definition.keep_snapshots_days * 86_400,
            compression=definition.compression.upper(),
        )
        if sweeps:
            sweep(table)
        return gone

    def close(self) -> None:
        self._client.close()


def columns_of(definition: Table) -> Columns:
    """By the schema that the definition has, or that its registry has now."""
    definition = definition.with_schema_texts()
    kind, text = "JSON", definition.json_schema
    if definition.avro_schema:
        kind, text = "AVRO", definition.avro_schema
    elif definition.schema_registry:
        _, kind, text = newest_schema(definition.schema_registry, definition.registry_subject)
    lenient = definition.on_error == "null"
    if not text:
        return Columns(definition.value_format, None, definition.keep_raw, lenient)
    if kind == "AVRO":
        fields, avro = from_avro_schema(text), text
    elif kind == "JSON":
        fields, avro = from_json_schema(text), ""
    else:
        raise SchemaProblem(
            f"the registry has a schema of the kind {kind} for {definition.registry_subject}; tables read JSON and AVRO"
        )
    return Columns(kind.lower(), fields, definition.keep_raw, lenient, avro, definition.schema_registry)


def fingerprint(definition: Table) -> str:
    return hashlib.sha256(msgspec.json.encode(replace_spark(definition))).hexdigest()[:16]


def replace_spark(definition: Table) -> Table:
    """Where it runs is no part of what it is."""
    return msgspec.structs.replace(definition, spark=type(definition.spark)(), bootstrap="")


def _options(definition: Table) -> SourceOptions:
    return source_options(
        {
            **definition.options,
            "subscribe": definition.topic,
            "startingOffsets": definition.starting,
            "includeHeaders": "true",
            "onLoss": definition.on_loss,
        }
    )


def _reader(options: SourceOptions) -> RangeReader:
    columns = (*SOURCE.values(), "value")
    return RangeReader(options, columns, ColumnLayout(columns))
