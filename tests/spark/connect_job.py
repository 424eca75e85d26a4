"""What a person does through Spark Connect, in a process of its own: a classic session and a Connect one do not share one.

Prints one JSON document; test_connect.py looks at it.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(bootstrap: str, topic: str, target: str, work: str) -> None:
    from pyspark.sql import SparkSession

    from headrace.spark import register
    from headrace.spark.pipelines.definition import parse
    from headrace.spark.pipelines.run import run
    from headrace.spark.session import SETTINGS

    # A server in this process's JVM; the session speaks gRPC with it, as with one far away.
    builder = SparkSession.builder.remote("local[2]")
    for key in ("spark.python.unix.domain.socket.enabled", "spark.sql.session.timeZone"):
        builder = builder.config(key, SETTINGS[key])
    spark: Any = builder.config("spark.ui.enabled", "false").getOrCreate()
    register(spark)
    told: dict[str, Any] = {"session": type(spark).__module__}
    frame = spark.read.format("headrace").option("bootstrap", bootstrap).option("subscribe", topic).load()
    told["rows"] = frame.count()
    told["filtered"] = frame.where("partition = 0 and offset < 10").count()
    common = f'bootstrap="{bootstrap}"\nstate="{work}/state"\ntopics=["{topic}"]\n'
    archive = parse(f'kind="archive"\nname="a-{topic}"\npath="{work}/archive"\n{common}')
    told["archived"] = run(archive, once=True, spark=spark)["records"]
    sql = "select key, value from source where cast(value as int) % 2 = 0"
    transform = parse(f'kind="transform"\nname="t-{topic}"\ntarget="{target}"\nsql="{sql}"\n{common}')
    told["transformed"] = run(transform, once=True, spark=spark)["records"]
    spark.stop()
    print(json.dumps(told))


if __name__ == "__main__":
    main(*sys.argv[1:])
