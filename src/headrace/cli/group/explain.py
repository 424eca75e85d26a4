"""Command: `headrace group explain`."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.completing import complete_groups
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, printable


class Cause(msgspec.Struct):
    cause: str
    sentence: str
    evidence: str
    next_step: str
    command: str
    since: str | None


class GroupExplainRow(Row):
    SCHEMA: ClassVar[str] = "headrace.group.explain/v1"
    NAME: ClassVar[str] = "group"
    group: str
    lag: int
    sentence: str
    findings: list[Cause]


@leaf(GroupExplainRow, Shape.ONE, http=True)
@click.argument("name", shell_complete=complete_groups)
def command(run: Invocation, name: str) -> None:
    """Say why a group is behind: each cause with its evidence and what to do next."""
    found: dict[str, Any] = run.http.ask("GET", f"/api/v1/groups/{part(name)}/explain")
    row = msgspec.convert(found, GroupExplainRow)
    run.output.one(row, lambda: _told(row))


def _told(row: GroupExplainRow) -> str:
    lines = [f"{row.group}: {row.lag} messages behind. {'' if row.findings else row.sentence}".rstrip()]
    for number, cause in enumerate(row.findings, 1):
        since = f"   since {cause.since}" if cause.since else ""
        lines += [f"{number}  {cause.sentence}", f"   {cause.evidence}{since}", f"   {cause.next_step}"]
        lines += [f"   {cause.command}"] if cause.command else []
    return "\n".join(map(printable, lines))
