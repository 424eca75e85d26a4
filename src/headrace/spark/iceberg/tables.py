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
from pyiceberg.catalog import Catalog, load_catalog
from pyiceberg.exceptions import CommitFailedException, NamespaceAlreadyExistsError, NoSuchTableError
from pyiceberg.table import Table
from pyiceberg.table.snapshots import Snapshot
from pyiceberg.transforms import DayTransform, HourTransform

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.ids import TopicPartition
from headrace.spark.iceberg.files import local_path
from headrace.spark.plan import from_json, to_json

_OFFSETS, _ID, _SKIPPED = "headrace.offsets", "headrace.topic-id", "headrace.skipped"
_TOPIC, _PIPELINE, _DEFINITION = "headrace.topic", "headrace.pipeline", "headrace.definition"
_RETRIES = "commit.retry.num-retries"
_PROPERTIES = {
    _RETRIES: "0",
    "write.metadata.delete-after-commit.enabled": "true",
    "write.metadata.previous-versions-max": "50",
}


class CommitTaken(RuntimeError):
    """Somebody else has committed to the table since this round was planned."""


@dataclass(frozen=True, slots=True)
class Held:
    """What the newest snapshot says about the topic."""

    topic: str = ""
    topic_id: str = ""
    offsets: dict[TopicPartition, int] = field(default_factory=dict)
    """Not included: what comes next."""
    skipped: dict[TopicPartition, int] = field(default_factory=dict)

    def properties(self, pipeline: str, definition: str) -> dict[str, str]:
        return {
            _TOPIC: self.topic,
            _ID: self.topic_id,
            _OFFSETS: json.dumps(to_json(self.offsets)),
            _SKIPPED: json.dumps(to_json(self.skipped)),
            _PIPELINE: pipeline,
            _DEFINITION: definition,
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
        given = {"type": "sql", "uri": f"sqlite:///{path}/catalog.db", "warehouse": f"file://{path}"}
    return load_catalog("headrace", **given)


def open_table(catalog: Catalog, name: str, schema: pa.Schema, unit: str) -> Table:
    """The table, made when it is not there."""
    try:
        return catalog.load_table(name)
    except NoSuchTableError:
        pass
    with contextlib.suppress(NamespaceAlreadyExistsError):
        catalog.create_namespace(name.rsplit(".", 1)[0])
    table = catalog.create_table_if_not_exists(name, schema, properties=dict(_PROPERTIES))
    if unit and table.spec().is_unpartitioned():
        transform: Any = DayTransform() if unit == "day" else HourTransform()
        with table.update_spec() as update:
            update.add_field("_timestamp", transform, f"_timestamp_{unit}")
    return catalog.load_table(name)


def missing_columns(table: Table, wanted: pa.Schema) -> list[pa.Field]:
    known = {one.name for one in table.schema().fields}
    return [one for one in wanted if one.name not in known]


def add_columns(table: Table, fields: Sequence[pa.Field]) -> None:
    """New columns, which rows that are there have as null. A column of another type is refused by pyiceberg unless it is wider."""
    with table.update_schema() as update:
        update.union_by_name(pa.schema([*table.schema().as_arrow(), *fields]))


def _ancestors(table: Table) -> Iterator[Snapshot]:
    snapshot = table.current_snapshot()
    while snapshot is not None:
        yield snapshot
        parent = snapshot.parent_snapshot_id
        snapshot = table.snapshot_by_id(parent) if parent is not None else None


def held(table: Table) -> Held:
    """Where the table is. Other writers may have come after us; what they did says nothing about offsets."""
    for snapshot in _ancestors(table):
        said: Mapping[str, Any] = snapshot.summary.additional_properties if snapshot.summary else {}
        if _OFFSETS in said:
            return Held(
                said.get(_TOPIC, ""),
                said.get(_ID, ""),
                from_json(json.loads(said[_OFFSETS])),
                from_json(json.loads(said.get(_SKIPPED, "{}"))),
            )
    if table.current_snapshot() is not None:
        raise HeadraceError(
            ErrorKind.CORRUPT_MESSAGE,
            f"no snapshot of {'.'.join(table.name())} says up to which offset it is",
            "Others wrote to it, and what we wrote has expired. Give the pipeline another table.",
        )
    return Held()


def commit(table: Table, paths: Sequence[str], properties: Mapping[str, str]) -> None:
    """These files, and how far the table is with them, in one snapshot. `table` is as it was when the round was planned."""
    planned = table.current_snapshot()
    if table.properties.get(_RETRIES) != "0":
        with table.transaction() as change:
            change.set_properties({_RETRIES: "0"})
        if table.current_snapshot() != planned:
            raise CommitTaken(
                f"{'.'.join(table.name())} was changed by somebody else since this round was planned"
            )
    try:
        table.add_files(list(paths), snapshot_properties=dict(properties))
    except CommitFailedException as problem:
        raise CommitTaken(
            f"{'.'.join(table.name())} was changed by somebody else since this round was planned: {problem}"
        ) from None


def data_directory(table: Table) -> str:
    return f"{table.location().rstrip('/')}/data"
