"""C6: any broker answers any REST client and reaches the leader: two brokers, every partition led by one of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from functools import partial
from pathlib import Path

import pytest
from confluent_kafka import Producer

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

sys.path.insert(0, str(Path(__file__).parent))
from test_rest import Got, ask, events

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def pair(tmp_path_factory: pytest.TempPathFactory) -> Iterator[list[BrokerProcess]]:
    """Two brokers on one SQLite coordinator, without replication: what one leads the other does not have."""
    root = tmp_path_factory.mktemp("pair")
    brokers = []
    try:
        for number in (1, 2):
            broker = BrokerProcess(
                root / f"b{number}",
                environment={
                    "HEADRACE_NODE_ID": str(number),
                    "HEADRACE_COORDINATOR": f"sqlite://{root}/coordinator.db",
                    "HEADRACE_DEFAULT_REPLICATION_FACTOR": "1",
                },
                start_seconds=60,
            )
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        yield brokers
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)


def patiently(call: Callable[[], Got], status: int, seconds: float = 240.0) -> Got:
    deadline = time.monotonic() + seconds
    while (got := call()).status != status:
        assert time.monotonic() < deadline, got
        time.sleep(0.1)
    return got


def test_every_broker_answers_for_every_partition(pair: list[BrokerProcess]) -> None:
    first, second = pair
    patiently(lambda: ask(first, "POST", "/api/v1/topics", {"name": "t", "partitions": 4}), 201)
    patiently(lambda: ask(second, "GET", "/api/v1/topics/t"), 200)
    leaders = {row["leader"] for row in ask(second, "GET", "/api/v1/topics/t").body["partitions"]}
    assert leaders == {1, 2}, "else this test would show nothing"
    for number in range(4):
        for broker in pair:
            path = f"/topics/t/records?partition={number}"
            patiently(partial(ask, broker, "POST", path, b"x"), 201)
    shown = [ask(broker, "GET", "/topics/t/records").body for broker in pair]
    assert shown[0] == shown[1] and len(shown[0]["items"]) == 8
    bounds = [
        [
            (row["start_offset"], row["end_offset"])
            for row in ask(broker, "GET", "/api/v1/topics/t").body["partitions"]
        ]
        for broker in pair
    ]
    assert bounds[0] == bounds[1] == [(0, 2)] * 4
    for broker in pair:
        tail = events(broker, "/topics/t/records?offset=start", 8)
        assert len({(event["partition"], event["offset"]) for _, event in tail}) == 8
        by_time = ask(broker, "GET", "/topics/t/records?from=2020-01-01T00:00:00Z").body
        assert len(by_time["items"]) == 8


def test_a_key_is_the_same_at_every_broker(pair: list[BrokerProcess]) -> None:
    first, second = pair
    patiently(lambda: ask(first, "POST", "/api/v1/topics", {"name": "once", "partitions": 4}), 201)
    patiently(lambda: ask(second, "GET", "/api/v1/topics/once"), 200)
    for key in ("a", "b", "c", "d"):
        rows = [
            patiently(
                partial(ask, broker, "POST", "/topics/once/records", b"x", idempotency_key=key),
                201,
            ).body["records"][0]
            for broker in (first, second, first)
        ]
        assert len({(row["partition"], row["offset"]) for row in rows}) == 1, rows
        assert [row["duplicate"] for row in rows] == [False, True, True]


def test_groups_and_trims_reach_whom_they_belong_to(pair: list[BrokerProcess]) -> None:
    first, second = pair
    patiently(lambda: ask(first, "POST", "/api/v1/topics", {"name": "g", "partitions": 2}), 201)
    patiently(lambda: ask(second, "GET", "/api/v1/topics/g"), 200)
    for number in range(2):
        patiently(partial(ask, first, "POST", f"/topics/g/records?partition={number}", b"x"), 201)
    for broker in pair:
        patiently(
            partial(ask, broker, "POST", "/api/v1/groups/crew/seek", {"topic": "g", "to": "start"}),
            200,
        )
        shown = patiently(partial(ask, broker, "GET", "/api/v1/groups/crew"), 200)
        assert shown.body["lag"] == 2
        for number in range(2):
            body = {"partition": number, "before_offset": 0}
            trimmed = ask(broker, "POST", "/api/v1/topics/g/trim", body)
            assert trimmed.body["start_offset"] == 0, trimmed


def until(found: Callable[[], object], seconds: float = 240.0) -> None:
    deadline = time.monotonic() + seconds
    while not found():
        assert time.monotonic() < deadline
        time.sleep(0.2)


def test_numbers_are_those_of_the_whole_cluster(pair: list[BrokerProcess]) -> None:
    """Sums, lags and writers: the broker that is asked asks the other, so that both say the same (docs/decisions/0070)."""
    first, second = pair
    patiently(lambda: ask(first, "POST", "/api/v1/topics", {"name": "sums", "partitions": 4}), 201)
    patiently(lambda: ask(second, "GET", "/api/v1/topics/sums"), 200)
    leaders = {row["leader"] for row in ask(second, "GET", "/api/v1/topics/sums").body["partitions"]}
    assert leaders == {1, 2}, "else this test would show nothing"
    servers = f"127.0.0.1:{first.kafka_port},127.0.0.1:{second.kafka_port}"
    producer = Producer({"bootstrap.servers": servers, "client.id": "shop-1"})

    def written(broker: BrokerProcess) -> bool:
        """The writer is seen while it writes: rates are of seconds in which something came."""
        for number in range(40):
            producer.produce("sums", b"x", partition=number % 4)
        producer.flush(60)
        rows = ask(broker, "GET", "/api/v1/topics/sums/writers").body["items"]
        return any(row["client"] == "shop-1" and row["per_s"] > 0 and row["door"] == "kafka" for row in rows)

    patiently(lambda: ask(first, "POST", "/api/v1/groups/late/seek", {"topic": "sums", "to": "start"}), 200)
    for broker in pair:
        until(partial(written, broker))
        flow = ask(broker, "GET", "/api/v1/flow").body
        assert {"kind": "writer", "name": "shop-1"} in [
            link["from"] for link in flow["links"] if link["to"]["name"] == "sums"
        ]
    total = sum(row["end_offset"] for row in ask(first, "GET", "/api/v1/topics/sums").body["partitions"])

    def all_told(broker: BrokerProcess) -> bool:
        topics = ask(broker, "GET", "/api/v1/topics?with=sizes&q=sums").body["items"]
        groups = ask(broker, "GET", "/api/v1/groups?with=lag&q=late").body["items"]
        return (topics[0]["messages"], groups[0]["lag"]) == (total, total)

    def sums(broker: BrokerProcess) -> bool:
        """A second is told when it is over; one of them has what both brokers took."""
        found = ask(broker, "GET", "/api/v1/history?series=cluster.in&series=broker.in").body
        assert found["brokers"] == 2
        whole, own = found["series"]["cluster.in"], found["series"]["broker.in"]
        return any(all_of and all_of > (part or 0) for all_of, part in zip(whole, own, strict=True))

    for broker in pair:
        until(partial(all_told, broker))
    for broker in pair:
        # Written on: one burst may fall into a second of the one and another of the other.
        until(partial(lambda broker: written(broker) and sums(broker), broker))
        for partition in range(4):
            (row,) = ask(broker, "GET", f"/topics/sums/records/{partition}/3/readers").body["items"]
            assert (row["name"], row["state"], row["committed"], row["ahead"]) == ("late", "not-yet", 0, 4)


def test_what_waits_for_what_in_a_fifo_queue(pair: list[BrokerProcess]) -> None:
    """Whoever hosts it: the message that is held, by deliveries and until when, and how many wait behind it."""
    first, second = pair
    patiently(lambda: ask(first, "POST", "/api/v1/queues", {"name": "lanes.fifo", "fifo": True}), 201)
    patiently(lambda: ask(second, "GET", "/api/v1/queues/lanes.fifo"), 200)
    for text, group in ((b"1", "a"), (b"2", "a"), (b"3", "b")):
        message = {"value": text.decode(), "group": group}
        patiently(partial(ask, first, "POST", "/queues/lanes.fifo/messages", message), 201)
    (held,) = ask(second, "POST", "/queues/lanes.fifo/receive?visibility=10m").body["items"]
    for broker in pair:
        rows = ask(broker, "GET", "/api/v1/queues/lanes.fifo/groups").body["items"]
        assert [(row["group"], row["blocked"], row["waiting"]) for row in rows] == [
            ("a", True, 1),
            ("b", False, 1),
        ]
        assert rows[0]["by_offset"] == held["offset"] and rows[0]["deliveries"] == 1 and rows[0]["due_ms"]
        path = f"/topics/lanes.fifo/records/{held['partition']}/{held['offset']}/readers"
        (trace,) = ask(broker, "GET", path).body["items"]
        assert (trace["kind"], trace["state"], trace["deliveries"]) == ("queue", "locked", 1)
        locks = ask(broker, "GET", "/api/v1/queues/lanes.fifo/locks").body["items"]
        assert [lock["offset"] for lock in locks] == [held["offset"]]
