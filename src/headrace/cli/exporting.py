"""Command: what the broker streams as a file, to a file or to standard output."""

from __future__ import annotations

import csv
import io
import sys
from collections.abc import Iterable, Iterator
from contextlib import AbstractContextManager
from typing import IO, ClassVar

import click

from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.output import Row, printable
from headrace.cli.progress import Advance, progress


class ExportRow(Row):
    SCHEMA: ClassVar[str] = "headrace.export/v1"
    name: str
    file: str
    bytes: int


def export_options(function: click.decorators.FC) -> click.decorators.FC:
    for option in (
        click.option("--to", "file", default="-", metavar="FILE", help="Where to; - is standard output."),
        click.option(
            "--as", "kind", type=click.Choice(["jsonl", "csv"]), default="jsonl", show_default=True,
            help="JSON lines, or CSV for a spreadsheet.",
        ),
        click.option("--contains", default="", help="Only messages with this word in key, value or a header."),
        click.option("--filter", "where", default="", help="Only messages that match, as in 'value.amount > 100'."),
    ):  # fmt: skip
        function = option(function)
    return function


def export(run: Invocation, name: str, path: str, file: str, query: dict[str, str]) -> None:
    pieces = run.http.download(path, {key: value for key, value in query.items() if value})
    if file == "-":
        if run.output.on_terminal:
            pieces = _clean(pieces, query["format"])
        with _bar(run, name, prints=True) as advance:
            _write(pieces, sys.stdout.buffer, advance)
            sys.stdout.buffer.flush()
        return
    try:
        with open(file, "wb") as target, _bar(run, name) as advance:
            size = _write(pieces, target, advance)
    except OSError as problem:
        raise Failure(Exit.USAGE, f"{file}: {problem.strerror}") from None
    run.output.one(ExportRow(name=name, file=file, bytes=size), lambda: "")
    run.done(f"Exported to {file} ({size:,} bytes)")


def _bar(run: Invocation, name: str, *, prints: bool = False) -> AbstractContextManager[Advance]:
    return progress(run, f"Exporting {printable(name)}", None, size=True, prints=prints)


def _write(pieces: Iterable[bytes], target: IO[bytes], advance: Advance) -> int:
    size = 0
    for piece in pieces:
        size += target.write(piece)
        advance(len(piece))
    return size


def _clean(pieces: Iterable[bytes], kind: str) -> Iterator[bytes]:
    """X28: whoever only looks at it sees no escapes of others, and a line feed in a cell forges no line. Files and pipes get the very bytes."""
    lines = _lines(pieces)
    if kind != "csv":
        yield from (f"{printable(line[:-1])}\n".encode() for line in lines)
        return
    for cells in csv.reader(lines):
        row = io.StringIO()
        csv.writer(row, lineterminator="\n").writerow(map(printable, cells))
        yield row.getvalue().encode()


def _lines(pieces: Iterable[bytes]) -> Iterator[str]:
    rest = b""
    for piece in pieces:
        *lines, rest = (rest + piece).split(b"\n")
        yield from (line.decode(errors="backslashreplace") + "\n" for line in lines)
    if rest:
        yield rest.decode(errors="backslashreplace") + "\n"
