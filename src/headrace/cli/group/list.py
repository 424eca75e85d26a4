"""Command: `headrace group list`."""

from __future__ import annotations

from typing import ClassVar

from headrace.cli.group_offsets import descriptions, group_names, state_name, type_name
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column


class GroupRow(Row):
    SCHEMA: ClassVar[str] = "headrace.group.list/v1"
    name: str
    state: str
    type: str
    members: int


@leaf(GroupRow, Shape.ITEMS, broker=True)
def command(run: Invocation) -> None:
    """List the groups."""
    names = group_names(run.link)
    rows = [
        GroupRow(name=name, state=state_name(group), type=type_name(group), members=len(group.members))
        for name, group in descriptions(run.link, names).items()
    ]
    if not rows:
        run.note("No groups yet. One appears with:  headrace topic consume TOPIC --group NAME")
    run.output.items(
        GroupRow,
        rows,
        [
            column("NAME", "name"),
            column("STATE", "state"),
            column("TYPE", "type"),
            column("MEMBERS", "members", right=True),
        ],
    )
