"""Driver: an archive into a table, once, so that the table's pipeline goes on where the archive ends. No Spark is needed: files are read a row group at a
time, and one snapshot has all of it, with the offsets up to which the archive's log says it reaches."""

from __future__ import annotations

from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pyarrow as pa
import pyarrow.parquet as pq

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.spark.iceberg.columns import DEAD, SOURCE, Columns
from headrace.spark.iceberg.evolution import follow
from headrace.spark.iceberg.files import DataFiles
from headrace.spark.iceberg.tables import (
    TableState,
    commit,
    data_directory,
    held,
    open_catalog,
    open_dead_table,
    open_table,
    remember_columns,
    splitter,
    store_of,
)
from headrace.spark.pipelines.archive_log import ArchiveLog, ArchiveState
from headrace.spark.pipelines.definition import Table
from headrace.spark.pipelines.table import columns_of, fingerprint
from headrace.spark.schema import HEADERS, TIMESTAMP

_TYPES = {
    "key": pa.binary(), "value": pa.binary(), "partition": pa.int32(), "offset": pa.int64(), "timestamp": TIMESTAMP,
    "timestampType": pa.int32(), "headers": HEADERS,
}  # fmt: skip


class Converted(NamedTuple):
    rows: int
    dead_rows: int
    files: int


def convert(definition: Table, archive: Path) -> Converted:
    state = ArchiveLog(archive.resolve()).read()
    now = _reach(definition, state, archive)
    columns = columns_of(definition)
    catalog = open_catalog(definition.warehouse, definition.catalog)
    table = open_table(catalog, definition.table_name, columns.schema)
    if held(table).topic:
        raise HeadraceError(
            ErrorKind.INVALID_PARAMETER,
            f"{definition.table_name} has rows already",
            "An archive is the beginning of a table: give the pipeline a new one.",
        )
    columns = follow(table, columns, definition.on_schema)
    remember_columns(table, columns)
    table = open_table(catalog, definition.table_name, columns.schema, definition.partitions)
    codec = definition.compression.upper()
    buries = definition.on_error == "dead_letter"
    grave = open_dead_table(catalog, definition.table_name) if buries else None
    dead_rows = 0
    with (
        DataFiles(
            data_directory(table),
            columns.schema,
            codec,
            splitter(table, definition.partitions),
            store_of(table),
        ) as files,
        DataFiles(
            data_directory(grave) if grave is not None else "", DEAD, codec, store=store_of(table)
        ) as dead_files,
    ):
        for rows in _rows(archive, state, definition.topic):
            good, dead = _made(columns, rows, buries)
            files.write(good)
            if dead.num_rows:
                dead_files.write(dead)
                dead_rows += dead.num_rows
        written, buried = files.finish(), dead_files.finish()
    said = now.properties(definition.name, fingerprint(definition))
    if grave is not None and buried:
        commit(grave, buried, said)
    commit(table, written, said)
    return Converted(sum(file["rows"] for file in written), dead_rows, len(written))


def _made(columns: Columns, rows: pa.RecordBatch, buries: bool) -> tuple[pa.Table, pa.Table]:
    good, dead = columns.make(rows)
    if dead.num_rows and not buries:
        raise HeadraceError(
            ErrorKind.INVALID_RECORD,
            f"offset {dead.column('_offset')[0]} of partition {dead.column('_topic_partition')[0]} is not what the schema says",
            'on_error = "dead_letter" keeps such rows in a table of their own',
        )
    return good, dead


def _reach(definition: Table, state: ArchiveState, archive: Path) -> TableState:
    topic = definition.topic
    end = {tp: offset for tp, offset in state.end.items() if tp.topic == topic}
    if not end or topic not in state.ids:
        raise HeadraceError(
            ErrorKind.NOT_FOUND,
            f"{archive} has nothing of the topic {topic}",
            f"It has {', '.join(sorted({tp.topic for tp in state.end})) or 'nothing'}.",
        )
    begins = {tp: offset for tp, offset in state.start.items() if tp.topic == topic and offset}
    skipped = {tp: count for tp, count in state.skipped.items() if tp.topic == topic}
    return TableState(topic, state.ids[topic], end, skipped, 0, begins)


def _rows(archive: Path, state: ArchiveState, topic: str) -> Iterator[pa.RecordBatch]:
    chosen = [file for file in state.files.values() if file["topic"] == topic and state.has(file)]
    for file in sorted(chosen, key=lambda file: str(file["path"])):
        parquet = pq.ParquetFile(archive.resolve() / file["path"])
        for group in range(parquet.num_row_groups):
            yield from _as_read(parquet.read_row_group(group)).to_batches(max_chunksize=50_000)


def _as_read(table: pa.Table) -> pa.Table:
    """With the names and types that the source has."""
    names = (*SOURCE.values(), "value")
    columns: dict[str, Any] = {
        name: table.column(name).cast(_TYPES[name])
        if name in table.schema.names
        else pa.nulls(table.num_rows, _TYPES[name])
        for name in names
    }
    return pa.table(columns).combine_chunks()
