"""Quotas over the wire: a greedy client is slowed down, never refused, and nobody else notices."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator
from select import select

import confluent_kafka as ck
import pytest
from quota_requests import alter
from raw_client import RawClient, produce_request

from headrace.core.errors import ErrorKind
from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.api_versions import ApiVersionsRequest
from headrace.wire.messages.describe_client_quotas import ComponentData, DescribeClientQuotasRequest

pytestmark = pytest.mark.client

RATE = 200_000.0


@pytest.fixture
def broker(fresh_broker: Callable[..., BrokerProcess]) -> Iterator[BrokerProcess]:
    """One of its own: a quota for everybody would slow the other tests down."""
    yield fresh_broker()


def described(
    raw: RawClient, *components: ComponentData, strict: bool = False
) -> dict[str, dict[str, float]]:
    response = raw.call(
        ApiKey.DESCRIBE_CLIENT_QUOTAS, 1, DescribeClientQuotasRequest(list(components), strict)
    )
    assert response.error_code == 0 and response.entries is not None, "trap 2: never a null list"
    return {
        ",".join(f"{part.entity_type}={part.entity_name}" for part in entry.entity): {
            value.key: value.value for value in entry.values
        }
        for entry in response.entries
    }


def test_quotas_are_set_shown_removed_and_kept(broker: BrokerProcess) -> None:
    with RawClient(broker.kafka_port) as raw:
        assert described(raw) == {}
        assert alter(raw, {"user": "alice"}, producer_byte_rate=1000.0, consumer_byte_rate=2000.0) == 0
        assert alter(raw, {"user": "alice", "client_id": None}, request_percentage=50.0) == 0
        assert alter(raw, {"client_id": "c"}, producer_byte_rate=5.0, validate_only=True) == 0
        everything = {
            "user=alice": {"producer_byte_rate": 1000.0, "consumer_byte_rate": 2000.0},
            "user=alice,client-id=None": {"request_percentage": 50.0},
        }
        assert described(raw) == everything
        assert list(described(raw, ComponentData("user", 0, "alice"), strict=True)) == ["user=alice"]
        assert list(described(raw, ComponentData("client-id", 1, None))) == ["user=alice,client-id=None"]
        assert described(raw, ComponentData("user", 0, "bob")) == {}
        assert alter(raw, {"ip": "10.0.0.1"}, producer_byte_rate=1.0) == ErrorKind.INVALID_REQUEST
        assert alter(raw, {"user": "alice"}, producer_byte_rate=-1.0) == ErrorKind.INVALID_REQUEST
        assert alter(raw, {"user": "alice"}, nonsense=1.0) == ErrorKind.INVALID_REQUEST
    broker.kill()
    broker.start()
    with RawClient(broker.kafka_port) as raw:
        assert described(raw) == everything
        assert alter(raw, {"user": "alice"}, producer_byte_rate=None) == 0
        assert described(raw)["user=alice"] == {"consumer_byte_rate": 2000.0}


def batch(size: int) -> bytes:
    return build_batch([Record(None, b"x" * size)], wall_ms=time.time_ns() // 1_000_000)


def test_a_greedy_producer_gets_its_rate_and_no_error(broker: BrokerProcess) -> None:
    with RawClient(broker.kafka_port) as greedy, RawClient(broker.kafka_port) as admin:
        admin.create_topic("t")
        assert alter(admin, {"client_id": "raw"}, producer_byte_rate=RATE) == 0
        started, sent, throttled = time.monotonic(), 0, 0
        while sent < 4 * RATE:
            response = greedy.call(ApiKey.PRODUCE, 9, produce_request("t", batch(50_000), acks=-1))
            assert response.topics[0].partitions[0].error_code == 0
            throttled += response.throttle_time_ms > 0
            sent += 50_000
        spent_s = time.monotonic() - started
        # The first second's worth is there at once, and the last request is not waited for.
        assert throttled >= 5 and spent_s > 2.2, f"{sent / spent_s:.0f} bytes/s"


def test_others_do_not_notice(broker: BrokerProcess) -> None:
    with RawClient(broker.kafka_port) as admin:
        admin.create_topic("t")
        assert alter(admin, {"client_id": "greedy"}, producer_byte_rate=20_000.0) == 0
    throttles: list[float] = []
    greedy = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "greedy", "linger.ms": 0, "log_level": 0,
         "batch.size": 10_000, "throttle_cb": lambda event: throttles.append(event.throttle_time)}
    )  # fmt: skip
    for _ in range(1000):  # 250 seconds' worth
        greedy.produce("t", b"x" * 5_000)
    modest = ck.Producer(
        {"bootstrap.servers": broker.bootstrap, "client.id": "modest", "linger.ms": 0, "log_level": 0}
    )
    for _ in range(50):
        modest.produce("t", b"y")
        assert modest.flush(120) == 0
        greedy.poll(0)
    assert greedy.flush(1.0) > 0, "fifty requests were answered while the greedy one is still at it"
    assert throttles, "and has been told why"
    greedy.purge()


def test_a_greedy_consumer_gets_its_rate(broker: BrokerProcess) -> None:
    with RawClient(broker.kafka_port) as raw:
        raw.create_topic("t")
        for _ in range(16):
            raw.produce("t", batch(50_000))
        assert alter(raw, {"client_id": None}, consumer_byte_rate=RATE) == 0
        started, offset = time.monotonic(), 0
        while offset < 16:
            row = raw.fetch("t", offset, max_bytes=60_000)
            assert row.error_code == 0
            offset += len(row.records) > 0
        assert time.monotonic() - started > 2.2


def test_a_client_that_calls_itself_a_broker_has_a_quota_too(broker: BrokerProcess) -> None:
    """F8, A1: who is a broker is proven, not said."""
    with RawClient(broker.kafka_port, client_id="broker-1") as raw, RawClient(broker.kafka_port) as admin:
        admin.create_topic("t")
        assert alter(admin, {"client_id": None}, producer_byte_rate=RATE) == 0
        answers = [
            raw.call(ApiKey.PRODUCE, 9, produce_request("t", batch(50_000), acks=-1)) for _ in range(8)
        ]
        assert any(answer.throttle_time_ms > 0 for answer in answers)


def test_request_time_is_a_quota_too(broker: BrokerProcess) -> None:
    """F44: what is counted is answers, not seconds: two thousand of them are a minute's worth of a thousandth of our time."""
    asked, many = ApiVersionsRequest("raw", "1"), 2_000
    with (
        RawClient(broker.kafka_port, client_id="greedy") as greedy,
        RawClient(broker.kafka_port, client_id="modest") as modest,
    ):
        assert alter(modest, {"client_id": "greedy"}, request_percentage=0.1) == 0
        for _ in range(many):
            greedy.send(ApiKey.API_VERSIONS, 3, asked)
        for _ in range(50):
            modest.call(ApiKey.API_VERSIONS, 3, asked)
        answered = 0
        while select([greedy.socket], [], [], 0)[0]:
            greedy.read_frame()
            answered += 1
        assert answered < many, "the modest one was served while the greedy one waits"
        assert alter(modest, {"client_id": "greedy"}, request_percentage=None) == 0
        for _ in range(many - answered):
            greedy.read_frame()
