"""Command: `headrace group describe`."""

from __future__ import annotations

from typing import Any, ClassVar

import click
import msgspec

from headrace.cli.completing import complete_groups
from headrace.cli.group_offsets import (
    GroupPosition,
    descriptions,
    need_groups,
    positions,
    state_name,
    type_name,
)
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, column, counted, printable


class MemberInfo(msgspec.Struct):
    id: str
    client_id: str
    host: str
    instance_id: str | None
    partitions: list[str]


class OffsetInfo(msgspec.Struct):
    topic: str
    partition: int
    committed: int | None
    """None: nothing was committed for this partition yet."""
    end_offset: int | None
    lag: int | None
    member: str | None


class GroupDetail(Row):
    SCHEMA: ClassVar[str] = "headrace.group.describe/v1"
    name: str
    state: str
    type: str
    assignor: str
    coordinator: int | None
    lag: int
    members: list[MemberInfo]
    offsets: list[OffsetInfo]


@leaf(GroupDetail, Shape.ITEMS, broker=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_groups)
def command(run: Invocation, names: tuple[str, ...]) -> None:
    """Show members, offsets and lag of groups."""
    wanted = need_groups(run.link, names)
    found = descriptions(run.link, wanted)
    offsets = positions(run.link, wanted)
    rows = [
        _detail(name, found[name], [entry for entry in offsets if entry.group == name]) for name in wanted
    ]
    if not run.output.for_people:
        run.output.items(GroupDetail, rows, [])
        return
    for index, row in enumerate(rows):
        if index:
            click.echo()
        _show(run, row)


def _detail(name: str, group: Any, offsets: list[GroupPosition]) -> GroupDetail:
    members = [
        MemberInfo(
            member.member_id,
            member.client_id,
            str(member.host).lstrip("/"),
            member.group_instance_id,
            [f"{entry.topic}-{entry.partition}" for entry in member.assignment.topic_partitions],
        )
        for member in group.members
    ]
    owner = {
        (entry.topic, entry.partition): member.member_id
        for member in group.members
        for entry in member.assignment.topic_partitions
    }
    rows = [
        OffsetInfo(
            entry.topic, entry.partition, entry.committed, entry.end, entry.lag, owner.pop(entry[1:3], None)
        )
        for entry in offsets
    ]
    rows += [OffsetInfo(topic, number, None, None, None, member) for (topic, number), member in owner.items()]
    return GroupDetail(
        name=name,
        state=state_name(group),
        type=type_name(group),
        assignor=group.partition_assignor or "",
        coordinator=group.coordinator.id if group.coordinator is not None else None,
        lag=sum(entry.lag or 0 for entry in offsets),
        members=members,
        offsets=sorted(rows, key=lambda row: (row.topic, row.partition)),
    )


def _show(run: Invocation, row: GroupDetail) -> None:
    name = run.output.styled(row.name, bold=True)
    assignor = f", assignor {printable(row.assignor)}" if row.assignor else ""
    click.echo(
        f"{name}: {row.state}, {row.type}, {counted(len(row.members), 'member')}, lag {row.lag}{assignor}"
    )
    if row.members:
        run.output.table(
            row.members,
            [
                column("MEMBER", "id"),
                column("CLIENT", "client_id"),
                column("HOST", "host"),
                Column("PARTITIONS", lambda member: ", ".join(member.partitions)),
            ],
            indent="  ",
        )
    if row.offsets:
        run.output.table(
            row.offsets,
            [
                column("TOPIC", "topic"),
                column("PARTITION", "partition", right=True),
                column("COMMITTED", "committed", right=True),
                column("END", "end_offset", right=True),
                column("LAG", "lag", right=True),
                column("MEMBER", "member"),
            ],
            indent="  ",
        )
