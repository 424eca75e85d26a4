"""Command: `headrace cheat`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape

PAGE = {
    "server": [
        ("headrace start", "a broker in the background"),
        ("headrace serve --ephemeral", "in memory, until Ctrl+C"),
        ("headrace serve --brokers 3", "a cluster on this machine"),
        ("headrace status", "whether it runs"),
        ("headrace doctor", "what is wrong, what to do"),
        ("headrace stop", ""),
    ],
    "topic": [
        ("headrace topic create orders -p 6", "six partitions"),
        ("headrace topic produce orders", "lines from stdin"),
        ("headrace topic tail orders", "as they come"),
        ("headrace topic consume orders -o -10 -n 10", "the last ten"),
        ("headrace topic search orders alice", "newest first"),
        ("headrace topic alter orders -c retention.ms=7d", ""),
    ],
    "group": [
        ("headrace group lag billing", "who is behind, and how far"),
        ("headrace group explain billing", "why"),
        ("headrace group seek billing --to @15m --dry-run", "back a quarter of an hour"),
    ],
    "queue": [
        ("headrace queue create jobs --visibility 30s", ""),
        ("headrace queue send jobs 'resize 7.png' --delay 5m", ""),
        ("headrace queue receive jobs --wait 20s --ack", ""),
        ("headrace queue peek jobs", "takes nothing"),
        ("headrace dlq list", "dead letters, by reason"),
        ("headrace dlq redrive jobs-dead --rate 50/s", "back where they came from"),
        ("headrace schedule add nightly '0 3 * * *' jobs go", "by the calendar"),
        ("headrace webhook add jobs https://example.com/hook", "pushed, signed, retried"),
    ],
    "cluster": [
        ("headrace cluster status", "brokers, what is in trouble"),
        ("headrace cluster drain 2", "before a broker goes"),
        ("headrace context add prod -b k1:9092,k2:9092", "a name for one elsewhere"),
        ("headrace context use prod", "every command goes there"),
    ],
    "security": [
        ("headrace serve --secure", "TLS, users, rights"),
        ("headrace user create alice", ""),
        ("headrace acl add alice read topic orders", ""),
        ("headrace acl explain alice read topic orders", "why something is denied"),
    ],
}


class CheatRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cheat/v1"
    NAME: ClassVar[str] = "command"
    about: str
    command: str
    does: str
    """Empty where the command says it."""


@leaf(CheatRow, Shape.ITEMS)
@click.argument("about", required=False, type=click.Choice(list(PAGE)))
def command(run: Invocation, about: str | None) -> None:
    """Show the commands that people need most, on one page. Or those about one thing."""
    chosen = PAGE if about is None else {about: PAGE[about]}
    rows = [
        CheatRow(about=title, command=line, does=does)
        for title, lines in chosen.items()
        for line, does in lines
    ]
    if not run.output.for_people:
        run.output.items(CheatRow, rows, [])
        return
    for title, lines in chosen.items():
        click.echo(run.output.styled(title, bold=True))
        for line, does in lines:
            click.echo(f"  {line:<50} {does}".rstrip())
    run.note("All of them:  headrace --help     One of them:  headrace topic create --help")
