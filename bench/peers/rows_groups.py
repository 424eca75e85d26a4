"""Groups that form: consumers join at once, until each has its partition."""

from __future__ import annotations

import contextlib
import time
from collections.abc import Callable

import confluent_kafka as ck

from peers.headrace_peer import Headrace
from peers.kafka_doors import KafkaPeer
from peers.kafka_peer import Kafka
from peers.rounds import Figure, Goal, Row, Size, Turns
from peers.servers import Meter


def _join(protocol: str) -> Callable[[KafkaPeer, Size], Turns]:
    def work(peer: KafkaPeer, size: Size) -> Turns:
        topic = f"joined-{protocol}"
        peer.create(topic, size.members)
        number = 0
        _seconds(
            peer, topic, f"{protocol}-first", 1, protocol, size.members
        )  # the offsets topic is made once and for all
        while True:
            number += 1
            meter = Meter(peer.pids())
            seconds = _seconds(peer, topic, f"{protocol}-{number}", size.members, protocol, 1)
            yield {"s": seconds, "CPU-ms a member": meter.spent_s() * 1e3 / size.members}

    return work


def _seconds(peer: KafkaPeer, topic: str, group: str, members: int, protocol: str, each: int) -> float:
    """Until every member has `each` partitions."""
    settings = {
        "bootstrap.servers": peer.bootstrap,
        "group.id": group,
        "group.protocol": protocol,
        "log_level": 0,
    }
    with contextlib.ExitStack() as stack:
        began = time.perf_counter()
        consumers = []
        for _ in range(members):
            consumer = ck.Consumer(settings)
            stack.callback(consumer.close)
            consumer.subscribe([topic])
            consumers.append(consumer)
        deadline = time.monotonic() + 120
        while not all(len(consumer.assignment()) == each for consumer in consumers):
            for consumer in consumers:
                consumer.poll(0)
            if time.monotonic() > deadline:
                raise TimeoutError("the group did not form in two minutes")
            time.sleep(0.005)
        return time.perf_counter() - began


ROWS = [
    Row(
        "join", "a group of fifty forms, KIP-848", (Figure("s", goal=Goal(1.5)), Figure("CPU-ms a member")), (Headrace, Kafka),
        _join("consumer"), note="librdkafka, a partition for each; twenty members in the short run",
    ),
    Row("join-classic", "a group of fifty forms, classic", (Figure("s"), Figure("CPU-ms a member")), (Headrace, Kafka), _join("classic")),
]  # fmt: skip
