"""Command: `headrace topic delete`."""

from __future__ import annotations

from typing import ClassVar

import click

from headrace.cli.completing import complete_topics
from headrace.cli.failure import Exit, exit_of_many
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, column, counted
from headrace.cli.views import about_views


class DeletedTopicRow(Row):
    SCHEMA: ClassVar[str] = "headrace.topic.delete/v1"
    name: str
    status: str
    """deleted, would delete (with --dry-run), missing or failed."""
    messages: int
    error: str | None = None


@leaf(DeletedTopicRow, Shape.ITEMS, broker=True, confirms=True, dry_run=True)
@click.argument("names", nargs=-1, required=True, shell_complete=complete_topics)
@click.option("--if-exists", is_flag=True, help="A topic that does not exist is no error.")
def command(run: Invocation, names: tuple[str, ...], if_exists: bool, dry_run: bool) -> Exit:
    """Delete topics and everything in them."""
    link = run.link
    known = link.topics()
    wanted = list(dict.fromkeys(names))
    missing = [name for name in wanted if name not in known]
    failures = [] if if_exists else [link.no_such_topic(name, known, may_create=False) for name in missing]
    if failures and len(missing) == len(wanted):
        for failure in failures[1:]:
            run.explain(failure)
        raise failures[0]
    doomed = [name for name in wanted if name in known]
    spans = link.spans({name: known[name] for name in doomed})
    messages = {name: sum(span.messages for key, span in spans.items() if key[0] == name) for name in doomed}
    if doomed and not dry_run:
        listed = ", ".join(f"{name} ({counted(messages[name], 'message')})" for name in doomed)
        run.confirm(f"delete {listed}")
    rows = [DeletedTopicRow(name=name, status="missing", messages=0) for name in missing]
    futures = {}
    if doomed and not dry_run:
        futures = link.admin.delete_topics(doomed, request_timeout=link.timeout_s)
    for name in doomed:
        row = DeletedTopicRow(
            name=name, status="would delete" if dry_run else "deleted", messages=messages[name]
        )
        refused = link.outcome(futures[name], f'topic "{name}"') if name in futures else None
        if refused is not None:
            refused = about_views(link, name, refused)
            failures.append(refused)
            row.status, row.error = "failed", refused.what
        rows.append(row)
    columns = [column("NAME", "name"), column("STATUS", "status"), column("MESSAGES", "messages", right=True)]
    run.output.items(DeletedTopicRow, rows, columns)
    for failure in failures:
        run.explain(failure)
    return exit_of_many(failures, len(rows) - len(failures))
