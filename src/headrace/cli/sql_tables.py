"""Command: what `headrace sql` knows of tables: where they are, and how DuckDB is asked about them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

from headrace.cli.failure import Exit, Failure
from headrace.cli.invocation import Invocation
from headrace.cli.pipelines import definition_of, pipelines_of

if TYPE_CHECKING:
    import pyarrow as pa

    from headrace.spark.iceberg.view import TableView


def table_views(run: Invocation, given: tuple[str, ...], as_of: str) -> dict[str, TableView]:
    """Topic -> its table: those of pipelines with a local warehouse, and those whose definitions are named."""
    try:
        from headrace.spark.iceberg.view import TableView
    except ImportError:
        if given or as_of:
            raise Failure(
                Exit.FAILED, "tables need pyiceberg", "pip install 'headrace[spark,tables]'"
            ) from None
        return {}
    live = None if as_of else {"bootstrap": run.profile.bootstrap}
    found: dict[str, TableView] = {}
    with pipelines_of(run) as pipelines:
        for row in pipelines.rows().values():
            if row.kind == "table" and row.table and Path(row.path, "catalog.db").is_file():
                found.update(
                    {topic: TableView(row.path, row.table, as_of=as_of, live=live) for topic in row.topics}
                )
    for text in given:
        topic, equals, file = text.partition("=")
        if not equals:
            raise Failure(
                Exit.USAGE, f'"{text}" is not TOPIC=FILE', "headrace sql --table orders=orders-table.toml …"
            )
        found[topic] = view_of(Path(file), as_of, live)
    return found


def view_of(file: Path, as_of: str = "", live: dict[str, str] | None = None) -> TableView:
    from headrace.spark.iceberg.view import TableView
    from headrace.spark.pipelines.definition import Table

    definition = definition_of(file)
    if not isinstance(definition, Table):
        raise Failure(Exit.USAGE, f"{file} is no pipeline of the kind table")
    source = definition.options if live is not None else None
    return TableView(
        definition.warehouse, definition.table_name, dict(definition.catalog), None, as_of, source
    )


def asked_duckdb(
    run: Invocation, query: str, topics: dict[str, TableView | None], limit: int
) -> tuple[list[tuple[Any, ...]], list[str]]:
    """(rows, names of columns). What DuckDB asks is in the memory of this process."""
    try:
        import duckdb
    except ImportError:
        raise Failure(Exit.FAILED, "--engine duckdb needs DuckDB", "pip install duckdb") from None
    from headrace.spark.pipelines.tables import view_name

    with duckdb.connect() as engine:
        for topic, view in topics.items():
            engine.register(view_name(topic), _in_memory(run, topic, view))
        try:
            found = engine.execute(query)
        except duckdb.Error as problem:
            tables = ", ".join(sorted(map(view_name, topics)))
            raise Failure(
                Exit.FAILED, str(problem).splitlines()[0], f"tables: {tables}", code="SQL"
            ) from None
        names = [one[0] for one in found.description or []]
        return found.fetchmany(limit), names


def _in_memory(run: Invocation, topic: str, view: TableView | None) -> pa.Table:
    from headrace.spark.iceberg.tables import remembered_columns
    from headrace.spark.iceberg.view import arrow_table
    from headrace.spark.pipelines.topic_rows import readable, topic_rows

    if view is None:
        return readable(topic_rows(run.profile.bootstrap, topic), topic)
    rows = arrow_table(view)
    columns = remembered_columns(view.load())
    return rows if columns is not None and columns.fields is not None else readable(rows, topic)
