"""Command: `headrace schema check`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_subjects
from headrace.cli.failure import Exit
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.schema_view import REFERENCE_OPTION, TYPE_OPTION, CompatibilityRow, given_schema, level_of


@leaf(CompatibilityRow, Shape.ONE, http=True)
@click.argument("subject", shell_complete=complete_subjects)
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@TYPE_OPTION
@REFERENCE_OPTION
def command(run: Invocation, subject: str, path: str, kind: str | None, references: tuple[str, ...]) -> Exit:
    """Say whether a schema could be registered, and what is in the way. Exit 6 when it could not: made for CI."""
    body = given_schema(path, kind, references)
    where = f"/schemas/compatibility/subjects/{part(subject)}/versions"
    found = run.http.ask("POST", where, body, query={"verbose": "true"})
    row = CompatibilityRow(
        subject=subject,
        is_compatible=found["is_compatible"],
        level=level_of(run.http, subject),
        problems=found.get("messages", []),
    )
    run.output.one(row, lambda: "\n".join(row.problems) if row.problems else "compatible")
    if row.is_compatible:
        return Exit.OK
    run.note(f"{subject} takes {row.level} changes only:  headrace schema compat {subject}")
    return Exit.CONFLICT
