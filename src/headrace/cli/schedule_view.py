"""Command: a cron schedule that was changed, as `schedule run`, `pause` and `resume` show it."""

from __future__ import annotations

from typing import ClassVar

import msgspec

from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.output import Row
from headrace.core.moments import rfc3339


class ChangedScheduleRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schedule.change/v1"
    name: str
    cron: str
    topic: str
    paused: bool
    next_ms: int


def change_schedule(run: Invocation, name: str, verb: str, done: str) -> None:
    row = msgspec.convert(run.http.ask("POST", f"/api/v1/schedules/{part(name)}/{verb}"), ChangedScheduleRow)
    run.output.one(row, lambda: "")
    run.done(f"{done} {name}; its next tick is at {rfc3339(row.next_ms)}")
