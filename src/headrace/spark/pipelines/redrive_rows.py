"""Driver: dead rows of a table tried once more, by the schema that its definition has now. No Spark is needed.

Rows that fit are committed to the table, and then leave the table of the dead. A crash between the two leaves them in both: the next
try finds them in the table by their place and only takes them away. A few files at a time, so that memory is bounded whatever has died.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from typing import NamedTuple

import pyarrow as pa
import pyarrow.compute as pc
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.table import Table as IcebergTable

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.iceberg.columns import DEAD, SOURCE, Columns, fitted
from headrace.spark.iceberg.evolution import follow
from headrace.spark.iceberg.files import DataFiles
from headrace.spark.iceberg.tables import (
    CommitTaken,
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
    swap_files,
)
from headrace.spark.iceberg.upkeep import opened
from headrace.spark.pipelines.definition import Table
from headrace.spark.pipelines.table import columns_of, fingerprint

ROWS_AT_ONCE = 500_000
TRIES = 10
"""Against a pipeline that commits meanwhile."""
_PLACE = ("_topic_partition", "_offset", "_timestamp")
"""Of a record: a topic that was made again has the same offsets, and later times."""


class Redriven(NamedTuple):
    rows: int
    """That are in the table now, and were not."""
    still_dead: int


@dataclass(frozen=True)
class _Attempt:
    """What the tables are at the beginning of a group."""

    definition: Table
    columns: Columns
    table: IcebergTable
    grave: IcebergTable
    reached: dict[TopicPartition, int]
    """Rows behind these belong to a round that is not committed yet: it will come to them itself."""


@dataclass
class _Progress:
    rows: int = 0
    tried: set[str] = field(default_factory=set)
    """Files of the dead that need no second look."""


def redrive_rows(definition: Table) -> Redriven:
    catalog = open_catalog(definition.warehouse, definition.catalog)
    for name in (definition.table_name, dead_name(definition.table_name)):
        try:
            catalog.load_table(name)
        except NoSuchTableError:
            raise HeadraceError(
                ErrorKind.NOT_FOUND,
                f"there is no table {name} in {definition.warehouse}",
                'Rows die where a definition has on_error = "dead_letter".',
            ) from None
    progress = _Progress()
    for _ in range(TRIES):
        try:
            while True:
                now = _look(catalog, definition)
                group = _next_group(now.grave, progress.tried)
                if not group:
                    left = sum(task.file.record_count for task in now.grave.scan().plan_files())
                    return Redriven(progress.rows, left)
                _redrive(now, group, progress)
        except CommitTaken as problem:
            taken = problem
    raise HeadraceError(
        ErrorKind.CONFLICT, f"the pipeline was faster {TRIES} times: {taken}", "Stop it, and try again."
    )


def _look(catalog: Catalog, definition: Table) -> _Attempt:
    table = catalog.load_table(definition.table_name)
    columns = follow(table, columns_of(definition), definition.on_schema)
    remember_columns(table, columns)
    table = open_table(catalog, definition.table_name, columns.schema, definition.partitions)
    return _Attempt(
        definition, columns, table, open_dead_table(catalog, definition.table_name), held(table).offsets
    )


def _next_group(grave: IcebergTable, tried: set[str]) -> list[IcebergFile]:
    group: list[IcebergFile] = []
    for task in grave.scan().plan_files():
        if task.file.file_path in tried:
            continue
        if group and sum(one.record_count for one in group) + task.file.record_count > ROWS_AT_ONCE:
            break
        group.append(task.file)
    return group


def _redrive(now: _Attempt, group: list[IcebergFile], progress: _Progress) -> None:
    codec = now.definition.compression.upper()
    there = _places_in(now.table, group)
    with (
        DataFiles(
            data_directory(now.table),
            now.columns.schema,
            codec,
            splitter(now.table, now.definition.partitions),
            store_of(now.table),
        ) as files,
        DataFiles(data_directory(now.grave), DEAD, codec, store=store_of(now.grave)) as dead_files,
    ):
        left = 0
        for rows in _rows(now.grave, group):
            behind = _is_behind(rows, now)
            good, dead = now.columns.make(_as_read(rows.filter(behind)))
            files.write(good.filter(pc.invert(_among(good, there))))
            for stay in (dead, rows.filter(pc.invert(behind))):
                left += stay.num_rows
                if stay.num_rows:
                    dead_files.write(stay)
        written, remain = files.finish(), dead_files.finish()
    if left == sum(one.record_count for one in group):
        progress.tried.update(one.file_path for one in group)
        return
    mark = fingerprint(now.definition)
    if came := sum(file["rows"] for file in written):
        commit(now.table, written, held(now.table).properties(now.definition.name, mark))
        progress.rows += came
    # How far rows have been buried is said by the table of the dead itself.
    swap_files(now.grave, group, remain, held(now.grave).properties(now.definition.name, mark))
    progress.tried.update(file["path"] for file in remain)


def _rows(grave: IcebergTable, group: list[IcebergFile]) -> Iterator[pa.Table]:
    for file in group:
        with opened(file.file_path, store_of(grave)) as source:
            parquet = pq.ParquetFile(source)
            for number in range(parquet.num_row_groups):
                yield fitted(parquet.read_row_group(number), DEAD).combine_chunks()


def _is_behind(rows: pa.Table, now: _Attempt) -> pa.Array:
    """Which of them the table has passed."""
    topic = now.definition.topic
    places = zip(rows["_topic_partition"].to_pylist(), rows["_offset"].to_pylist(), strict=True)
    return pa.array(
        [offset < now.reached.get(TopicPartition(topic, number), 0) for number, offset in places], pa.bool_()
    )


def _as_read(rows: pa.Table) -> pa.RecordBatch:
    """As the source reads records."""
    names = {**SOURCE, "_value": "value"}
    made = rows.select(list(names)).rename_columns(list(names.values())).combine_chunks().to_batches()
    return made[0] if made else pa.RecordBatch.from_pylist([], schema=_SOURCE)


_SOURCE = pa.schema([DEAD.field(name).with_name(new) for name, new in {**SOURCE, "_value": "value"}.items()])


def _places_in(table: IcebergTable, group: list[IcebergFile]) -> set[tuple[int, int, int]]:
    """Those of the group's rows that the table has already."""
    wanted: set[tuple[int, int, int]] = set()
    for rows in _rows(table, group):
        wanted.update(_places(rows))
    if not wanted:
        return set()
    offsets = [place[1] for place in wanted]
    within = f"_offset >= {min(offsets)} and _offset <= {max(offsets)}"
    found: set[tuple[int, int, int]] = set()
    for batch in table.scan(row_filter=within, selected_fields=_PLACE).to_arrow_batch_reader():
        found.update(wanted.intersection(_places(batch)))
    return found


def _places(rows: pa.Table | pa.RecordBatch) -> Iterator[tuple[int, int, int]]:
    columns = [rows.column(name) for name in _PLACE]
    columns[2] = columns[2].cast(pa.int64())
    return zip(*(column.to_pylist() for column in columns), strict=True)


def _among(rows: pa.Table, places: set[tuple[int, int, int]]) -> pa.Array:
    return pa.array([place in places for place in _places(rows)], pa.bool_())
