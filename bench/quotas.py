"""What a greedy client costs a modest one, with and without a quota (X15: p99 at most twice what it is alone).

python bench/quotas.py [--seconds 10] [--rate 1000000]

The modest client sends one small batch at a time with acks=all over a bare socket, so what it measures is the broker. The
greedy one is a process of its own that produces as fast as librdkafka can.
"""

from __future__ import annotations

import argparse
import os
import statistics
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[1] / "tests" / "models"))
from raw_client import RawClient, produce_request

from headrace.records.build import Record, build_batch
from headrace.testing.broker_process import BrokerProcess
from headrace.wire.api import ApiKey
from headrace.wire.messages.alter_client_quotas import AlterClientQuotasRequest, EntityData, EntryData, OpData

GREEDY = """
import sys, confluent_kafka as ck
producer = ck.Producer({"bootstrap.servers": sys.argv[1], "client.id": "greedy", "log_level": 0, "linger.ms": 5,
                        "queue.buffering.max.kbytes": 65536})
value = b"x" * 10_000
while True:
    try:
        producer.produce("greedy", value)
        producer.poll(0)
    except BufferError:
        producer.poll(0.05)
"""
PAUSE_S = 0.005


@contextmanager
def greedy(broker: BrokerProcess) -> Iterator[None]:
    process = subprocess.Popen([sys.executable, "-c", GREEDY, broker.bootstrap])
    time.sleep(2)
    try:
        yield
    finally:
        process.kill()
        process.wait()


def latencies_ms(broker: BrokerProcess, seconds: float) -> list[float]:
    found = []
    until = time.monotonic() + seconds
    with RawClient(broker.kafka_port) as client:
        while time.monotonic() < until:
            batch = build_batch([Record(None, b"x" * 100)], wall_ms=time.time_ns() // 1_000_000)
            started = time.perf_counter()
            client.call(ApiKey.PRODUCE, 9, produce_request("modest", batch, acks=-1))
            found.append((time.perf_counter() - started) * 1000)
            time.sleep(PAUSE_S)
    return found


def throttle(broker: BrokerProcess, rate: float) -> None:
    entry = EntryData([EntityData("client-id", "greedy")], [OpData("producer_byte_rate", rate, False)])
    with RawClient(broker.kafka_port) as admin:
        admin.call(ApiKey.ALTER_CLIENT_QUOTAS, 1, AlterClientQuotasRequest([entry], False))


def show(name: str, found: list[float]) -> float:
    cuts = statistics.quantiles(found, n=100)
    print(
        f"{name:28} {len(found):6} requests   p50 {cuts[49]:7.2f} ms   p99 {cuts[98]:7.2f} ms   max {max(found):7.1f} ms"
    )
    return cuts[98]


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--seconds", type=float, default=10.0)
    parser.add_argument("--rate", type=float, default=1_000_000.0)
    options = parser.parse_args()
    print(f"load average before: {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")
    with BrokerProcess() as broker:
        with RawClient(broker.kafka_port) as admin:
            for topic in ("modest", "greedy"):
                admin.create_topic(topic)
        latencies_ms(broker, 2)
        alone = show("alone", latencies_ms(broker, options.seconds))
        with greedy(broker):
            show("beside a greedy client", latencies_ms(broker, options.seconds))
        throttle(broker, options.rate)
        with greedy(broker):
            beside = show("beside a throttled one", latencies_ms(broker, options.seconds))
        show("alone again", latencies_ms(broker, options.seconds))
        print(f"p99 beside the throttled client: {beside / alone:.1f} x what it was alone")


if __name__ == "__main__":
    main()
