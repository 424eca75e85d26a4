"""Spark on Headrace: `from headrace.spark import register; register(spark)`, then `format("headrace")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession, *, push_down: bool = False) -> None:
    """Make `format("headrace")` known to this session.

    `push_down` gives filters to the source. Spark (4.1 to 4.3) keeps what a filtered query read for the *next* query of the same DataFrame, whatever that
    asks for: switch it on only where each DataFrame is asked once.
    """
    from headrace.spark.source import HeadraceDataSource, PushdownDataSource

    if push_down:
        spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(PushdownDataSource if push_down else HeadraceDataSource)
