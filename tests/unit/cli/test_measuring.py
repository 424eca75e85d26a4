from __future__ import annotations

import json

from headrace.cli.addresses import split_address
from headrace.cli.bench.produce import ProduceMeasurement
from headrace.cli.measuring import BrokerCost, RequestCount, measurement_text, percentiles


def test_percentiles() -> None:
    found = percentiles([float(value) for value in range(1, 1001)])
    assert found is not None
    assert (found.samples, found.p50_ms, found.p99_ms, found.p999_ms, found.max_ms) == (
        1000,
        501,
        991,
        1000,
        1000,
    )
    assert percentiles([]) is None
    single = percentiles([7.0])
    assert single is not None and single.p50_ms == single.max_ms == 7.0


def test_requests_are_counted_over_all_brokers() -> None:
    count = RequestCount()
    report = count.settings()["stats_cb"]
    report(json.dumps({"brokers": {"a": {"tx": 3}, "b": {"tx": 4}}}))
    assert count.requests == 7


def test_a_measurement_shows_the_brokers_cost() -> None:
    row = ProduceMeasurement(
        topic="t",
        messages=1_000_000,
        bytes=1_000_000_000,
        seconds=5.0,
        messages_per_second=200_000.0,
        megabytes_per_second=200.0,
        latency=percentiles([1.0, 2.0]),
        broker=BrokerCost(7, 1.8, 1.8, 1.8, 1000, 1800.0, 50 << 20),
        acks="1",
        batch_bytes=1_000_000,
        compression="none",
    )
    text = measurement_text(row)
    assert "200 000 messages/s" in text and "1.80 s/GB" in text and "1800 µs/request" in text
    row.broker = None
    assert "--pid" in measurement_text(row)


def test_addresses() -> None:
    assert split_address("localhost:9092") == ("localhost", 9092)
    assert split_address("broker") == ("broker", 9092)
    assert split_address("[::1]:19092") == ("::1", 19092)
