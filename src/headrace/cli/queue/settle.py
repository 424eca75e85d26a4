"""Command: `headrace queue settle`."""

from __future__ import annotations

from typing import Any, ClassVar

import click

from headrace.cli.completing import complete_queues_and_subscriptions
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column

AT_ONCE = 500


class SettledLockRow(Row):
    SCHEMA: ClassVar[str] = "headrace.queue.settle/v1"
    NAME: ClassVar[str] = "place"
    place: str
    """partition:offset."""
    topic: str
    status: str
    """done or refused."""
    error: str | None = None


@leaf(SettledLockRow, Shape.ITEMS, http=True)
@click.argument("name", shell_complete=complete_queues_and_subscriptions)
@click.argument("places", nargs=-1, metavar="[PARTITION:OFFSET]...")
@click.option("--all", "everything", is_flag=True, help="Whatever is held.")
@click.option("--release", "act", flag_value="release", default=True, help="Let go: it is handed out again.")
@click.option("--ack", "act", flag_value="ack", help="Say that it is done: it is gone.")
@click.option("--reject", "act", flag_value="reject", help="To the dead letters.")
@click.option(
    "--extend", "visibility", help="Keep it so much longer from now on, as in 60s, for whoever holds it."
)
@click.option("--detail", default="", help="Why; it stands in the dead letter.")
def command(
    run: Invocation,
    name: str,
    places: tuple[str, ...],
    everything: bool,
    act: str,
    visibility: str | None,
    detail: str,
) -> Exit | None:
    """Settle messages that somebody else holds, for them: `queue locks` shows which.

    As in: headrace queue settle jobs 0:17 --release. What was delivered again since then is left alone.
    """
    if bool(places) == everything:
        raise Failure(Exit.USAGE, "which messages?", "name them as PARTITION:OFFSET, or --all")
    held: list[dict[str, Any]] = run.http.ask("GET", f"/api/v1/queues/{part(name)}/locks")["items"]
    wanted = [lock for lock in held if everything or f"{lock['partition']}:{lock['offset']}" in places]
    missing = set(places) - {f"{lock['partition']}:{lock['offset']}" for lock in wanted}
    if missing:
        raise Failure(
            Exit.NOT_FOUND, f"nobody holds {', '.join(sorted(missing))}", f"headrace queue locks {name}"
        )
    body: dict[str, Any] = {"act": act, "detail": detail}
    if visibility is not None:
        body |= {"act": "extend", "visibility": visibility}
    refused: dict[str, str] = {}
    for first in range(0, len(wanted), AT_ONCE):
        some = [lock["lock"] for lock in wanted[first : first + AT_ONCE]]
        done = run.http.ask("POST", f"/api/v1/queues/{part(name)}/locks/settle", {**body, "locks": some})
        refused |= {one["receipt"]: one["detail"] for one in done["refused"]}
    rows = [
        SettledLockRow(
            place=f"{lock['partition']}:{lock['offset']}",
            topic=lock["topic"],
            status="refused" if lock["lock"] in refused else "done",
            error=refused.get(lock["lock"]),
        )
        for lock in wanted
    ]
    if not rows:
        run.note("Nobody holds a message of this queue.")
    run.output.items(
        SettledLockRow, rows, [column("STATUS", "status"), column("PLACE", "place"), column("ERROR", "error")]
    )
    if not refused:
        return None
    return Exit.CONFLICT if len(refused) == len(rows) else Exit.PARTIAL
