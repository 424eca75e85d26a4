"""Adapter: a table as rows: a snapshot of it, alone or together with what the topic has since, cut at the offsets that the snapshot holds.

One consistent view: no gap and no overlap, and values that came later are made into columns as the pipeline would. It needs neither the definition
of the pipeline nor Iceberg's jar: the table says which topic it is of, how far it is and what its columns are made of. `units` are plain data that Spark
tasks read, or this process."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

import pyarrow as pa
from pyiceberg.exceptions import NoSuchTableError
from pyiceberg.expressions import AlwaysTrue
from pyiceberg.io import load_file_io
from pyiceberg.io.pyarrow import ArrowScan
from pyiceberg.table import FileScanTask, Table
from pyiceberg.table.metadata import TableMetadata

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.arrow import ColumnLayout, record_batches
from headrace.spark.fetching import shared_client
from headrace.spark.iceberg.columns import SOURCE, Columns, fitted, without_metadata
from headrace.spark.iceberg.tables import TableState, held, open_catalog, remembered_columns
from headrace.spark.options import source_options
from headrace.spark.plan import OffsetRange, pack, ranges_between, split
from headrace.spark.positions import earliest, latest
from headrace.spark.reader import RangeReader
from headrace.spark.sync_client import SyncClient

_UNIT_BYTES = 128 << 20
_UNIT_RECORDS = 500_000


@dataclass(frozen=True)
class Files:
    """Data files of a snapshot."""

    tasks: tuple[FileScanTask, ...]
    metadata: TableMetadata
    snapshot_id: int
    store: dict[str, Any]
    schema: pa.Schema

    def read(self) -> Iterator[pa.RecordBatch]:
        io = load_file_io(self.store, self.metadata.location)
        snapshot = self.metadata.snapshot_by_id(self.snapshot_id)
        number = snapshot.schema_id if snapshot is not None else None
        shape = next(
            (one for one in self.metadata.schemas if one.schema_id == number), self.metadata.schema()
        )
        for batch in ArrowScan(self.metadata, io, shape, AlwaysTrue()).to_record_batches(self.tasks):
            yield from fitted(pa.Table.from_batches([batch]), self.schema).to_batches()


@dataclass(frozen=True)
class Tail:
    """What the topic has behind the snapshot."""

    reader: RangeReader
    ranges: tuple[OffsetRange, ...]
    columns: Columns
    schema: pa.Schema

    def read(self) -> Iterator[pa.RecordBatch]:
        client = shared_client(self.reader.options.access)
        for wanted in self.ranges:
            for piece in self.reader.pieces(client, wanted):
                for rows in record_batches(piece, wanted, self.reader.layout):
                    good, _ = self.columns.make(rows)
                    yield from fitted(good, self.schema).to_batches()


Unit = Files | Tail


@dataclass(frozen=True)
class TableView:
    warehouse: str
    table: str
    catalog: dict[str, str] = field(default_factory=dict)
    snapshot_id: int | None = None
    as_of: str = ""
    """A time, as in 2026-01-31T12:00:00Z: the table as it was then."""
    live: dict[str, str] | None = None
    """Options of the source; given, what the topic has since is there too."""

    def load(self) -> Table:
        try:
            return open_catalog(self.warehouse, self.catalog).load_table(self.table)
        except NoSuchTableError:
            raise HeadraceError(
                ErrorKind.NOT_FOUND,
                f"there is no table {self.table} in {self.warehouse}",
                "Make one with a table pipeline.",
            ) from None

    def schema(self, table: Table | None = None) -> pa.Schema:
        found = table or self.load()
        return pa.schema([without_metadata(one) for one in found.schema().as_arrow()])

    def units(self) -> list[Unit]:
        table = self.load()
        schema = self.schema(table)
        snapshot = self._snapshot(table)
        if self.live is None:
            return self._files(table, snapshot, schema)
        known = held(table)
        return [*self._files(table, snapshot, schema), *self._tail(table, known, schema)]

    def _snapshot(self, table: Table) -> int | None:
        if self.snapshot_id is not None:
            return self.snapshot_id
        if not self.as_of:
            current = table.current_snapshot()
            return current.snapshot_id if current is not None else None
        moment_ms = int(datetime.fromisoformat(self.as_of).timestamp() * 1000)
        found = table.snapshot_as_of_timestamp(moment_ms)
        if found is None:
            raise HeadraceError(ErrorKind.NOT_FOUND, f"{self.table} has no snapshot as old as {self.as_of}")
        return found.snapshot_id

    def _files(self, table: Table, snapshot_id: int | None, schema: pa.Schema) -> list[Unit]:
        if snapshot_id is None:
            return []
        groups: list[list[FileScanTask]] = [[]]
        size = 0
        for task in table.scan(snapshot_id=snapshot_id).plan_files():
            if size >= _UNIT_BYTES:
                groups.append([])
                size = 0
            groups[-1].append(task)
            size += task.file.file_size_in_bytes
        store = dict(table.io.properties)
        return [Files(tuple(group), table.metadata, snapshot_id, store, schema) for group in groups if group]

    def _tail(self, table: Table, known: TableState, schema: pa.Schema) -> list[Unit]:
        columns = remembered_columns(table)
        if columns is None or not known.topic:
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f"{self.table} does not say of which topic it is",
                "It was not written by a table pipeline of this version: run one, or read the table alone.",
            )
        assert self.live is not None
        options = source_options({**self.live, "subscribe": known.topic, "includeHeaders": "true"})
        with SyncClient(options.access) as client:
            info = client.topic(known.topic)
            if info.topic_id.hex() != known.topic_id:
                raise HeadraceError(
                    ErrorKind.UNKNOWN_TOPIC_ID,
                    f"{self.table} is the table of another topic of the name {known.topic}, which was deleted since",
                    "Read the table alone, or keep the new topic with on_loss = reset.",
                )
            partitions = [TopicPartition(known.topic, number) for number in info.leaders]
            first, ends = earliest(client, partitions), latest(client, partitions)
        seam = {tp: known.offsets.get(tp, first[tp]) for tp in partitions}
        lost = [f"{tp} from {seam[tp]} to {first[tp] - 1}" for tp in partitions if first[tp] > seam[tp]]
        if lost:
            raise HeadraceError(
                ErrorKind.OFFSET_OUT_OF_RANGE,
                f"neither the table nor the topic has {', '.join(lost)}",
                "Retention was faster than the pipeline.",
            )
        names = (*SOURCE.values(), "value")
        reader = RangeReader(options, names, ColumnLayout(names))
        pieces = split(
            ranges_between(seam, ends, {known.topic: info.topic_id}), max_records_per_task=_UNIT_RECORDS
        )
        groups = pack(pieces, max(1, sum(piece.size for piece in pieces) // _UNIT_RECORDS)) if pieces else []
        return [Tail(reader, group, columns, schema) for group in groups]


def arrow_table(view: TableView) -> pa.Table:
    """All of it in this process: for engines without Spark."""
    schema = view.schema()
    return pa.Table.from_batches([batch for unit in view.units() for batch in unit.read()], schema=schema)
