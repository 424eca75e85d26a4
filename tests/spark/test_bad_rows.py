"""Values that are not what the schema says (F68), and what replay and transform used to drop (F67)."""

from __future__ import annotations

import json
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer

from headrace.spark.pipelines.definition import Kinds, parse
from headrace.spark.pipelines.run import run
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

GOOD = [json.dumps({"shop": "north", "amount": number}) for number in range(20)]
BAD = ["null", "{broken", '{"shop": "south", "amount": "much"}', ""]


@pytest.fixture
def define(broker: BrokerProcess, tmp_path: Path) -> Any:
    def make(text: str, state: str = "state") -> Kinds:
        return parse(text, overrides={"bootstrap": broker.bootstrap, "state": str(tmp_path / state)})

    return make


@pytest.fixture
def mixed(broker: BrokerProcess, topic: str) -> str:
    """Good and bad values, in the windows of one minute each."""
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    for number, value in enumerate(GOOD[:10] + BAD + GOOD[10:]):
        minute = 0 if number < 20 else 5
        producer.produce(
            topic,
            value,
            f"k{number}",
            number % 4,
            timestamp=1_700_000_040_000 + minute * 60_000,
            headers={"trace": f"t{number}"},
        )
    assert producer.flush(120) == 0
    return topic


def _rows(spark: Any, broker: BrokerProcess, topic: str) -> list[Any]:
    frame = spark.read.format("headrace").option("bootstrap", broker.bootstrap).option("subscribe", topic)
    found: list[Any] = frame.option("includeHeaders", "true").load().collect()
    return found


def test_f68_bad_values_fail_die_or_are_null(
    spark: Any, broker: BrokerProcess, client: SyncClient, mixed: str, define: Any
) -> None:
    target = f"{mixed}-out"
    client.create_topic(target, 2)
    text = (
        f'kind="transform"\nname="t-{mixed}"\ntopics=["{mixed}"]\ntarget="{target}"\nvalue_format="json"\n'
        'value_schema="shop string, amount int"\n'
        'sql="select key, cast(value.amount as string) as value, headers from source"\n'
    )
    with pytest.raises(
        Exception, match=rf"offset \d+ of {mixed}-\d: the value is not what value_schema says"
    ):
        run(define(text), once=True, spark=spark)
    buried = define(text + 'on_error="dead_letter"', "dead")
    assert run(buried, once=True, spark=spark)["records"] > 0
    rows = _rows(spark, broker, target)
    assert sorted(int(bytes(row.value)) for row in rows) == list(range(20))
    assert all(row.headers[0].key == "trace" for row in rows), (
        "F67: transform drops no headers that it is asked for"
    )
    dead = _rows(spark, broker, f"{target}-dead")
    assert sorted(bytes(row.value) for row in dead) == sorted(one.encode() for one in BAD)
    told = {entry.key: bytes(entry.value).decode() for entry in dead[0].headers}
    assert told["headrace-dead-topic"] == mixed and "value_schema" in told["headrace-dead-reason"]
    run(buried, once=True, spark=spark)
    assert len(_rows(spark, broker, f"{target}-dead")) == len(BAD), "each once"


def test_f68_an_aggregate_counts_the_good_and_keeps_the_bad(
    spark: Any, broker: BrokerProcess, client: SyncClient, mixed: str, define: Any
) -> None:
    target = f"{mixed}-sum"
    client.create_topic(target, 1)
    aggregate = define(
        f'kind="aggregate"\nname="g-{mixed}"\ntopics=["{mixed}"]\ntarget="{target}"\nwatermark="1 second"\n'
        'value_schema="shop string, amount int"\non_error="dead_letter"\n[aggregates]\nn="count(*)"\n'
    )
    run(aggregate, once=True, spark=spark)
    assert [json.loads(bytes(row.value))["n"] for row in _rows(spark, broker, target)] == [16]
    assert len(_rows(spark, broker, f"{target}-dead")) == len(BAD)


def test_f67_a_replay_keeps_headers_and_partitions(
    spark: Any, broker: BrokerProcess, client: SyncClient, mixed: str, define: Any, tmp_path: Path
) -> None:
    path = tmp_path / "archive"
    run(
        define(f'kind="archive"\nname="a-{mixed}"\ntopics=["{mixed}"]\npath="{path}"'), once=True, spark=spark
    )
    again = f"{mixed}-again"
    replay = f'kind="replay"\nname="r-{mixed}"\npath="{path}"\ntopic="{again}"\nkeep_partitions=true\n'
    run(define(replay), spark=spark)
    # Elsewhere, with another number of cores: the same tasks, so nothing is written twice.
    run(define(replay + '[spark]\nmaster="local[3]"'), spark=spark)
    before = {(row.partition, bytes(row.key)): row for row in _rows(spark, broker, mixed)}
    after = _rows(spark, broker, again)
    assert len(client.topics([again])[again].leaders) == 4 and len(after) == len(before)
    for row in after:
        assert before[row.partition, bytes(row.key)].headers == row.headers
