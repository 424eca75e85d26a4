"""Command: what the pipeline commands share: definitions, the board, and words for what is missing."""

from __future__ import annotations

import time
from collections.abc import Iterator
from contextlib import contextmanager
from datetime import UTC, datetime
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import msgspec

from headrace.cli.failure import Exit, Failure, did_you_mean, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.output import Row
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.cli.profile import Profile
    from headrace.spark.pipelines.board import Board
    from headrace.spark.pipelines.definition import Kinds


class PipelineRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline/v1"
    name: str
    kind: str
    state: str
    """starting, running, backing-off, failing, stopped, finished, failed, or lost when it says nothing any more."""
    records: int = 0
    bytes: int = 0
    rate: int = 0
    lag: int = 0
    host: str = ""
    pid: int = 0
    master: str = ""
    run: str = ""
    updated: str = ""
    topics: list[str] = msgspec.field(default_factory=list)
    path: str = ""
    table: str = ""
    skipped: int = 0
    """Records that were gone before they were read."""
    dead_rows: int = 0
    """Rows of this run that were not what the schema says."""
    restarts: int = 0
    """How often this run was started again after a failure."""
    error: str = ""


def definition_of(
    file: Path, *, bootstrap: str | None = None, master: str | None = None, confs: tuple[str, ...] = ()
) -> Kinds:
    """The pipeline in a file; flags win over what it says."""
    from headrace.spark.pipelines.definition import DefinitionError, load

    try:
        found = load(file, overrides={"bootstrap": bootstrap} if bootstrap else None)
    except DefinitionError as problem:
        raise Failure(
            Exit.USAGE, f"{file}: {problem}", "docs/pipelines.md has every key", code="INVALID_DEFINITION"
        ) from None
    settings = dict(found.spark.settings)
    for text in confs:
        key, equals, value = text.partition("=")
        if not equals:
            raise Failure(Exit.USAGE, f'"{text}" is not a Spark setting', "write --conf key=value")
        settings[key.strip()] = value.strip()
    spark = msgspec.structs.replace(found.spark, master=master or found.spark.master, settings=settings)
    return msgspec.structs.replace(found, spark=spark)


def need_spark(master: str | None = None) -> None:
    from headrace.spark.session import SparkMissing, require_spark

    try:
        require_spark(master)
    except SparkMissing as problem:
        raise Failure(Exit.FAILED, str(problem), code="SPARK_MISSING") from None


@contextmanager
def board_of(run: Invocation) -> Iterator[Board]:
    from headrace.spark.connection import Access
    from headrace.spark.pipelines.board import Board
    from headrace.spark.sync_client import SyncClient

    run.link.reach()
    access = Access(run.profile.bootstrap, "headrace-cli", run.profile.timeout_ms / 1000)
    try:
        with SyncClient(access) as client:
            yield Board(client)
    except HeadraceError as problem:
        raise failure_of(problem) from None


def names_on_the_board(profile: Profile) -> list[str]:
    from headrace.spark.connection import Access
    from headrace.spark.pipelines.board import Board
    from headrace.spark.sync_client import SyncClient

    with SyncClient(Access(profile.bootstrap, "headrace-cli", profile.timeout_ms / 1000)) as client:
        return sorted(Board(client).pipelines(int(time.time() * 1000)))


def rows_of(board: Board) -> list[PipelineRow]:
    entries = board.pipelines(int(time.time() * 1000))
    return [_row(name, entry) for name, entry in sorted(entries.items())]


def need_pipeline(board: Board, name: str) -> PipelineRow:
    rows = {row.name: row for row in rows_of(board)}
    if name not in rows:
        raise Failure(
            Exit.NOT_FOUND,
            f'no pipeline "{name}" is known',
            did_you_mean(name, rows) or "headrace pipeline list",
        )
    return rows[name]


def _row(name: str, entry: dict[str, Any]) -> PipelineRow:
    """What is on the board was written by a client, so nothing in it is taken for granted."""
    kinds: dict[str, type] = {field: type(value) for field, value in _EMPTY.items()}
    known = {
        field: entry[field]
        for field, kind in kinds.items()
        if field in entry and isinstance(entry[field], kind)
    }
    updated = entry.get("updated_ms")
    if isinstance(updated, int):
        known["updated"] = f"{datetime.fromtimestamp(updated / 1000, UTC):%Y-%m-%dT%H:%M:%SZ}"
    return PipelineRow(**{**_EMPTY, **known, "name": name})


_EMPTY: dict[str, Any] = {
    "kind": "", "state": "", "records": 0, "bytes": 0, "rate": 0, "lag": 0, "host": "", "pid": 0,
    "master": "", "run": "", "topics": [], "path": "", "table": "", "skipped": 0, "dead_rows": 0, "restarts": 0, "error": "",
}  # fmt: skip
