"""Command: `headrace schema delete`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_subjects
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, column, counted
from headrace.cli.schema_view import DeletedVersionRow

COLUMNS = [
    column("SUBJECT", "subject"),
    column("VERSION", "version", right=True),
    column("FOR GOOD", "permanent"),
]


@leaf(DeletedVersionRow, Shape.ITEMS, http=True, confirms=True, dry_run=True)
@click.argument("subject", shell_complete=complete_subjects)
@click.argument("version", required=False)
@click.option("--permanent", is_flag=True, help="For good: who has records with it can't read them any more.")
def command(run: Invocation, subject: str, version: str | None, permanent: bool, dry_run: bool) -> None:
    """Delete versions of a subject, all or one. Schemas stay readable by their ids unless --permanent is given."""
    path = f"/schemas/subjects/{part(subject)}"
    every = run.http.ask("GET", f"{path}/versions", query={"deleted": "true" if permanent else "false"})
    if version is not None and version not in map(str, every):
        raise Failure(Exit.NOT_FOUND, f"{subject} has no version {version}", f"headrace schema get {subject}")
    chosen = every if version is None else [int(version)]
    rows = [DeletedVersionRow(subject=subject, version=number, permanent=permanent) for number in chosen]
    if not dry_run:
        run.confirm(f"delete {counted(len(rows), 'version')} of {subject}{' for good' if permanent else ''}")
        alive = _alive(run, path) if permanent else []
        for number in chosen:
            one = f"{path}/versions/{number}"
            if not permanent or number in alive:
                run.http.ask("DELETE", one)
            if permanent:
                run.http.ask("DELETE", one, query={"permanent": "true"})
    run.output.items(DeletedVersionRow, rows, COLUMNS)


def _alive(run: Invocation, path: str) -> list[int]:
    """Those that are not deleted softly yet, which comes before the end."""
    try:
        return list(run.http.ask("GET", f"{path}/versions"))
    except Failure as failure:
        if failure.exit is Exit.NOT_FOUND:
            return []
        raise
