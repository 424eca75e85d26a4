"""Spark on Headrace: `from headrace.spark import register; register(spark)`, then `format("headrace")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

from headrace.spark.program import Pipeline

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["Pipeline", "register"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, push_down: bool = False) -> None:
    """Make `format("headrace")` and `format("headrace-table")` known to this session.

    `push_down` gives filters to the source. Spark (4.1 to 4.3) keeps what a filtered query read for the *next* query of the same DataFrame, whatever that
    asks for: switch it on only where each DataFrame is asked once.
    """
    from headrace.spark.iceberg.source import TableDataSource
    from headrace.spark.source import HeadraceDataSource, PushdownDataSource
    from headrace.spark.versions import HAS_PUSH_DOWN, version

    if push_down and not HAS_PUSH_DOWN:
        from headrace.spark.options import OptionError

        raise OptionError(f"push_down needs Spark 4.1 or newer, and this is {version()}")
    if push_down:
        spark.conf.set(_PUSHDOWN, "true")
    for source in (TableDataSource, PushdownDataSource if push_down else HeadraceDataSource):
        try:
            spark.dataSource.register(source)
        except Exception as problem:
            # Spark 4.0 finds the one of `pyspark_headrace` by itself, and no Spark lets another session of this process name one anew.
            if source is PushdownDataSource or "DATA_SOURCE_ALREADY_EXISTS" not in str(problem):
                raise
