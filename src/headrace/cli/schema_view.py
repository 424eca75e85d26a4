"""Command: schemas as commands show them, and where a schema comes from."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import Any, ClassVar

import click

from headrace.cli.failure import Exit, Failure
from headrace.cli.http_link import HttpLink, part
from headrace.cli.output import Row

TYPES = {".avsc": "AVRO", ".json": "JSON", ".proto": "PROTOBUF"}


class SubjectRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schema.subject/v1"
    NAME: ClassVar[str] = "subject"
    subject: str
    type: str
    latest: int
    versions: list[int]
    id: int


class SchemaRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schema/v1"
    NAME: ClassVar[str] = "id"
    subject: str | None
    version: int | None
    id: int
    type: str
    text: str
    references: list[dict[str, Any]]


class CompatibilityRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schema.check/v1"
    NAME: ClassVar[str] = "subject"
    subject: str
    is_compatible: bool
    level: str
    problems: list[str]


class CompatRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schema.compat/v1"
    NAME: ClassVar[str] = "level"
    subject: str | None
    level: str


class DeletedVersionRow(Row):
    SCHEMA: ClassVar[str] = "headrace.schema.delete/v1"
    NAME: ClassVar[str] = "version"
    subject: str
    version: int
    permanent: bool


def schema_row(found: dict[str, Any]) -> SchemaRow:
    return SchemaRow(
        subject=found.get("subject"),
        version=found.get("version"),
        id=found["id"],
        type=found.get("schemaType", "AVRO"),
        text=found["schema"],
        references=found.get("references", []),
    )


def given_schema(path: str, kind: str | None, references: tuple[str, ...]) -> dict[str, Any]:
    """The body of a request about a schema in a file; - is stdin."""
    text = sys.stdin.read() if path == "-" else Path(path).read_text()
    kind = kind or TYPES.get(Path(path).suffix)
    if kind is None:
        raise Failure(
            Exit.USAGE,
            f"of which type is {path}?",
            "--type AVRO, JSON or PROTOBUF; .avsc, .json and .proto say it",
        )
    body: dict[str, Any] = {"schema": text, "schemaType": kind.upper()}
    if references:
        body["references"] = [_reference(entry) for entry in references]
    return body


def _reference(text: str) -> dict[str, Any]:
    name, equals, rest = text.partition("=")
    subject, colon, version = rest.rpartition(":")
    if not equals or not colon or not version.isdecimal():
        raise Failure(Exit.USAGE, f"{text!r} is not a reference", "--reference NAME=SUBJECT:VERSION")
    return {"name": name, "subject": subject, "version": int(version)}


def level_of(http: HttpLink, subject: str | None) -> str:
    if subject is None:
        found = http.ask("GET", "/schemas/config")
    else:
        found = http.ask("GET", f"/schemas/config/{part(subject)}", query={"defaultToGlobal": "true"})
    return str(found["compatibilityLevel"])


TYPE_OPTION = click.option(
    "--type", "kind", type=click.Choice(["AVRO", "JSON", "PROTOBUF"], case_sensitive=False),
    help="Of which type it is; the end of a file's name says it, too (.avsc, .json, .proto).",
)  # fmt: skip
REFERENCE_OPTION = click.option(
    "--reference", "references", multiple=True, metavar="NAME=SUBJECT:VERSION",
    help="What it imports under NAME. May be given several times.",
)  # fmt: skip
