"""A topic as a streaming table, a view over it, and a topic that follows it."""

import os
from typing import Any

from pyspark import pipelines as dp
from pyspark.sql import DataFrame, SparkSession

BOOTSTRAP = os.environ.get("ORDERS_BOOTSTRAP", "localhost:9092")
TOPIC = os.environ.get("ORDERS_TOPIC", "orders")
COPY = os.environ.get("ORDERS_COPY", "orders-copy")


def session() -> Any:
    return SparkSession.active()


@dp.table
def orders_raw() -> DataFrame:
    reader = session().readStream.format("headrace").option("bootstrap", BOOTSTRAP).option("subscribe", TOPIC)
    return reader.option("valueFormat", "string").load()


@dp.materialized_view
def orders_per_partition() -> DataFrame:
    return session().read.table("orders_raw").groupBy("partition").count()


dp.create_sink("copy", "headrace", {"bootstrap": BOOTSTRAP, "topic": COPY})


@dp.append_flow(target="copy")
def to_copy() -> DataFrame:
    return session().readStream.table("orders_raw").select("key", "value")
