"""Adapter: tables of pipelines as records of their topic again: for replays, audits and SQL. Needs pyiceberg, which archives do not."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING

from headrace.core.errors import HeadraceError
from headrace.spark.iceberg.source import table_frame
from headrace.spark.iceberg.tables import TableState, dead_name, held, remembered_columns
from headrace.spark.iceberg.view import TableView

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession


def table_records(spark: SparkSession, view: TableView) -> DataFrame:
    """The records of a topic as its table has them, dead ones among them: partition, offset, timestamp, key, headers, and value, which is null
    where only the columns of a schema are kept (`has_bytes` tells)."""
    columns = remembered_columns(view.load())
    frame = table_frame(spark, view)
    if columns is None or columns.fields is None:
        value = "cast(value as binary)"
    else:
        value = "_raw" if columns.keep_raw else "cast(null as binary)"
    place = [
        "_topic_partition as partition",
        "_offset as offset",
        "_timestamp as timestamp",
        "_key as key",
        "_headers as headers",
    ]
    rows = frame.selectExpr(*place, f"{value} as value")
    grave = replace(view, table=dead_name(view.table), live=None)
    try:
        grave.load()
    except HeadraceError:
        return rows
    return rows.unionByName(table_frame(spark, grave).selectExpr(*place, "_value as value"))


def has_bytes(view: TableView) -> bool:
    """Does the table keep the bytes of each value?"""
    columns = remembered_columns(view.load())
    return columns is None or columns.fields is None or columns.keep_raw


def readable_table(spark: SparkSession, view: TableView, topic: str) -> DataFrame:
    """A table as `headrace sql` shows it: without a schema as any topic is shown, else its columns."""
    columns = remembered_columns(view.load())
    frame = table_frame(spark, view)
    if columns is not None and columns.fields is not None:
        return frame
    names = ["cast(_key as string) as key", "cast(value as string) as value", "_topic_partition as partition"]
    return frame.selectExpr(*names, "_offset as offset", "_timestamp as timestamp", f"'{topic}' as topic")


def state_of(view: TableView) -> tuple[TableState, int]:
    """How far the table is, and which snapshot says so."""
    table = view.load()
    snapshot = table.current_snapshot()
    return held(table), snapshot.snapshot_id if snapshot is not None else 0
