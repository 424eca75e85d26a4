"""Spark on Headrace: `from headrace.spark import register; register(spark)`, then `format("headrace")`."""

from __future__ import annotations

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from pyspark.sql import SparkSession

__all__ = ["register"]

_PUSHDOWN = "spark.sql.python.filterPushdown.enabled"


def register(spark: SparkSession) -> None:
    """Make `format("headrace")` known to this session, with filter push-down switched on."""
    from headrace.spark.source import PushdownDataSource

    spark.conf.set(_PUSHDOWN, "true")
    spark.dataSource.register(PushdownDataSource)
