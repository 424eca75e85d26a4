"""Command: `headrace pipeline submit`."""

from __future__ import annotations

import time
from pathlib import Path
from typing import TYPE_CHECKING, ClassVar

import click
import msgspec

from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.pipeline.stop import await_row
from headrace.cli.pipelines import Pipelines, author, definition_of, pipelines_of

if TYPE_CHECKING:
    from headrace.core.pipelines import Submitted


class SubmittedRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.submit/v1"
    name: str
    kind: str
    version: int
    cron: str
    state: str
    """submitted, or what was waited for."""
    state_dir: str
    """Where its runs keep their state: on the host that runs it, or on a disk that all of them share."""


@leaf(SubmittedRow, Shape.ONE, broker=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--wait", is_flag=True, help="Until it has done its first round, or has failed.")
def command(run: Invocation, file: Path, wait: bool) -> None:
    """Keep a definition in the cluster, for the supervisors to run.

    Submitted again it is the next version: its run is stopped and started with that. The definition is checked first,
    its paths become absolute, and secrets in it are refused.

    Example:  headrace pipeline submit orders-table.toml
    """
    from headrace.spark.pipelines.definition import DefinitionError
    from headrace.spark.service import orders

    found = definition_of(file)
    toml = file.read_text()
    if "bootstrap" in run.flags or not _names_bootstrap(toml):
        found = msgspec.structs.replace(found, bootstrap=run.profile.bootstrap)
    with pipelines_of(run) as pipelines:
        try:
            made = orders.submit(pipelines.store, found, toml, author(run), int(time.time() * 1000))
        except DefinitionError as problem:
            raise Failure(
                Exit.USAGE, f"{file}: {problem}", "docs/pipelines.md has every key", code="INVALID_DEFINITION"
            ) from None
        state = _first_word(run, pipelines, made) if wait else "submitted"
    row = SubmittedRow(
        name=made.name, kind=made.kind, version=made.version, cron=made.cron, state=state, state_dir=found.state
    )  # fmt: skip
    run.output.one(row, lambda: f"{row.name}: version {row.version} is {state}")
    if made.version == 1 and not wait:
        run.note("A supervisor runs it:  headrace pipeline supervise")
        run.note(f"Watch it with:  headrace pipeline status {made.name}")


def _first_word(run: Invocation, pipelines: Pipelines, made: Submitted) -> str:
    row = await_row(
        run,
        pipelines,
        made.name,
        lambda row: (
            row.version == made.version
            and (row.state in ("running", "finished", "backing-off", "failing", "failed") or bool(row.cron))
        ),
    )
    if row.error:
        raise Failure(
            Exit.FAILED,
            f"{made.name} is {row.state}: {row.error}",
            f"headrace pipeline logs {made.name}",
            code="RUN_FAILED",
        )
    return row.state


def _names_bootstrap(toml: str) -> bool:
    import tomllib

    return "bootstrap" in tomllib.loads(toml)
