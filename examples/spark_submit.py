"""A streaming job for spark-submit: upper-case every value of one topic into another, exactly once.

    spark-submit --master spark://host:7077 examples/spark_submit.py BOOTSTRAP SOURCE TARGET CHECKPOINT

`pip install "headrace[spark]"` on the driver and on every worker; nothing else is shipped.
"""

from __future__ import annotations

import sys

from pyspark.sql import SparkSession

from headrace.spark import register


def main(bootstrap: str, source: str, target: str, checkpoint: str) -> None:
    spark = SparkSession.builder.appName("upper case").getOrCreate()
    register(spark)
    query = (
        spark.readStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("subscribe", source)
        .option("groupId", "upper-case")
        .load()
        .selectExpr("key", "upper(cast(value as string)) as value")
        .writeStream.format("headrace")
        .option("bootstrap", bootstrap)
        .option("topic", target)
        .option("delivery", "exactly-once")
        .option("checkpointLocation", checkpoint)
        .trigger(availableNow=True)
        .start()
    )
    query.awaitTermination()


if __name__ == "__main__":
    main(*sys.argv[1:5])
