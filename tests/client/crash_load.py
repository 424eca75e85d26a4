"""Load for crash tests: idempotent producers that never give up, and the check of what they were promised."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck

from headrace.testing.broker_process import BrokerProcess


@dataclass
class Promises:
    """Per partition: value -> the offset it was acknowledged at, in the order of sending."""

    acked: dict[int, dict[bytes, int]] = field(default_factory=dict)
    failed: list[Any] = field(default_factory=list)
    sent: int = 0

    @property
    def count(self) -> int:
        return sum(map(len, self.acked.values()))


class Load(threading.Thread):
    """Produces until told to stop: acks=all, idempotent, a few messages per request so that many requests are in flight."""

    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, name: str = "p", pause_s: float = 0.0005
    ) -> None:
        super().__init__(name=name, daemon=True)
        self.promises = Promises()
        self._topic, self._partitions, self._pause_s = topic, partitions, pause_s
        self._ended = threading.Event()
        self._producer = ck.Producer(
            {
                "bootstrap.servers": bootstrap, "enable.idempotence": True, "acks": "all", "linger.ms": 1,
                "batch.num.messages": 20, "reconnect.backoff.ms": 20, "reconnect.backoff.max.ms": 100,
                "retry.backoff.ms": 20, "message.timeout.ms": 120_000, "log_level": 0,
            }
        )  # fmt: skip

    def _delivered(self, error: Any, message: Any) -> None:
        if error is not None:
            self.promises.failed.append(error)
            return
        self.promises.acked.setdefault(message.partition(), {})[message.value()] = message.offset()

    def run(self) -> None:
        number = 0
        while not self._ended.is_set():
            if len(self._producer) > 2_000:
                self._producer.poll(
                    0.02
                )  # The broker is away: what piles up would only take long to deliver.
                continue
            value = f"{self.name}:{number}".encode()
            try:
                self._producer.produce(
                    self._topic, value, partition=number % self._partitions, on_delivery=self._delivered
                )
                number += 1
            except BufferError:
                self._producer.poll(0.05)
            self._producer.poll(0)
            if number % 20 == 0:
                time.sleep(self._pause_s * 20)
        self.promises.sent = number

    def finish(self, seconds: float = 240.0) -> Promises:
        self._ended.set()
        self.join(10)
        left = self._producer.flush(seconds)
        assert left == 0, f"{left} messages were never answered"
        return self.promises

    def wait_for_more(self, count: int, seconds: float = 240.0) -> None:
        """Until so many more were acknowledged: the kill that follows comes in mid-load."""
        wanted = self.promises.count + count
        wait_until(lambda: self.promises.count >= wanted, seconds)


def wait_until(condition: Callable[[], bool], seconds: float) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.002)


def read_everything(bootstrap: str, topic: str, partitions: int) -> dict[int, list[tuple[int, bytes]]]:
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "check", "auto.offset.reset": "earliest", "check.crcs": True,
         "enable.partition.eof": True, "enable.auto.commit": False, "log_level": 0}
    )  # fmt: skip
    consumer.assign([ck.TopicPartition(topic, partition, 0) for partition in range(partitions)])
    found: dict[int, list[tuple[int, bytes]]] = {partition: [] for partition in range(partitions)}
    ended: set[int] = set()
    deadline = time.monotonic() + 240
    while len(ended) < partitions:
        assert time.monotonic() < deadline, "the end was not reached"
        for message in consumer.consume(5000, 1.0):
            if message.error() is None:
                found[message.partition()].append((message.offset(), message.value()))
            else:
                assert message.error().code() == ck.KafkaError._PARTITION_EOF, message.error()
                ended.add(message.partition())
    consumer.close()
    return found


def check(broker: BrokerProcess, topic: str, partitions: int, loads: list[Promises]) -> None:
    """K4: everything acknowledged is there, at the offset that was told, once, and each producer's order holds."""
    found = read_everything(broker.bootstrap, topic, partitions)
    for partition, rows in found.items():
        offsets = [offset for offset, _ in rows]
        assert offsets == sorted(set(offsets))
        values = [value for _, value in rows]
        assert len(values) == len(set(values)), "a record is there twice"
        place = {value: offset for offset, value in rows}
        for promises in loads:
            for value, offset in promises.acked.get(partition, {}).items():
                assert place.get(value) == offset, f"{value!r} was acknowledged at {offset}"
        by_producer: dict[bytes, list[int]] = {}
        for value in values:
            name, _, number = value.partition(b":")
            by_producer.setdefault(name, []).append(int(number))
        for name, numbers in by_producer.items():
            assert numbers == sorted(numbers), f"{name!r} is out of order"
    for promises in loads:
        assert not promises.failed, promises.failed[:3]
        assert promises.count == promises.sent, (
            "an idempotent producer that never gives up delivers everything"
        )
    total = sum(len(rows) for rows in found.values())
    assert total == sum(promises.sent for promises in loads), "nothing else is there"
