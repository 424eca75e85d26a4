"""Command: `headrace sql`."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any, ClassVar

import click

from headrace.cli.failure import Exit, Failure, failure_of
from headrace.cli.invocation import Invocation
from headrace.cli.leaf import leaf
from headrace.cli.output import Column, Row, Shape, encode
from headrace.cli.parameters import Number
from headrace.cli.pipelines import need_spark, pipelines_of
from headrace.cli.sql_tables import asked_duckdb, table_views
from headrace.core.errors import HeadraceError


class SqlRow(Row):
    SCHEMA: ClassVar[str] = "headrace.sql/v1"
    NAME: ClassVar[str] = "columns"
    columns: dict[str, Any]


@leaf(SqlRow, Shape.ITEMS, broker=True)
@click.argument("query")
@click.option(
    "-a",
    "--archive",
    "archives",
    multiple=True,
    metavar="TOPIC=PATH",
    help="Where a topic's history is; archive pipelines are found by themselves.",
)
@click.option(
    "-t",
    "--table",
    "tables",
    multiple=True,
    metavar="TOPIC=FILE",
    help="The definition of the pipeline that keeps a topic as a table; those in a local warehouse are found by themselves.",
)
@click.option(
    "--as-of",
    metavar="TIME",
    help="Tables as they were then, and nothing that came since, as in 2026-01-31T12:00:00Z.",
)
@click.option(
    "--engine",
    type=click.Choice(["spark", "duckdb"]),
    default="spark",
    show_default=True,
    help="DuckDB needs no Java, and takes what is asked into memory.",
)
@click.option("--master", default="local[*]", show_default=True, help="Where Spark runs.")
@click.option("-n", "--limit", type=Number(1), default=1000, show_default=True, help="Rows at most.")
def command(
    run: Invocation,
    query: str,
    archives: tuple[str, ...],
    tables: tuple[str, ...],
    as_of: str | None,
    engine: str,
    master: str,
    limit: int,
) -> None:
    """Ask with SQL over whole topics.

    A topic is its table or its archive and what came since, without a gap and without an overlap.

    A topic is a table of its name (orders.eu-1 is orders_eu_1) with key, value, partition, offset, timestamp; one that a pipeline keeps as a
    table with a schema has the columns of that.

    Example:  headrace sql "select partition, count(*) from orders group by partition"
    """
    if engine == "spark":
        need_spark()
    known = _archives(run, archives)
    views = table_views(run, tables, as_of or "")
    from headrace.spark import register
    from headrace.spark.pipelines.tables import history_and_now, view_name
    from headrace.spark.session import local_session

    topics = {view_name(topic): topic for topic in run.link.topics(internal=False)}
    wanted = [topics[word] for word in dict.fromkeys(re.findall(r"\w+", query)) if word in topics]
    if engine == "duckdb":
        try:
            found, names = asked_duckdb(run, query, {topic: views.get(topic) for topic in wanted}, limit)
        except HeadraceError as problem:
            raise failure_of(problem) from None
        _print(run, [SqlRow(columns=dict(zip(names, map(_plain, row), strict=True))) for row in found], names)
        return
    run.note(f"starting Spark on {master} …")
    spark = local_session("headrace sql", master=master, quiet=run.verbosity == 0)
    register(spark)
    try:
        for topic in wanted:
            if topic in views and topic not in known:
                from headrace.spark.pipelines.kept_tables import readable_table

                frame = readable_table(spark, views[topic], topic)
            else:
                frame = history_and_now(spark, run.profile.bootstrap, topic, known.get(topic))
            frame.createOrReplaceTempView(view_name(topic))
        frame = spark.sql(query).limit(limit)
        names = frame.columns
        rows = [SqlRow(columns={name: _plain(row[name]) for name in names}) for row in frame.collect()]
    except HeadraceError as problem:
        raise failure_of(problem) from None
    except Exception as problem:
        raise _sql_failure(problem, topics) from None
    _print(run, rows, names)


def _print(run: Invocation, rows: list[SqlRow], names: list[str]) -> None:
    columns = [Column(name, lambda row, name=name: row.columns[name]) for name in names]  # type: ignore[misc]
    run.output.items(SqlRow, rows, columns)
    if not rows:
        run.note("No rows.")


def _archives(run: Invocation, given: tuple[str, ...]) -> dict[str, Path]:
    found: dict[str, Path] = {}
    with pipelines_of(run) as pipelines:
        for row in pipelines.rows().values():
            if row.kind == "archive" and row.path and Path(row.path, "_log").is_dir():
                found.update({topic: Path(row.path) for topic in row.topics})
    for text in given:
        topic, equals, path = text.partition("=")
        if not equals:
            raise Failure(
                Exit.USAGE, f'"{text}" is not TOPIC=PATH', "headrace sql --archive orders=archive/orders …"
            )
        found[topic] = Path(path)
    return found


def _sql_failure(problem: Exception, topics: dict[str, str]) -> Failure:
    text = str(problem).split("\n\nJVM stacktrace", 1)[0].strip()
    tables = ", ".join(sorted(topics)[:20])
    return Failure(
        Exit.FAILED, text.splitlines()[0] if text else repr(problem), f"tables: {tables}", code="SQL"
    )


def _plain(value: Any) -> Any:
    if isinstance(value, bytes | bytearray):
        return bytes(value).decode(errors="replace")
    if isinstance(value, int | float | str | bool | None):
        return value
    if hasattr(value, "isoformat"):
        return value.isoformat()
    return encode(value.asDict(recursive=True)) if hasattr(value, "asDict") else str(value)
