"""Command: `headrace security reseal`."""

from __future__ import annotations

from typing import ClassVar

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape
from headrace.cli.security_view import SECURITY


class ResealRow(Row):
    SCHEMA: ClassVar[str] = "headrace.security.reseal/v1"
    NAME: ClassVar[str] = "key"
    key: str
    """The mark of the key under which everything is sealed now."""
    resealed: int
    unreadable: list[str]
    """What no key of the broker opens."""


@leaf(ResealRow, Shape.ONE, http=True)
def command(run: Invocation) -> None:
    """Seal every secret anew under another key.

    First make that key the first line of secrets.key at every broker, and leave the old one below it; the brokers look at the file when this is asked. What
    is sealed: secrets of access keys, delegation tokens and webhooks, and the key that brokers share. Afterwards the old line can go.
    """
    found = run.http.ask("POST", f"{SECURITY}/reseal", {})
    row = ResealRow(key=found["key"], resealed=found["resealed"], unreadable=found["unreadable"])
    run.output.one(row, lambda: f"{row.resealed} secrets are sealed under key {row.key} now")
    for name in row.unreadable:
        run.note(
            f"no key here opens {name}: make it again, or start with the secrets.key that it was sealed with"
        )
    if not row.unreadable:
        run.done("nothing needs an older key: take it out of secrets.key at every broker")
