"""C6: any broker answers any REST client and reaches the leader: two brokers, every partition led by one of them."""

from __future__ import annotations

import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path

import pytest

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
            patiently(lambda broker=broker, path=path: ask(broker, "POST", path, b"x"), 201)
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
                lambda broker=broker, key=key: ask(
                    broker, "POST", "/topics/once/records", b"x", idempotency_key=key
                ),
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
        patiently(
            lambda number=number: ask(first, "POST", f"/topics/g/records?partition={number}", b"x"), 201
        )
    for broker in pair:
        patiently(
            lambda broker=broker: ask(
                broker, "POST", "/api/v1/groups/crew/seek", {"topic": "g", "to": "start"}
            ),
            200,
        )
        shown = patiently(lambda broker=broker: ask(broker, "GET", "/api/v1/groups/crew"), 200)
        assert shown.body["lag"] == 2
        for number in range(2):
            body = {"partition": number, "before_offset": 0}
            trimmed = ask(broker, "POST", "/api/v1/topics/g/trim", body)
            assert trimmed.body["start_offset"] == 0, trimmed
