"""Pipelines as programs: `from headrace.spark import Pipeline`: a join with a table, state of one's own, several sinks; every row once."""

from __future__ import annotations

import json
import sys
from collections import Counter
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.spark import Pipeline
from headrace.spark.options import OptionError
from headrace.spark.pipelines.definition import parse
from headrace.spark.pipelines.run import run
from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parent))
pytestmark = pytest.mark.timeout(900)
PROGRAM = """
from collections.abc import Iterator
from pyspark.sql import Row
from pyspark.sql.streaming import StatefulProcessor
from pyspark.sql.types import IntegerType, StringType, StructField, StructType


class Count(StatefulProcessor):
    def init(self, handle):
        self._seen = handle.getValueState("seen", StructType([StructField("n", IntegerType())]))

    def handleInputRows(self, key, rows, timers):
        before = self._seen.get()[0] if self._seen.exists() else 0
        now = before + sum(1 for _ in rows)
        self._seen.update((now,))
        yield Row(key=key[0], value=str(now))

    def close(self):
        pass


def build(pipeline):
    orders = pipeline.topic("{topic}", value_schema="shop string, amount double")
    shops = pipeline.table("{warehouse}", "n.t")
    joined = orders.join(shops, orders.value.shop == shops.shop)
    pipeline.to_topic("{topic}-joined", joined.selectExpr("key", "cast(id as string) value"))
    shape = StructType([StructField("key", StringType()), StructField("value", StringType())])
    counted = orders.selectExpr("value.shop as shop").groupBy("shop").transformWithState(Count(), shape, "Append", "None")
    pipeline.to_topic("{topic}-counted", counted)
"""


def test_a_program_with_a_table_state_and_two_sinks(
    spark: Any, broker: BrokerProcess, client: Any, topic: str, tmp_path: Path
) -> None:
    from test_table_columns import Kept, documents, json_columns

    shops = documents({"id": 1, "shop": "north"}, {"id": 2, "shop": "south"})
    Kept(str(tmp_path / "w")).add(json_columns(id="integer", shop="string"), shops)
    for suffix in ("joined", "counted"):
        client.create_topic(f"{topic}-{suffix}", 2)
    (tmp_path / f"program_{topic}.py").write_text(
        PROGRAM.replace("{topic}", topic).replace("{warehouse}", f"{tmp_path}/w")
    )
    definition = parse(
        f'kind="program"\nname="p-{topic}"\npython="program_{topic}:build"',
        overrides={"bootstrap": broker.bootstrap, "state": str(tmp_path / "state")},
    )
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    store = "org.apache.spark.sql.execution.streaming.state.RocksDBStateStoreProvider"
    spark.conf.set("spark.sql.streaming.stateStore.providerClass", store)
    try:
        for start in (0, 30):
            for number in range(start, start + 30):
                producer.produce(
                    topic,
                    json.dumps({"shop": ("north", "south", "west")[number % 3]}),
                    str(number),
                    number % 4,
                )
            assert producer.flush(240) == 0
            assert run(definition, once=True, spark=spark)["records"] >= 30
    finally:
        spark.conf.unset("spark.sql.streaming.stateStore.providerClass")

    def rows(name: str) -> list[Any]:
        reader = spark.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", name)
        return list(reader.option("keyFormat", "string").option("valueFormat", "string").load().collect())

    joined = rows(f"{topic}-joined")
    assert Counter(row.key for row in joined) == Counter(
        str(number) for number in range(60) if number % 3 < 2
    )
    assert {(int(row.key) % 3, row.value) for row in joined} == {(0, "1"), (1, "2")}
    counted = [(row.key, int(row.value)) for row in rows(f"{topic}-counted")]
    assert {max(n for shop, n in counted if shop == name) for name in ("north", "south", "west")} == {20}
    assert len(counted) == len(set(counted)), "state is kept between runs: no count comes twice"


def test_what_a_program_can_not_be() -> None:
    with pytest.raises(OptionError, match="no name"):
        Pipeline("a b")
    with pytest.raises(OptionError, match="writes nothing"):
        Pipeline("a").start()
