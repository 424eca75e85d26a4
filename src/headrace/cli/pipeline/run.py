"""Command: `headrace pipeline run`."""

from __future__ import annotations

import sys
from pathlib import Path
from typing import TYPE_CHECKING, Any, ClassVar

import click

from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Row, Shape, counted, grouped
from headrace.cli.pipelines import definition_of, need_spark
from headrace.core.errors import HeadraceError

if TYPE_CHECKING:
    from headrace.spark.service.leash import Leash


class RunRow(Row):
    SCHEMA: ClassVar[str] = "headrace.pipeline.run/v1"
    name: str
    kind: str
    state: str
    records: int
    bytes: int
    lag: int
    rate: int
    """Records a second, over the whole run."""


@leaf(RunRow, Shape.ONE, broker=True)
@click.argument("file", type=click.Path(path_type=Path))
@click.option("--once", is_flag=True, help="Process what is there now, then end.")
@click.option("--master", help="Where Spark runs, as in local[4] or spark://host:7077.")
@click.option("--conf", "confs", multiple=True, metavar="KEY=VALUE", help="A Spark setting.")
@click.option("--supervised", type=click.Path(path_type=Path), hidden=True)
def command(
    run: Invocation,
    file: Path,
    once: bool,
    master: str | None,
    confs: tuple[str, ...],
    supervised: Path | None,
) -> Exit:
    """Run a pipeline until it is stopped, or with --once until everything that is there now is done.

    What Spark itself prints is shown with -v.

    Example:  headrace pipeline run orders-archive.toml --once
    """
    if supervised is not None:
        from headrace.spark.service.leash import Leash

        with Leash(supervised) as leash:
            return _run(run, file, once, master, confs, leash)
    return _run(run, file, once, master, confs, None)


def _run(
    run: Invocation, file: Path, once: bool, master: str | None, confs: tuple[str, ...], leash: Leash | None
) -> Exit:
    definition = definition_of(file, run, master=master, confs=confs)
    need_spark(definition.spark.master)
    from headrace.spark.options import OptionError
    from headrace.spark.pipelines.definition import DefinitionError
    from headrace.spark.pipelines.run import run as run_pipeline

    run.note(f"{definition.kind} pipeline {definition.name}: starting Spark on {definition.spark.master} …")
    try:
        with _bar(run, definition.name) as show:
            entry = run_pipeline(
                definition,
                once=once,
                show=show,
                tell=run.note,
                quiet=run.verbosity == 0 and leash is None,
                leash=leash,
            )
    except HeadraceError as problem:
        raise failure_of(problem) from None
    except (OptionError, DefinitionError) as problem:
        raise Failure(Exit.USAGE, str(problem), code="INVALID_DEFINITION") from None
    except KeyboardInterrupt:
        run.note("stopped; what is committed stays, and the next run goes on from there")
        return Exit.INTERRUPTED
    except Exception as problem:
        raise spark_failure(problem) or problem from None
    row = RunRow(**{name: entry[name] for name in RunRow.__struct_fields__})
    run.output.one(row, lambda: _told(row, entry))
    if leash is not None:
        return Exit.OK  # it has run to its end; its supervisor keeps what it found
    return Exit.OK if entry.get("verdict", "complete") == "complete" else Exit.FAILED


def spark_failure(problem: Exception) -> Failure | None:
    """What Spark could not do is told as Spark's; anything else is a bug of ours."""
    if type(problem).__module__.partition(".")[0] not in ("py4j", "pyspark"):
        return None
    text = str(problem)
    if "Python worker failed to connect back" in text:
        return Failure(
            Exit.FAILED,
            "Python worker failed to connect back: Spark gives it ten seconds to start, and this machine was too busy",
            "run it again: what is committed stays, and the next run goes on from there",
            code="SPARK_BUSY",
        )
    lines = [line.strip() for line in text.splitlines() if line.strip()] or [type(problem).__name__]
    # py4j's first line says which call of its own failed, the second why.
    first = next((line[2:] for line in lines[:2] if line.startswith(": ")), lines[0])
    return Failure(
        Exit.FAILED,
        f"Spark: {first}",
        "run it with -v at its end to see what Spark prints; what is committed stays",
        code="SPARK_FAILED",
    )


def _told(row: RunRow, entry: dict[str, Any]) -> str:
    lines = [
        f"{row.name} {row.state}: {counted(row.records, 'record')}, {grouped(row.rate)}/s, lag {grouped(row.lag)}"
    ]
    if "last_round" in entry:
        lines.append(
            f"the round under way was {entry['last_round']}; the next run goes on from what is committed"
        )
    if "verdict" in entry:
        lines.append(f"verdict: {entry['verdict']}; the report is {entry['report']}/report.html")
    return "\n".join(lines)


class _bar:
    """Records, rate and lag on a person's terminal; nothing elsewhere."""

    def __init__(self, run: Invocation, name: str) -> None:
        self._run = run
        self._name = name
        self._status: Any = None

    def __enter__(self) -> Any:
        if not self._run.shows_progress:
            return lambda entry: None
        from rich.console import Console
        from rich.progress import BarColumn, Progress, SpinnerColumn, TextColumn

        self._status = Progress(
            SpinnerColumn(),
            TextColumn("{task.description}"),
            BarColumn(),
            TextColumn("{task.fields[told]}"),
            console=Console(stderr=True, no_color=not self._run.colours(sys.stderr)),
            transient=True,
        )
        self._status.start()
        task = self._status.add_task(self._name, total=None, told="starting")

        def show(entry: dict[str, Any]) -> None:
            told = f"{grouped(entry['records'])} records  {grouped(entry['rate'])}/s  lag {grouped(entry['lag'])}"
            done = entry["records"]
            self._status.update(task, completed=done, total=done + entry["lag"], told=told)

        return show

    def __exit__(self, *problem: object) -> None:
        if self._status is not None:
            self._status.stop()
