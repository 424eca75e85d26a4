"""S4: a Spark job as a worker of a queue: acknowledged after the sink has committed; poison among the dead letters."""

from __future__ import annotations

import json
import urllib.request
import uuid
from pathlib import Path
from typing import Any

import pytest

from headrace.spark.dead_letters import dead_letters
from headrace.spark.options import OptionError, source_options
from headrace.spark.pipelines.definition import parse
from headrace.spark.pipelines.run import run
from headrace.spark.queue_reader import Hand, QueueStreamReader, QueueTask, Taken, read_plan
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess


class Desk:
    """REST of the broker, as somebody with curl has it."""

    def __init__(self, broker: BrokerProcess) -> None:
        self.url = broker.url

    def ask(self, method: str, path: str, body: Any = None) -> Any:
        request = urllib.request.Request(
            self.url + path,
            None if body is None else json.dumps(body).encode(),
            {"content-type": "application/json"},
            method=method,
        )
        with urllib.request.urlopen(request, timeout=30) as answer:
            raw = answer.read()
        return json.loads(raw) if raw else None

    def make(self, name: str, **config: Any) -> str:
        self.ask("POST", "/api/v1/queues", {"name": name, **config})
        return name

    def send(self, queue: str, *values: str) -> None:
        for value in values:
            self.ask("POST", f"/queues/{queue}/messages", {"key": value, "value": value})

    def counts(self, queue: str) -> tuple[int, int]:
        """(ready, in flight)"""
        shown = self.ask("GET", f"/api/v1/queues/{queue}")
        return shown["ready"], shown["in_flight"]


@pytest.fixture(scope="module")
def desk(broker: BrokerProcess) -> Desk:
    return Desk(broker)


@pytest.fixture
def queue(desk: Desk) -> str:
    return desk.make(f"q{uuid.uuid4().hex[:8]}", partitions=2)


def _options(broker: BrokerProcess, queue: str, **extra: str) -> dict[str, str]:
    return {"bootstrap": broker.bootstrap, "url": broker.url, "queue": queue, **extra}


def _reader(broker: BrokerProcess, queue: str, **extra: str) -> QueueStreamReader:
    from pyspark.sql.types import BinaryType, StructField, StructType

    schema = StructType([StructField("value", BinaryType())])
    return QueueStreamReader(source_options(_options(broker, queue, **extra)), schema)


def _values(reader: QueueStreamReader, start: Any, end: Any) -> list[str]:
    return sorted(
        value.decode()
        for task in reader.partitions(start, end)
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    )


# ---- the reader itself


def test_messages_are_acknowledged_when_the_next_batch_is_asked_for(
    broker: BrokerProcess, desk: Desk, queue: str
) -> None:
    desk.send(queue, "a", "b", "c")
    reader = _reader(broker, queue)
    reader.prepareForTriggerAvailableNow()
    first = reader.initialOffset()
    limit = reader.getDefaultReadLimit()
    one = reader.latestOffset(first, limit)
    assert reader.latestOffset(first, limit) == one, "asked again, the same batch"
    assert _values(reader, first, one) == ["a", "b", "c"]
    assert desk.counts(queue) == (0, 3), "read, not acknowledged"
    assert reader.latestOffset(one, limit) == one, "nothing more"
    assert desk.counts(queue) == (0, 0)
    reader.stop()


def test_a_replayed_batch_is_the_same_batch_in_another_life(
    broker: BrokerProcess, desk: Desk, queue: str
) -> None:
    """The driver dies; the checkpoint has the batch planned, and a new reader reads just its messages."""
    desk.send(queue, *"abcdef")
    dead = _reader(broker, queue, maxMessagesPerTrigger="4")
    dead.prepareForTriggerAvailableNow()
    one = dead.latestOffset(dead.initialOffset(), dead.getDefaultReadLimit())
    taken = _values(dead, dead.initialOffset(), one)
    dead.stop()
    reader = _reader(broker, queue)
    reader.prepareForTriggerAvailableNow()
    assert len(taken) == 4 and _values(reader, reader.initialOffset(), one) == taken
    two = reader.latestOffset(one, reader.getDefaultReadLimit())
    assert sorted(taken + _values(reader, one, two)) == list("abcdef")
    assert desk.counts(queue) == (0, 2), "the receipts of the first life still hold"
    reader.stop()


def test_what_was_done_and_comes_again_is_acknowledged_and_not_shown(
    broker: BrokerProcess, desk: Desk, queue: str
) -> None:
    desk.send(queue, "a", "b")
    reader = _reader(broker, queue)
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    one = reader.latestOffset(reader.initialOffset(), limit)
    reader.stop()
    for message in one["taken"]:
        # As if the lease had ended while nobody was there.
        desk.ask("POST", f"/queues/{queue}/messages/{message[3]}/nack?delay=0s")
    desk.send(queue, "c")
    later = _reader(broker, queue)
    later.prepareForTriggerAvailableNow()
    two = later.latestOffset(one, limit)
    assert _values(later, one, two) == ["c"]
    assert later.latestOffset(two, limit) == two
    assert desk.counts(queue) == (0, 0)
    later.stop()


def test_a_filter_leaves_others_alone(broker: BrokerProcess, desk: Desk, queue: str) -> None:
    desk.send(queue, "a", "b", "c")
    reader = _reader(broker, queue, queueFilter="key = 'b'")
    reader.prepareForTriggerAvailableNow()
    limit = reader.getDefaultReadLimit()
    one = reader.latestOffset(reader.initialOffset(), limit)
    assert _values(reader, reader.initialOffset(), one) == ["b"]
    assert reader.latestOffset(one, limit) == one
    assert desk.counts(queue) == (0, 2)
    reader.stop()


def test_offsets_survive_json_and_far_messages_are_fetched_apart() -> None:
    taken = tuple(Taken("t", 0, offset, "r", "i") for offset in (5, 3, 50_000, 50_001))
    hand = Hand(3, taken, (taken[0].place,))
    assert Hand.from_json(json.loads(json.dumps(hand.to_json()))) == hand
    plan = read_plan(taken)
    assert [(wanted.start, wanted.end, offsets) for wanted, offsets in plan] == [
        (3, 6, (3, 5)),
        (50_000, 50_002, (50_000, 50_001)),
    ]
    assert QueueTask(plan).wanted == tuple(plan)


def test_options_of_a_queue() -> None:
    options = source_options({"bootstrap": "example:9092", "queue": "jobs", "visibility": "5m"})
    assert options.queue is not None
    assert (options.queue.url, options.queue.visibility_ms) == ("http://example:9324", 300_000)
    for wrong, words in (
        ({"subscribe": "t"}, "one of"),
        ({"visibility": "10ms"}, "one second"),
        ({"queueFilter": "key ="}, "queueFilter"),
    ):
        with pytest.raises(OptionError, match=words):
            source_options({"bootstrap": "example:9092", "queue": "jobs", **wrong})


# ---- on Spark


def test_a_job_works_off_a_queue_and_poison_becomes_dead_letters(
    spark: Any, broker: BrokerProcess, desk: Desk, client: SyncClient, tmp_path: Path
) -> None:
    """The whole way: exactly once into a topic, poison to the dead letters, mended and driven back, and done."""
    name = f"q{uuid.uuid4().hex[:8]}"
    target = f"{name}-out"
    client.create_topic(target, 2)
    desk.make(f"{name}-dead")
    desk.make(name, partitions=2, dead_letter=f"{name}-dead", max_deliveries=2)
    desk.send(name, *(json.dumps({"n": n}) for n in range(20)), "{broken")

    def work() -> None:
        reader = spark.readStream.format("headrace").options(
            **_options(broker, name, valueFormat="json", valueSchema="n int", maxMessagesPerTrigger="8")
        )
        query = (
            reader.load().selectExpr("key", "cast(value.n as string) as value")
            .writeStream.format("headrace").option("bootstrap", broker.bootstrap).option("topic", target)
            .option("delivery", "exactly-once").option("checkpointLocation", str(tmp_path / "jobs"))
            .trigger(availableNow=True).start()
        )  # fmt: skip
        try:
            assert query.awaitTermination(200)
        finally:
            query.stop()

    def written() -> list[int]:
        frame = spark.read.format("headrace").option("bootstrap", broker.bootstrap)
        rows = frame.option("subscribe", target).load().selectExpr("cast(value as string) v").collect()
        return sorted(int(row.v) for row in rows)

    work()
    assert written() == list(range(20))
    assert desk.counts(name) == (0, 0)
    letters = dead_letters(spark, broker.bootstrap, f"{name}-dead").collect()
    assert [(bytes(row.value), row.source_queue, row.deliveries) for row in letters] == [
        (b"{broken", name, 2)
    ]
    mend = parse(
        f'kind="redrive"\nname="r-{name}"\nqueue="{name}-dead"\nfilter="key = \'{{broken\'"\n'
        'sql="select key, \'{\\"n\\": 20}\' as value, headers, topic from source"',
        overrides={"bootstrap": broker.bootstrap, "url": broker.url, "state": str(tmp_path / "state")},
    )
    assert run(mend, spark=spark)["records"] == 1
    assert desk.counts(f"{name}-dead") == (0, 0) and desk.counts(name) == (1, 0)
    work()
    assert written() == list(range(21))
    assert desk.counts(name) == (0, 0)


def test_a_queue_is_not_for_batch_reads(spark: Any, broker: BrokerProcess, queue: str) -> None:
    with pytest.raises(Exception, match="readStream"):
        spark.read.format("headrace").options(**_options(broker, queue)).load().collect()
