"""Adapter: dead letters as a DataFrame: what failed, where it came from, why, how often it was tried (S4)."""

from __future__ import annotations

from typing import TYPE_CHECKING, Literal

from headrace.spark.options import OptionError

if TYPE_CHECKING:
    from pyspark.sql import DataFrame, SparkSession

REASON, SOURCE, DELIVERIES, DETAIL = (
    f"headrace-dead-{name}" for name in ("reason", "source", "deliveries", "detail")
)


def header_text(name: str) -> str:
    """SQL for the value of a header as text; null when there is none."""
    return f"cast(get(filter(headers, h -> h.key = '{name}'), 0).value as string)"


def with_reasons(frame: DataFrame) -> DataFrame:
    """The columns that a dead letter's headers hold, beside those of the source (which needs includeHeaders=true)."""
    return frame.selectExpr(
        "*",
        f"{header_text(REASON)} as reason",
        f"{header_text(SOURCE)} as source_queue",
        f"cast({header_text(DELIVERIES)} as int) as deliveries",
        f"{header_text(DETAIL)} as detail",
    )


def dead_letters(
    spark: SparkSession,
    bootstrap: str,
    queue: str,
    *,
    include: Literal["waiting", "all"] = "waiting",
    **options: str,
) -> DataFrame:
    """The letters that are in a dead-letter queue now. `options` are those of the source, as `url` of the broker's HTTP.

    `include="all"`: every letter in its log, also those that were sent back or deleted, as long as it is retained."""
    if include not in ("waiting", "all"):
        raise OptionError(f'include="{include}": write "waiting" or "all"')
    reader = spark.read.format("headrace").option("bootstrap", bootstrap).option("includeHeaders", "true")
    if include == "all":
        reader = reader.option("subscribe", queue)
    else:
        reader = reader.option("queue", queue).option("peek", "true")
    for name, value in options.items():
        reader = reader.option(name, value)
    return with_reasons(reader.load())
