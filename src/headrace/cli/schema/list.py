"""Command: `headrace schema list`."""

from __future__ import annotations

import click

from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Shape, column
from headrace.cli.schema_view import SubjectRow

COLUMNS = [
    column("SUBJECT", "subject"),
    column("TYPE", "type"),
    column("LATEST", "latest", right=True),
    column("ID", "id", right=True),
    column("VERSIONS", "versions", wide=True),
]


@leaf(SubjectRow, Shape.ITEMS, http=True)
@click.option(
    "--prefix", default="", help="Only subjects that begin so; :.dev: is a context, :*: is all of them."
)
@click.option("--deleted", is_flag=True, help="Also what was deleted, and not for good.")
def command(run: Invocation, prefix: str, deleted: bool) -> None:
    """List the subjects of the schema registry."""
    query = {"subjectPrefix": prefix, **({"deleted": "true"} if deleted else {})}
    rows: dict[str, SubjectRow] = {}
    for found in run.http.ask("GET", "/schemas/schemas", query=query):
        row = rows.get(found["subject"])
        if row is None:
            row = rows[found["subject"]] = SubjectRow(
                subject=found["subject"], type="", latest=0, versions=[], id=0
            )
        row.type, row.id = found.get("schemaType", "AVRO"), found["id"]
        row.latest = found["version"]
        row.versions.append(found["version"])
    if not rows:
        run.note("No schemas yet. Register one with:  headrace schema register orders-value order.avsc")
    run.output.items(SubjectRow, rows.values(), COLUMNS)
