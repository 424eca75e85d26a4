"""S4: a Spark job as a worker of a queue: acknowledged after the sink has committed; poison among the dead letters."""

from __future__ import annotations

import json
import time
import urllib.request
import uuid
from collections.abc import Callable
from pathlib import Path
from typing import Any, TypeVar

import pytest

from headrace.spark.dead_letters import dead_letters
from headrace.spark.options import OptionError, source_options
from headrace.spark.pipelines.definition import parse
from headrace.spark.pipelines.run import run
from headrace.spark.queue_peek import QueuePeekReader
from headrace.spark.queue_reader import Hand, QueueStreamReader, QueueTask, TakenMessage, read_plan
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

T = TypeVar("T")


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
        with urllib.request.urlopen(request, timeout=120) as answer:
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
    return _values_of(reader, reader.partitions(start, end))


def _values_of(reader: QueueStreamReader | QueuePeekReader, tasks: Any) -> list[str]:
    return sorted(
        value.decode()
        for task in tasks
        for batch in reader.read(task)
        for value in batch.column("value").to_pylist()
    )


def _soon(look: Callable[[], T], is_there: Callable[[T], bool]) -> T:
    """What is seen when it is there, or after ten seconds."""
    deadline = time.monotonic() + 240
    while not is_there(found := look()) and time.monotonic() < deadline:
        time.sleep(0.05)
    return found


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


def test_a_run_does_not_end_while_the_queue_takes_in_what_was_just_committed(
    broker: BrokerProcess, queue: str
) -> None:
    """The markers of a transaction are written after its commit is answered: a queue that is asked at once says nothing."""
    reader = _reader(broker, queue)
    reader.prepareForTriggerAvailableNow()
    received = reader._link.receive
    waits: list[int] = []

    def late(count: int, visibility_ms: int, wait_ms: int) -> Any:
        waits.append(wait_ms)
        return received(count, visibility_ms, 0)

    reader._link.receive = late  # type: ignore[method-assign]
    reader.latestOffset(reader.initialOffset(), reader.getDefaultReadLimit())
    assert waits[0] >= 100
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
    taken = tuple(TakenMessage("t", 0, offset, "r", "i") for offset in (5, 3, 50_000, 50_001))
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


def test_peeking_shows_what_is_not_done_and_takes_nothing(
    broker: BrokerProcess, desk: Desk, queue: str
) -> None:
    from pyspark.sql.types import BinaryType, StructField, StructType

    def seen() -> list[str]:
        reader = QueuePeekReader(
            source_options(_options(broker, queue)), StructType([StructField("value", BinaryType())])
        )
        return _values_of(reader, reader.partitions())

    assert seen() == []
    desk.send(queue, *"abcdefg")
    assert seen() == list("abcdefg")
    taken = desk.ask("POST", f"/queues/{queue}/receive?max=5&visibility=60s")["items"]
    assert seen() == list("abcdefg"), "what is handed out is still there"
    for message in taken[::2]:
        desk.ask("DELETE", f"/queues/{queue}/messages/{message['receipt']}")
    assert seen() == sorted(set("abcdefg") - {message["value"] for message in taken[::2]})
    assert desk.counts(queue) == (2, 2)
    with pytest.raises(Exception, match="no queue called"):
        _reader_of_nothing(broker).partitions()


def _reader_of_nothing(broker: BrokerProcess) -> QueuePeekReader:
    from pyspark.sql.types import BinaryType, StructField, StructType

    options = source_options(_options(broker, "nobody-has-it"))
    return QueuePeekReader(options, StructType([StructField("value", BinaryType())]))


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

    def rows() -> list[int]:
        frame = spark.read.format("headrace").option("bootstrap", broker.bootstrap)
        found = frame.option("subscribe", target).load().selectExpr("cast(value as string) v").collect()
        return sorted(int(row.v) for row in found)

    def written(count: int) -> list[int]:
        """A commit is answered before its markers are written, so its rows may come a moment after it."""
        return _soon(rows, lambda found: len(found) >= count)

    work()
    assert written(20) == list(range(20))
    assert desk.counts(name) == (0, 0)
    # The broker moves dead letters on its own time.
    assert _soon(lambda: desk.counts(f"{name}-dead"), lambda counts: counts[0] > 0) == (1, 0)
    letters = dead_letters(spark, broker.bootstrap, f"{name}-dead", url=broker.url).collect()
    assert [(bytes(row.value), row.source_queue, row.deliveries) for row in letters] == [
        (b"{broken", name, 2)
    ]
    mend = parse(
        f'kind="redrive"\nname="r-{name}"\nqueue="{name}-dead"\nfilter="key = \'{{broken\'"\n'
        'sql="select key, \'{\\"n\\": 20}\' as value, headers, topic from source"',
        overrides={"bootstrap": broker.bootstrap, "url": broker.url, "state": str(tmp_path / "state")},
    )
    assert run(mend, spark=spark)["records"] == 1
    assert desk.counts(f"{name}-dead") == (0, 0)
    assert dead_letters(spark, broker.bootstrap, f"{name}-dead", url=broker.url).count() == 0, (
        "it was sent back"
    )
    assert dead_letters(spark, broker.bootstrap, f"{name}-dead", include="all").count() == 1, "and is history"
    assert _soon(lambda: desk.counts(name), lambda counts: counts[0] > 0) == (1, 0)
    work()
    assert written(21) == list(range(21))
    assert desk.counts(name) == (0, 0)


def test_a_queue_is_not_for_batch_reads(spark: Any, broker: BrokerProcess, queue: str) -> None:
    with pytest.raises(Exception, match="readStream"):
        spark.read.format("headrace").options(**_options(broker, queue)).load().collect()
