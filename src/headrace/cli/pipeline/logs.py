"""Command: `headrace pipeline logs`."""

from __future__ import annotations

import os
import socket
import sys
from collections import deque
from pathlib import Path
from typing import ClassVar

import click

from headrace.cli.completing import complete_pipelines
from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, printable
from headrace.cli.parameters import Count, Number
from headrace.cli.pipelines import Pipelines, pipelines_of


class LogRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.logs/v1"
    name: str
    run: int
    line: str


@leaf(LogRow, Shape.STREAM, broker=True)
@click.argument("name", shell_complete=complete_pipelines)
@click.option("-f", "--follow", is_flag=True, help="Go on with new lines and new runs until Ctrl+C.")
@click.option("--run", "number", type=Number(1), help="Of this run; the last one when not given.")
@click.option(
    "-n", "--lines", type=Count(), default=200, show_default=True, help="How many of the last ones first."
)
def command(run: Invocation, name: str, follow: bool, number: int | None, lines: int) -> None:
    """Show what a run of a submitted pipeline has printed. Logs lie on the host that runs it; 20 of each pipeline are kept.

    Example:  headrace pipeline logs orders-table -f
    """
    from headrace.spark.sync_client import pause

    with pipelines_of(run) as pipelines:
        pipelines.need_submitted(name)
        chosen, file = _log_of(pipelines, name, number)
        reader = _Lines(file)
        for line in deque(reader.new(), lines):
            _show(run, name, chosen, line)
        while follow:
            sys.stdout.flush()
            pause(0.3)
            for line in reader.new():
                _show(run, name, chosen, line)
            if number is None:
                pipelines.store.follow()
                hold = pipelines.store.hold(name)
                if hold is not None and hold.run > chosen:
                    chosen, file = _log_of(pipelines, name, hold.run)
                    reader = _Lines(file)
                    run.note(f"run {chosen}:")


def _log_of(pipelines: Pipelines, name: str, number: int | None) -> tuple[int, Path]:
    runs = {one.number: one for one in pipelines.store.runs(name)}
    if not runs:
        raise Failure(Exit.NOT_FOUND, f"{name} has not run yet", f"headrace pipeline status {name}")
    chosen = max(runs) if number is None else number
    if chosen not in runs:
        raise Failure(
            Exit.NOT_FOUND, f"{name} has no run {chosen} any more", f"headrace pipeline history {name}"
        )
    one = runs[chosen]
    file = Path(one.log)
    if not one.log or not file.is_file():
        here = one.host == socket.gethostname()
        raise Failure(
            Exit.NOT_FOUND,
            f"the log of run {chosen} is gone: {one.log}" if here else f"the log of run {chosen} is on {one.host}: {one.log}",
            f"headrace pipeline history {name} --json has its error" if here else f"run this command on {one.host}",
        )  # fmt: skip
    return chosen, file


def _show(run: Invocation, name: str, number: int, line: str) -> None:
    run.output.line(
        lambda: LogRow(name=name, run=number, line=line), lambda: (printable(line) + "\n").encode()
    )


class _Lines:
    """Whole lines of a file that grows, and that may be cut."""

    def __init__(self, file: Path) -> None:
        self._file = file
        self._at = 0
        self._rest = b""

    def new(self) -> list[str]:
        try:
            with self._file.open("rb") as file:
                size = file.seek(0, os.SEEK_END)
                if size < self._at:
                    self._at, self._rest = 0, b""
                file.seek(self._at)
                piece = file.read(size - self._at)
        except OSError:
            return []
        self._at += len(piece)
        *lines, self._rest = (self._rest + piece).split(b"\n")
        return [line.decode(errors="replace") for line in lines]
