"""Command: the shape of everything a command prints. Data goes to stdout, chatter to stderr.

A Row is the contract: its fields are what `--json` shows, under a schema name that changes only when the meaning of
a field does. Tables are for people and may change. Every JSON document and every JSON line names its schema.
"""

from __future__ import annotations

import csv
import re
import sys
import textwrap
import unicodedata
from collections.abc import Callable, Iterable, Sequence
from enum import Enum, StrEnum
from pathlib import Path
from typing import Any, ClassVar, NamedTuple

import click
import msgspec

from headrace.core.moments import rfc3339, timed

_HIGH_CONTROLS = re.compile("[\x7f-\x9f]")
NARROWEST = 8
"""A column is not cut below this."""


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
    YAML = "yaml"
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
    whole: bool = False
    """Never cut: it is there to be copied."""


def column(title: str, field: str, *, right: bool = False, wide: bool = False, whole: bool = False) -> Column:
    return Column(title, lambda row: getattr(row, field), right, wide, whole)


def moment(title: str, field: str) -> Column:
    """To the second, and never cut: half a time tells nobody anything."""
    return Column(title, lambda row: _to_the_second(getattr(row, field)), whole=True)


def last_used() -> Column:
    return Column(
        "LAST USED",
        lambda row: "never" if row.last_used_ms is None else _to_the_second(rfc3339(row.last_used_ms)),
        whole=True,
    )


def _to_the_second(text: str | None) -> str | None:
    return None if text is None else re.sub(r"\.\d+", "", text)


def encode(value: object) -> str:
    """JSON escapes control characters below 32; those above can move a cursor as well (X28)."""
    text = msgspec.json.encode(value).decode()
    return _HIGH_CONTROLS.sub(lambda match: f"\\u{ord(match[0]):04x}", text)


def document(row: Row) -> dict[str, Any]:
    return {"schema": row.SCHEMA, **_fields(row)}


def _yaml(value: object) -> str:
    from headrace.cli.yaml_text import yaml_text

    return yaml_text(value)


def _fields(row: Row) -> dict[str, Any]:
    return timed(msgspec.to_builtins(row))


class Output:
    def __init__(
        self, format: Format = Format.TABLE, *, colour: bool = False, width: int | None = None
    ) -> None:
        """`width` is that of somebody's terminal; without one nothing is ever cut, and nothing that others wrote is escaped."""
        self.format = format
        self.colour = colour
        self.on_terminal = width is not None
        self._width = None if format is Format.WIDE else width

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
            listed = [_fields(row) for row in rows]
            click.echo(encode({"schema": kind.SCHEMA, "items": listed}))
        elif self.format is Format.JSONL:
            for row in rows:
                click.echo(encode(document(row)))
        elif self.format is Format.YAML:
            click.echo(_yaml({"schema": kind.SCHEMA, "items": [_fields(row) for row in rows]}), nl=False)
        elif self.format is Format.CSV:
            self._csv(kind, rows)
        elif self.format is Format.NAME:
            for row in rows:
                click.echo(_name(row))
        elif rows:
            self.table(rows, columns)

    def one(self, row: Row, text: Callable[[], str]) -> None:
        """A single thing; `text` makes what people see."""
        if self.is_json:
            click.echo(encode(document(row)))
        elif self.format is Format.YAML:
            click.echo(_yaml(document(row)), nl=False)
        elif self.format is Format.CSV:
            self._csv(type(row), [row])
        elif self.format is Format.NAME:
            click.echo(_name(row))
        elif shown := text():
            click.echo(_clean_lines(shown) if self.on_terminal else shown)

    def line(self, row: Callable[[], Row], text: Callable[[], bytes]) -> None:
        """One of a stream. Only what is shown is made."""
        if self.format is Format.YAML:
            raw = ("---\n" + _yaml(document(row()))).encode()
        else:
            raw = (encode(document(row())) + "\n").encode() if self.is_json else text()
        sys.stdout.buffer.write(raw)

    def table(self, rows: Sequence[Any], columns: Sequence[Column], indent: str = "") -> None:
        click.echo(self.table_text(rows, columns, indent))

    def table_text(self, rows: Sequence[Any], columns: Sequence[Column], indent: str = "") -> str:
        """Columns as wide as their content, two spaces apart: readable, and easy for awk. On a terminal it fits: long
        text is cut (`-o wide` has all of it), and what is too wide all the same is shown one row under the other."""
        shown = [entry for entry in columns if not entry.wide or self.format is Format.WIDE]
        cells = [[_cell(entry.show(row)) for entry in shown] for row in rows]
        widths = [
            max([len(entry.title), *(cells_of(line[index]) for line in cells)])
            for index, entry in enumerate(shown)
        ]
        if self._width is not None and not _fit(widths, shown, self._width - len(indent)):
            return self._stacked(shown, cells, indent)

        def join(line: Sequence[str]) -> str:
            padded = [
                _padding(text, width) + text if entry.right else _filled(_cut(text, width), width)
                for text, width, entry in zip(line, widths, shown, strict=True)
            ]
            return indent + "  ".join(padded).rstrip()

        header = join([entry.title for entry in shown])
        return "\n".join([self.styled(header, bold=True), *(join(line) for line in cells)])

    def _stacked(self, shown: Sequence[Column], cells: Sequence[Sequence[str]], indent: str) -> str:
        pad = max(len(entry.title) for entry in shown)
        room = max(NARROWEST, (self._width or 0) - len(indent) - pad - 2)
        blocks = []
        for line in cells:
            lines = [
                f"{indent}{self.styled(entry.title.ljust(pad), bold=True)}  {text if entry.whole else _cut(text, room)}"
                for entry, text in zip(shown, line, strict=True)
                if text != "-"
            ]
            blocks.append("\n".join(lines))
        return "\n\n".join(blocks)

    def wrapped(self, text: str, indent: int) -> str:
        """Between words, each line below where the first began. A path or a command is there to be copied: it is not cut."""
        clean = printable(text)
        if self._width is None:
            return clean
        room = max(NARROWEST, self._width - indent)
        lines = textwrap.wrap(clean, room, break_long_words=False, break_on_hyphens=False)
        return f"\n{'':<{indent}}".join(lines)

    def styled(self, text: str, **style: Any) -> str:
        clean = printable(text)
        return click.style(clean, **style) if self.colour else clean

    def _csv(self, kind: type[Row], rows: Sequence[Row]) -> None:
        writer = csv.writer(sys.stdout, lineterminator="\n")
        names = list(timed(dict.fromkeys(kind.__struct_fields__)))
        writer.writerow(names)
        for row in rows:
            values = _fields(row)
            cells = [_csv_cell(values[name]) for name in names]
            if self.on_terminal:
                cells = [printable(cell) if isinstance(cell, str) else cell for cell in cells]
            writer.writerow(cells)


def _cell(value: object) -> str:
    return "-" if value is None else words(value)


def words(value: object) -> str:
    """A value for people, never a Python literal: yes, no, lists with commas, JSON for what has more parts (F53)."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, list | tuple) and all(isinstance(entry, str | int) for entry in value):
        return ", ".join(words(entry) for entry in value)
    if isinstance(value, list | tuple | dict) or value is None:
        return printable(encode(value))
    return printable(str(value))


def _name(row: Row) -> str:
    """One line each, whatever they are called: this is for xargs."""
    return printable(str(getattr(row, row.NAME)))


def _fit(widths: list[int], columns: Sequence[Column], room: int) -> bool:
    """Narrow the widest columns until the line fits; False when it can't."""
    able = [index for index, entry in enumerate(columns) if not (entry.right or entry.whole)]
    least = {index: max(NARROWEST, len(columns[index].title)) for index in able}
    while sum(widths) + 2 * (len(widths) - 1) > room:
        able = [index for index in able if widths[index] > least[index]]
        if not able:
            return False
        widths[max(able, key=lambda index: widths[index])] -= 1
    return True


def cells_of(text: str) -> int:
    """How much room it takes on a terminal: Chinese, Japanese and Korean characters and emoji take two cells, accents none."""
    if text.isascii():
        return len(text)
    return sum(_cells(char) for char in text)


def _cells(char: str) -> int:
    if unicodedata.combining(char) or unicodedata.category(char) in ("Mn", "Me", "Cf"):
        return 0
    return 2 if unicodedata.east_asian_width(char) in ("W", "F") else 1


def _cut(text: str, width: int) -> str:
    if cells_of(text) <= width:
        return text
    room, kept = width - 1, []
    for char in text:
        room -= _cells(char)
        if room < 0:
            break
        kept.append(char)
    return "".join(kept) + "…"


def _padding(text: str, width: int) -> str:
    return " " * (width - cells_of(text))


def _filled(text: str, width: int) -> str:
    return text + _padding(text, width)


def _clean_lines(text: str) -> str:
    """Lines and tabs are ours; whoever puts a value of others into a line cleans its line feeds (F57)."""
    return "\n".join("\t".join(map(printable, line.split("\t"))) for line in text.split("\n"))


def _csv_cell(value: object) -> object:
    return encode(value) if isinstance(value, list | dict | bool) else value


def short_path(path: str) -> str:
    """As a shell takes it, and short enough for a line."""
    home = str(Path.home())
    return f"~{path[len(home) :]}" if path.startswith(home + "/") else path


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
