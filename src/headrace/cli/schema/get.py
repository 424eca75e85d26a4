"""Command: `headrace schema get`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_subjects
from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.parameters import Number
from headrace.cli.schema_view import SchemaRow, schema_row


@leaf(SchemaRow, Shape.ONE, http=True)
@click.argument("subject", required=False, shell_complete=complete_subjects)
@click.argument("version", default="latest")
@click.option("--id", "identifier", type=Number(1), help="The schema with this id, of whichever subject.")
def command(run: Invocation, subject: str | None, version: str, identifier: int | None) -> None:
    """Show a schema: the latest of a subject, one of its versions, or one by its id.

    \b
    headrace schema get orders-value
    headrace schema get orders-value 2
    headrace schema get --id 7
    """
    if (subject is None) == (identifier is None):
        raise Failure(Exit.USAGE, "name a subject, or give an --id", "headrace schema list")
    if identifier is not None:
        found = {"id": identifier, **run.http.ask("GET", f"/schemas/schemas/ids/{identifier}")}
    else:
        found = run.http.ask("GET", f"/schemas/subjects/{part(subject or '')}/versions/{part(version)}")
    row = schema_row(found)
    run.output.one(row, lambda: row.text.rstrip("\n"))
