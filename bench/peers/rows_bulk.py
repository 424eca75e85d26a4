"""Bulk: produce through librdkafka, consume over a bare socket and through librdkafka, messages at 1,000 a second from end to end."""

from __future__ import annotations

import struct
import threading
import time
from collections.abc import Callable

import confluent_kafka as ck
from load import Drain, percentile, produce

from peers.headrace_peer import Headrace, ThreeHeadraces
from peers.kafka_doors import KafkaPeer
from peers.kafka_peer import Kafka, KafkaSynced, ThreeKafkas, ThreeKafkasSynced
from peers.rounds import Figure, Goal, Row, Size, Turns
from peers.servers import Meter, memory_mb

ANSWER = 1 << 20
"""What clients ask of one partition unless told otherwise."""


def bulk(pids: list[int], work: Callable[[], tuple[int, int]]) -> dict[str, float]:
    meter, began = Meter(pids), time.perf_counter()
    _, size = work()
    wall_s = time.perf_counter() - began
    return {"MB/s": size / wall_s / 1e6, "CPU-s/GB": meter.spent_s() / (size / 1e9)}


def _produce(peer: KafkaPeer, size: Size) -> Turns:
    peer.create("produced")
    produce(peer.bootstrap, "produced", size.megabytes * 100, 1000, acks="all")
    while True:
        count = size.megabytes * 1000
        found = bulk(peer.pids(), lambda: produce(peer.bootstrap, "produced", count, 1000, acks="all"))  # noqa: B023
        yield {**found, "memory MB": memory_mb(peer.pids())}


def _consume(message: int) -> Callable[[KafkaPeer, Size], Turns]:
    def work(peer: KafkaPeer, size: Size) -> Turns:
        topic = f"consumed-{message}"
        peer.create(topic)
        megabytes = size.megabytes if message >= 1000 else max(1, size.megabytes // 4)
        produce(peer.bootstrap, topic, megabytes * 1_000_000 // message, message, acks="all")
        drain = Drain(peer.ports[0], topic, ANSWER)
        try:
            drain.run(megabytes * 1_000_000)
            while True:
                yield bulk(peer.pids(), lambda: drain.run(2 * size.megabytes * 1_000_000))
        finally:
            drain.close()

    return work


def _consume_with_client(peer: KafkaPeer, size: Size) -> Turns:
    """Partitions are assigned, so that no group has to form first."""
    peer.create("read")
    count = size.megabytes * 1000
    produce(peer.bootstrap, "read", count, 1000, acks="all")

    def read() -> tuple[int, int]:
        settings = {"queued.max.messages.kbytes": 200_000, "fetch.max.bytes": 50_000_000, "log_level": 0}
        consumer = ck.Consumer({"bootstrap.servers": peer.bootstrap, "group.id": "none", **settings})
        consumer.assign([ck.TopicPartition("read", 0, 0)])
        got = total = 0
        while got < count:
            for message in consumer.consume(min(10_000, count - got), 5.0):
                if message.error() is None:
                    got += 1
                    total += len(message)
        consumer.close()
        return got, total

    read()
    while True:
        yield bulk(peer.pids(), read)


def _end_to_end(replicas: int) -> Callable[[KafkaPeer, Size], Turns]:
    def work(peer: KafkaPeer, size: Size) -> Turns:
        peer.create("paced", replicas=replicas, **({"min_insync_replicas": "2"} if replicas > 1 else {}))
        paced(peer.bootstrap, 100)
        while True:
            pids = peer.pids()
            meter = Meter(pids)
            late = paced(peer.bootstrap, size.paced)
            spent = meter.spent_s()
            yield {
                "p50 ms": percentile(late, 50) * 1e3,
                "p99 ms": percentile(late, 99) * 1e3,
                "CPU µs a message": spent / size.paced * 1e6,
            }

    return work


def paced(bootstrap: str, count: int, per_second: int = 1000) -> list[float]:
    """Seconds from the call of produce to the message in a consumer's hand, in order of size."""
    consumer = ck.Consumer({"bootstrap.servers": bootstrap, "group.id": "none", "fetch.wait.max.ms": 500, "log_level": 0})  # fmt: skip
    partition = ck.TopicPartition("paced", 0)
    _, high = consumer.get_watermark_offsets(partition, timeout=60)
    consumer.assign([ck.TopicPartition("paced", 0, high)])
    consumer.poll(0.5)  # the first fetch is under way
    producer = ck.Producer({"bootstrap.servers": bootstrap, "linger.ms": 0, "acks": "all", "log_level": 0})

    def send() -> None:
        began = time.perf_counter()
        for number in range(count):
            ahead = began + number / per_second - time.perf_counter()
            if ahead > 0:
                time.sleep(ahead)
            producer.produce("paced", struct.pack(">d", time.perf_counter()) + bytes(92))
            producer.poll(0)
        producer.flush(60)

    sending = threading.Thread(target=send)
    sending.start()
    late: list[float] = []
    deadline = time.monotonic() + 60 + count / per_second
    while len(late) < count:
        message = consumer.poll(1.0)
        if message is not None and message.error() is None:
            late.append(time.perf_counter() - struct.unpack_from(">d", message.value())[0])
        if time.monotonic() > deadline:
            raise TimeoutError(f"{count - len(late)} of {count} messages did not come")
    sending.join()
    consumer.close()
    return sorted(late)


def _replicated(peer: KafkaPeer, size: Size) -> Turns:
    peer.create("bench", 6, 3, min_insync_replicas="2")
    settings = {"acks": "all", "enable.idempotence": True}
    count = max(1, size.megabytes // 2) * 1000
    produce(peer.bootstrap, "bench", count // 5, 1000, **settings)
    while True:

        def work() -> tuple[int, int]:
            done = produce(peer.bootstrap, "bench", count, 1000, **settings)
            time.sleep(0.5)  # the third replica takes what the ack did not wait for
            return done

        found = bulk(peer.pids(), work)
        seconds = count / 1000 / found["MB/s"] - 0.5
        yield {**found, "MB/s": count / 1000 / seconds}


ONE = (Headrace, Kafka, KafkaSynced)
THREE = (ThreeHeadraces, ThreeKafkas, ThreeKafkasSynced)
KAFKAS = ("kafka", "kafka-fsync")
MB, CPU = "MB/s", "CPU-s/GB"
ROWS = [
    Row("produce-1k", "produce 1 KB in batches, acks=all", (Figure(MB, more=True), Figure(CPU), Figure("memory MB")), ONE, _produce),
    Row(
        "consume-1k", "consume 1 KB just written", (Figure(MB, True, Goal(1.2, KAFKAS)), Figure(CPU, goal=Goal(0.35))), ONE, _consume(1000),
        note="a bare socket, answers to 1 MB",
    ),
    Row(
        "consume-client", "consume 1 KB with librdkafka", (Figure(MB, more=True), Figure(CPU)), ONE, _consume_with_client,
        note="Python takes the messages out of librdkafka: of rates this is the limit",
    ),
    Row(
        "consume-100", "consume 100 B", (Figure(MB, True, Goal(1.1, KAFKAS)), Figure(CPU, goal=Goal(0.5))), ONE, _consume(100),
        note="a bare socket, answers to 1 MB",
    ),
    Row(
        "end-to-end", "end to end at 1,000/s, linger 0, acks=all",
        (Figure("p50 ms", goal=Goal(0.9)), Figure("p99 ms", goal=Goal(4)), Figure("CPU µs a message", goal=Goal(200))), ONE, _end_to_end(1),
    ),
]  # fmt: skip
REPLICATED = [
    Row(
        "rf3", "RF 3, 1 KB in batches, acks=all",
        (Figure(MB, True, Goal(250, side="headrace-three")), Figure(CPU, goal=Goal(4.5, side="headrace-three"))), THREE, _replicated,
        note="CPU of all brokers",
    ),
    Row(
        "rf3-latency", "RF 3, end to end at 1,000/s",
        (
            Figure("p50 ms", goal=Goal(6, side="headrace-three")), Figure("p99 ms", goal=Goal(20, side="headrace-three")),
            Figure("CPU µs a message"),
        ), THREE, _end_to_end(3),
    ),
]  # fmt: skip
