"""A Spark job that knows Kafka only: batch and streaming, both ways, with Spark's own connector. Prints what it saw as JSON.

python spark_connector_job.py BOOTSTRAP WORK_DIRECTORY JAR,JAR,…
"""

import json
import sys
from pathlib import Path

from pyspark.sql import DataFrame, SparkSession

ROWS = 20_000


def main(bootstrap: str, work: str, jars: str) -> None:
    spark = (
        SparkSession.builder.master("local[2]")
        .config("spark.jars", jars)
        .config("spark.ui.enabled", "false")
        .config("spark.sql.shuffle.partitions", "2")
        .config("spark.sql.warehouse.dir", f"{work}/warehouse")
        .getOrCreate()
    )
    kafka = {"kafka.bootstrap.servers": bootstrap}

    def write(first: int, count: int) -> None:
        rows = spark.range(first, first + count).selectExpr(
            "cast(id % 100 as string) as key",
            "cast(id as string) as value",
            "array(named_struct('key', 'kind', 'value', cast('number' as binary))) as headers",
        )
        rows.write.format("kafka").options(**kafka).option("topic", "numbers").save()

    def read(**options: str) -> DataFrame:
        return spark.read.format("kafka").options(**kafka).options(subscribe="numbers", **options).load()

    def stream() -> None:
        numbers = spark.readStream.format("kafka").options(**kafka)
        numbers = numbers.options(
            subscribe="numbers",
            startingOffsets="earliest",
            maxOffsetsPerTrigger="7000",
            includeHeaders="true",
        )
        doubled = numbers.load().selectExpr(
            "key", "cast(cast(cast(value as string) as bigint) * 2 as string) as value"
        )
        sink = doubled.writeStream.format("kafka").options(**kafka).option("topic", "doubled")
        sink.option("checkpointLocation", f"{work}/checkpoint").trigger(
            availableNow=True
        ).start().awaitTermination()

    write(0, ROWS)
    total = read().selectExpr("count(*) as n", "sum(cast(cast(value as string) as bigint)) as s").collect()[0]
    first, last = {"0": 10, "1": -2, "2": -2}, {"0": -1, "1": -1, "2": 5}
    part = read(startingOffsets=json.dumps({"numbers": first}), endingOffsets=json.dumps({"numbers": last}))
    headed = read(includeHeaders="true").where(
        "headers[0].key = 'kind' and headers[0].value = cast('number' as binary)"
    )
    recent = read(startingTimestamp="1000000000000").count()
    seen = {
        "count": total["n"],
        "sum": total["s"],
        "part": {row["partition"]: row["count"] for row in part.groupBy("partition").count().collect()},
        "with_headers": headed.count(),
        "since_2001": recent,
    }
    stream()
    write(ROWS, 1000)
    stream()
    Path(work, "seen.json").write_text(json.dumps(seen))
    spark.stop()


if __name__ == "__main__":
    main(*sys.argv[1:])
