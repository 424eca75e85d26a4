"""Command: `headrace schema register`."""

from __future__ import annotations

import click

from headrace.cli.completing import complete_subjects
from headrace.cli.http_link import part
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape
from headrace.cli.schema_view import REFERENCE_OPTION, TYPE_OPTION, SchemaRow, given_schema, schema_row


@leaf(SchemaRow, Shape.ONE, http=True)
@click.argument("subject", shell_complete=complete_subjects)
@click.argument("path", metavar="FILE", type=click.Path(exists=True, dir_okay=False, allow_dash=True))
@TYPE_OPTION
@REFERENCE_OPTION
@click.option("--normalize", is_flag=True, help="Bring it into one form first, so that order does not count.")
def command(
    run: Invocation, subject: str, path: str, kind: str | None, references: tuple[str, ...], normalize: bool
) -> None:
    """Register a schema as the next version of a subject. What is there already keeps its id.

    Values of the topic orders belong to the subject orders-value, its keys to orders-key.

    \b
    headrace schema register orders-value order.avsc
    """
    body = given_schema(path, kind, references)
    query = {"normalize": "true"} if normalize else None
    run.http.ask("POST", f"/schemas/subjects/{part(subject)}/versions", body, query=query)
    row = schema_row(run.http.ask("POST", f"/schemas/subjects/{part(subject)}", body, query=query))
    run.output.one(row, lambda: str(row.id))
    run.done(f"Version {row.version} of {subject} has the id {row.id}")
