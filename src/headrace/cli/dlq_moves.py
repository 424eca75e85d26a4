"""Command: a move of dead letters, asked for and watched: redrive, edit, discard."""

from __future__ import annotations

import time
from typing import Any, ClassVar

import msgspec

from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.output import Row, column, counted, words
from headrace.cli.progress import progress

LOOK_S = 0.2
DOING = {"redrive": "Redriving", "edit": "Editing", "discard": "Discarding"}
DONE = {"redrive": "Redriven", "edit": "Edited", "discard": "Discarded"}
WOULD = {"redrive": "Would move", "edit": "Would edit", "discard": "Would discard"}


class SampleRow(msgspec.Struct):
    before: dict[str, Any]
    after: dict[str, Any]


class RedriveRow(Row):
    SCHEMA: ClassVar[str] = "headrace.dlq.redrive/v1"
    NAME: ClassVar[str] = "id"
    id: str
    source: str
    act: str
    """redrive, edit or discard."""
    to: str
    """Empty: where each message came from."""
    status: str
    moved: int
    to_move: int
    skipped: int
    """Left alone, because what is set does not fit them."""
    rate: int
    filter: str
    set: list[str]
    by: str
    started_ms: int
    failure: str
    samples: list[SampleRow]
    """Of a dry run with --set: three of them, before and after."""


REDRIVE_COLUMNS = [
    column("TASK", "id", whole=True),
    column("QUEUE", "source"),
    column("ACT", "act"),
    column("STATUS", "status"),
    column("DONE", "moved", right=True),
    column("OF", "to_move", right=True),
    column("BY", "by", wide=True),
    column("FAILURE", "failure", wide=True),
]


def redrive_row(item: dict[str, Any]) -> RedriveRow:
    return msgspec.convert(item, RedriveRow)


def plan_move(run: Invocation, name: str, body: dict[str, Any]) -> RedriveRow:
    """What it would do, and nothing happens."""
    return redrive_row(run.http.ask("POST", f"/api/v1/queues/{part(name)}/moves", {**body, "dry_run": True}))


def show_plan(run: Invocation, plan: RedriveRow) -> None:
    run.output.one(plan, lambda: "\n".join(_change(sample) for sample in plan.samples))
    words = f"{WOULD[plan.act]} {counted(plan.to_move, 'message')}"
    if plan.skipped:
        words += f"; {counted(plan.skipped, 'message')} would stay as they are, because it does not fit them"
    run.done(words + (f" ({plan.failure})" if plan.failure else ""))


def _change(sample: SampleRow) -> str:
    place = f"{sample.before['partition']}:{sample.before['offset']}"
    before, after = words(sample.before["value"]), words(sample.after["value"])
    return f"{place}  {before}\n{' ' * len(place)}→ {after}"


def move(run: Invocation, name: str, body: dict[str, Any], *, no_wait: bool) -> Exit:
    path = f"/api/v1/queues/{part(name)}/moves"
    began = time.monotonic()
    row = redrive_row(run.http.ask("POST", path, body))
    if not no_wait:
        row = _finished(run, path, row)
    run.output.one(row, lambda: "")
    if row.status == "failed":
        raise Failure(Exit.FAILED, f"the {row.act} stopped after {row.moved} messages: {row.failure}")
    if no_wait:
        run.done(f"Started. See:  headrace dlq status {name}")
        return Exit.OK
    words = (
        f"{DONE[row.act]} {counted(row.moved, 'message')} in {time.monotonic() - began:.1f}s ({row.status})"
    )
    run.done(words + (f"; {counted(row.skipped, 'message')} left as they were" if row.skipped else ""))
    return Exit.OK


def _finished(run: Invocation, path: str, row: RedriveRow) -> RedriveRow:
    """What became of it."""
    with progress(run, f"{DOING[row.act]} {row.source}", row.to_move) as advance:
        advance(row.moved)
        while row.status in ("running", "cancelling"):
            time.sleep(LOOK_S)  # noqa: TID251 - a person waits for the broker here
            now = next((redrive_row(item) for item in run.http.all_items(path) if item["id"] == row.id), row)
            advance(now.moved - row.moved)
            row = now
    return row
