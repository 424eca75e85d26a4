"""Adapter: the table in its catalog: made, found, and committed to. The truth about how far a topic is in it is its newest snapshot.

Invariant: a commit is a compare-and-swap on the snapshot that the round was planned from. pyiceberg tries a lost race again by
itself and would add a zombie's files on top of what somebody else has committed meanwhile; the table property
commit.retry.num-retries=0 forbids that, and is looked at before each commit.
"""

from __future__ import annotations

import contextlib
import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, field
from typing import Any

import pyarrow as pa
import pyarrow.parquet as pq
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.io.pyarrow import (
    compute_statistics_plan,
    data_file_statistics_from_parquet_metadata,
    parquet_path_to_id_mapping,
)
from pyiceberg.manifest import DataFile as IcebergFile
from pyiceberg.manifest import DataFileContent, FileFormat
from pyiceberg.table import Table, TableProperties
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.typedef import Record
from pyiceberg.types import PrimitiveType

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.iceberg.columns import DEAD, Columns
from headrace.spark.iceberg.files import local_path
from headrace.spark.iceberg.partition_fields import PartitionField
from headrace.spark.iceberg.partitioning import Splitter, transform_of
from headrace.spark.plan import from_json, to_json

_OFFSETS, _ID, _SKIPPED = "headrace.offsets", "headrace.topic-id", "headrace.skipped"
_TOPIC, _PIPELINE, _DEFINITION = "headrace.topic", "headrace.pipeline", "headrace.definition"
_FENCE, _BEGINS = "headrace.lease-epoch", "headrace.begins"
_COLUMNS = "headrace.columns"
_RETRIES = "commit.retry.num-retries"
_PROPERTIES = {
    _RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}


class CommitTaken(RuntimeError):
    """Somebody else has committed to the table since this round was planned."""


@dataclass(frozen=True, slots=True)
class TableState:
    """What the newest snapshot says about the topic."""

    topic: str = ""
    topic_id: str = ""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """Not included: what comes next."""
    skipped: dict[TopicPartition, int] = field(default_factory=dict)
    fence: int = 0
    """Of the lease under which it was written; 0: of nobody's."""
    begins: dict[TopicPartition, int] = field(default_factory=dict)
    """Where each partition was begun, if not at 0."""

    def properties(self, pipeline: str, definition: str) -> dict[str, str]:
        return {
            _TOPIC: self.topic,
            _ID: self.topic_id,
            _OFFSETS: json.dumps(to_json(self.offsets)),
            _SKIPPED: json.dumps(to_json(self.skipped)),
            _PIPELINE: pipeline,
            _DEFINITION: definition,
            **({_FENCE: str(self.fence)} if self.fence else {}),
            **({_BEGINS: json.dumps(to_json(self.begins))} if self.begins else {}),
        }


def open_catalog(warehouse: str, properties: Mapping[str, str]) -> Catalog:
    """The catalog of these pyiceberg properties; without any, SQLite beside the warehouse."""
    given = dict(properties)
    if not given:
        path = local_path(warehouse)
        if path is None:
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f"{warehouse} is no local directory, so a catalog has to be named",
                'as in [catalog] type = "rest", uri = "https://…"',
            )
        path = path.resolve()
        path.mkdir(parents=True, exist_ok=True)
        given = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db"}
    path = local_path(warehouse)
    given.setdefault("warehouse", warehouse if path is None else f"file://{path.resolve()}")
    return load_catalog("headrace", **given)


def open_table(
    catalog: Catalog, name: str, schema: pa.Schema, partitions: Sequence[PartitionField] | None = None
) -> Table:
    """The table, made when it is not there, and partitioned so from now on (None: as it is); what was written before stays as it is."""
    try:
        table = catalog.load_table(name)
    except NoSuchTableError:
        with contextlib.suppress(NamespaceAlreadyExistsError):
            catalog.create_namespace(name.rsplit(".", 1)[0])
        table = catalog.create_table_if_not_exists(name, schema, properties=dict(_PROPERTIES))
    return table if partitions is None else _partitioned(catalog, table, partitions)


def dead_name(name: str) -> str:
    return f"{name}__dead"


def open_dead_table(catalog: Catalog, name: str) -> Table:
    """Of the rows that do not fit the table `name`. One of an older version gets the columns that it has not."""
    table = open_table(catalog, dead_name(name), DEAD)
    known = {one.name for one in table.schema().fields}
    if new := [one for one in DEAD if one.name not in known]:
        with table.update_schema() as update:
            update.union_by_name(pa.schema(new))
    return table


def _partitioned(catalog: Catalog, table: Table, wanted: Sequence[PartitionField]) -> Table:
    known = {one.name for one in table.spec().fields}
    names = {one.name for one in table.schema().fields}
    absent = sorted(one.field for one in wanted if one.field not in names)
    if absent:
        raise HeadraceError(
            ErrorKind.INVALID_PARAMETER,
            f"partition_by names {', '.join(absent)}, and {'.'.join(table.name())} has no such column",
            f"It has {', '.join(sorted(names))}.",
        )
    if {one.name for one in wanted} == known:
        return table
    with table.update_spec() as update:
        for name in known - {one.name for one in wanted}:
            update.remove_field(name)
        for one in wanted:
            if one.name not in known:
                update.add_field(one.field, transform_of(one), None if one.how == "identity" else one.name)
    return catalog.load_table(".".join(table.name()))


def splitter(table: Table, partitions: Sequence[PartitionField]) -> Splitter:
    """In the order of the table's own fields, which is the order of the values in what is committed."""
    by_name = {one.name: one for one in partitions}
    fields = [by_name[one.name] for one in table.spec().fields if one.name in by_name]
    kinds = [table.schema().find_field(one.field).field_type for one in fields]
    for one, kind in zip(fields, kinds, strict=True):
        if not isinstance(kind, PrimitiveType) or not transform_of(one).can_transform(kind):
            raise HeadraceError(
                ErrorKind.INVALID_PARAMETER,
                f"{one.how} of the column {one.field} of type {kind} can't be a partition",
            )
    return Splitter(tuple(fields), tuple(kind for kind in kinds if isinstance(kind, PrimitiveType)))


def remember_columns(table: Table, columns: Columns) -> None:
    """How values become columns, as a property: whoever reads the table together with what the topic has since needs no definition."""
    text = columns.to_json()
    if table.properties.get(_COLUMNS) != text:
        with table.transaction() as change:
            change.set_properties({_COLUMNS: text})


def remembered_columns(table: Table) -> Columns | None:
    text = table.properties.get(_COLUMNS)
    return Columns.from_json(text) if text else None


def store_of(table: Table) -> dict[str, str]:
    """What tasks need to reach the files, when they are in no local directory."""
    if local_path(table.location()) is not None:
        return {}
    return {str(key): str(value) for key, value in table.io.properties.items()}


def _ancestors(table: Table) -> Iterator[Snapshot]:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def held(table: Table) -> TableState:
    """Where the table is. Other writers may have come after us; what they did says nothing about offsets."""
    for snapshot in _ancestors(table):
        said: Mapping[str, Any] = snapshot.summary.additional_properties if snapshot.summary else {}
        if _OFFSETS in said:
            return TableState(
                said.get(_TOPIC, ""),
                said.get(_ID, ""),
                from_json(json.loads(said[_OFFSETS])),
                from_json(json.loads(said.get(_SKIPPED, "{}"))),
                int(said.get(_FENCE, 0)),
                from_json(json.loads(said.get(_BEGINS, "{}"))),
            )
    if table.current_snapshot() is not None:
        raise HeadraceError(
            ErrorKind.CORRUPT_MESSAGE,
            f"no snapshot of {'.'.join(table.name())} says up to which offset it is",
            "Others wrote to it, and what we wrote has expired. Give the pipeline another table.",
        )
    return TableState()


def data_file(table: Table, file: Mapping[str, Any]) -> IcebergFile:
    """What a task has written, as Iceberg wants to hear of it: statistics from its footer, and the values of its partition from the task."""
    source = table.io.new_input(file["path"])
    with source.open() as stream:
        footer = pq.read_metadata(stream)
    schema, properties = table.schema(), table.properties
    statistics = data_file_statistics_from_parquet_metadata(
        parquet_metadata=footer,
        stats_columns=compute_statistics_plan(schema, properties),
        parquet_column_mapping=parquet_path_to_id_mapping(schema),
    )
    return IcebergFile.from_args(
        content=DataFileContent.DATA,
        file_path=file["path"],
        file_format=FileFormat.PARQUET,
        partition=Record(*file.get("partition", ())),
        file_size_in_bytes=len(source),
        sort_order_id=None,
        spec_id=table.spec().spec_id,
        equality_ids=None,
        key_metadata=None,
        **statistics.to_serialized_dict(),
    )


def commit(table: Table, files: Sequence[Mapping[str, Any]], properties: Mapping[str, str]) -> None:
    """These files, and how far the table is with them, in one snapshot. `table` is as it was when the round was planned."""
    with _compared(table), table.transaction() as change:
        if table.metadata.name_mapping() is None:
            # Files have no field ids: their columns are found by name.
            change.set_properties({TableProperties.DEFAULT_NAME_MAPPING: _names(table)})
        with change.update_snapshot(snapshot_properties=dict(properties)).fast_append() as append:
            for file in files:
                append.append_data_file(data_file(table, file))


def swap_files(
    table: Table,
    gone: Sequence[IcebergFile],
    files: Sequence[Mapping[str, Any]],
    properties: Mapping[str, str],
) -> None:
    """These files in the place of those, in one snapshot, by the same comparison."""
    with (
        _compared(table),
        table.transaction() as change,
        change.update_snapshot(snapshot_properties=dict(properties)).overwrite() as swap,
    ):
        for file in gone:
            swap.delete_data_file(file)
        for made in files:
            swap.append_data_file(data_file(table, made))


@contextlib.contextmanager
def _compared(table: Table) -> Iterator[None]:
    """What is committed inside is a compare-and-swap on the snapshot that `table` has now. Raises CommitTaken."""
    name = ".".join(table.name())
    planned = table.current_snapshot()
    if table.properties.get(_RETRIES) != "0":
        with table.transaction() as change:
            change.set_properties({_RETRIES: "0"})
        if table.current_snapshot() != planned:
            raise CommitTaken(f"{name} was changed by somebody else since this round was planned")
    try:
        yield
    except CommitFailedException as problem:
        raise CommitTaken(
            f"{name} was changed by somebody else since this round was planned: {problem}"
        ) from None


def _names(table: Table) -> str:
    return str(table.schema().name_mapping.model_dump_json())


def data_directory(table: Table) -> str:
    return f"{table.location().rstrip('/')}/data"
