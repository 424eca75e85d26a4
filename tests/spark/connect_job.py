"""What a person does through Spark Connect, as a thin client: a process without a JVM, and a server somewhere else.

Prints one JSON document; test_connect.py looks at it.
"""

from __future__ import annotations

import json
import sys
from typing import Any


def main(remote: str, bootstrap: str, topic: str, target: str, work: str) -> None:
    from headrace.spark import register
    from headrace.spark.pipelines.definition import parse
    from headrace.spark.pipelines.run import run
    from headrace.spark.session import local_session

    spark: Any = local_session("connect job", master=remote)
    register(spark)
    told: dict[str, Any] = {"session": type(spark).__module__}
    frame = spark.read.format("headrace").option("bootstrap", bootstrap).option("subscribe", topic).load()
    told["rows"] = frame.count()
    told["filtered"] = frame.where("partition = 0 and offset < 10").count()

    def sink(writer: Any, suffix: str) -> Any:
        return writer.format("headrace").option("bootstrap", bootstrap).option("topic", f"{target}-{suffix}")

    few = frame.where("partition = 1").select("key", "value")
    sink(few.write.mode("append"), "batch").option("delivery", "exactly-once").save()
    stream = spark.readStream.format("headrace").option("bootstrap", bootstrap).option("subscribe", topic)
    query = (
        sink(stream.load().select("key", "value").writeStream, "stream")
        .option("delivery", "exactly-once").option("checkpointLocation", f"{work}/checkpoint")
        .trigger(availableNow=True).start()
    )  # fmt: skip
    told["ended"] = query.awaitTermination(200)
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
