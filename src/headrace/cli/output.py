"""Command: the shape of everything a command prints. Data goes to stdout, chatter to stderr.

A Row is the contract: its fields are what `--json` shows, under a schema name that changes only when the meaning of
a field does. Tables are for people and may change. Every JSON document and every JSON line names its schema.
"""

from __future__ import annotations

import csv
import sys
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, StrEnum
from typing import Any, ClassVar, NamedTuple

import click
import msgspec


class Row(msgspec.Struct, kw_only=True):
    """What a command prints about one thing."""

    SCHEMA: ClassVar[str]
    NAME: ClassVar[str] = "name"
    """The field that `-o name` prints."""


class Shape(Enum):
    ITEMS = "items"
    """One document with a list."""
    ONE = "one"
    """One document that is the thing itself."""
    STREAM = "stream"
    """One line for each, as they come."""


class Format(StrEnum):
    TABLE = "table"
    WIDE = "wide"
    JSON = "json"
    JSONL = "jsonl"
    CSV = "csv"
    NAME = "name"


FORMATS = [entry.value for entry in Format]


class Column(NamedTuple):
    """How a person sees one aspect of a row."""

    title: str
    show: Callable[[Any], object]
    right: bool = False
    wide: bool = False
    """Only shown with `-o wide`."""


def column(title: str, field: str, *, right: bool = False, wide: bool = False) -> Column:
    return Column(title, lambda row: getattr(row, field), right, wide)


def encode(value: object) -> str:
    return msgspec.json.encode(value).decode()


def document(row: Row) -> dict[str, Any]:
    return {"schema": row.SCHEMA, **msgspec.to_builtins(row)}


class Output:
    def __init__(self, format: Format = Format.TABLE, *, colour: bool = False) -> None:
        self.format = format
        self.colour = colour

    @property
    def for_people(self) -> bool:
        return self.format in (Format.TABLE, Format.WIDE)

    @property
    def is_json(self) -> bool:
        return self.format in (Format.JSON, Format.JSONL)

    def items(self, kind: type[Row], rows: Iterable[Row], columns: Sequence[Column]) -> None:
        """A list of things. Nothing is printed for people when it is empty: the command says why on stderr."""
        rows = list(rows)
        if self.format is Format.JSON:
            listed = [msgspec.to_builtins(row) for row in rows]
            click.echo(encode({"schema": kind.SCHEMA, "items": listed}))
        elif self.format is Format.JSONL:
            for row in rows:
                click.echo(encode(document(row)))
        elif self.format is Format.CSV:
            self._csv(kind, rows)
        elif self.format is Format.NAME:
            for row in rows:
                click.echo(getattr(row, row.NAME))
        elif rows:
            self.table(rows, columns)

    def one(self, row: Row, text: Callable[[], str]) -> None:
        """A single thing; `text` makes what people see."""
        if self.is_json:
            click.echo(encode(document(row)))
        elif self.format is Format.CSV:
            self._csv(type(row), [row])
        elif self.format is Format.NAME:
            click.echo(getattr(row, row.NAME))
        elif shown := text():
            click.echo(shown)

    def line(self, row: Callable[[], Row], text: Callable[[], bytes]) -> None:
        """One of a stream. Only what is shown is made."""
        raw = (encode(document(row())) + "\n").encode() if self.is_json else text()
        sys.stdout.buffer.write(raw)

    def table(self, rows: Sequence[Any], columns: Sequence[Column], indent: str = "") -> None:
        click.echo(self.table_text(rows, columns, indent))

    def table_text(self, rows: Sequence[Any], columns: Sequence[Column], indent: str = "") -> str:
        """Columns as wide as their content, two spaces apart: readable, and easy for awk."""
        shown = [entry for entry in columns if not entry.wide or self.format is Format.WIDE]
        cells = [[_cell(entry.show(row)) for entry in shown] for row in rows]
        widths = [
            max([len(entry.title), *(len(line[index]) for line in cells)])
            for index, entry in enumerate(shown)
        ]

        def join(line: Sequence[str]) -> str:
            padded = [
                text.rjust(width) if entry.right else text.ljust(width)
                for text, width, entry in zip(line, widths, shown, strict=True)
            ]
            return indent + "  ".join(padded).rstrip()

        header = join([entry.title for entry in shown])
        return "\n".join([self.styled(header, bold=True), *(join(line) for line in cells)])

    def styled(self, text: str, **style: Any) -> str:
        return click.style(text, **style) if self.colour else text

    def _csv(self, kind: type[Row], rows: Sequence[Row]) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        writer.writerow(kind.__struct_fields__)
        for row in rows:
            values = msgspec.to_builtins(row)
            writer.writerow([_csv_cell(values[name]) for name in kind.__struct_fields__])


def _cell(value: object) -> str:
    if value is None:
        return "-"
    if isinstance(value, bool):
        return "yes" if value else "no"
    return printable(str(value))


def _csv_cell(value: object) -> object:
    return encode(value) if isinstance(value, list | dict | bool) else value


def printable(text: str) -> str:
    """X28: what a client wrote can't move the cursor or forge lines on somebody's terminal."""
    if text.isprintable():
        return text
    return "".join(char if char.isprintable() else char.encode("unicode_escape").decode() for char in text)


def counted(number: int, noun: str) -> str:
    """`1 message`, `1 204 messages`."""
    return f"{grouped(number)} {noun if number == 1 else noun + 's'}"


def grouped(number: int) -> str:
    return f"{number:,}".replace(",", " ")
