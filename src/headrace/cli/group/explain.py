"""Command: `headrace group explain`."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.completing import complete_groups
from headrace.cli.explained import Cause, told
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape


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
    head = f"{row.group}: {row.lag} messages behind."
    run.output.one(row, lambda: told(head, row.sentence, row.findings))
