"""Producers and consumers that never pause, for tests that change a cluster under them: what was acknowledged, what was read, and what they complained of."""

from __future__ import annotations

import itertools
import threading
import time
from collections.abc import Iterable
from typing import Any, NamedTuple

import confluent_kafka
from confluent_kafka import KafkaError, TopicPartition

PASSING = {KafkaError._TRANSPORT, KafkaError._ALL_BROKERS_DOWN}
"""What librdkafka says when a connection ended. It connects again; nobody has lost anything by it."""
PATIENCE_S = 600.0
READERS = "readers"


class Place(NamedTuple):
    partition: int
    offset: int


def patiently(condition: Any, what: str = "it") -> None:
    deadline = time.monotonic() + PATIENCE_S
    while not condition():
        assert time.monotonic() < deadline, f"{what} did not happen"
        time.sleep(0.05)


class Load:
    """One program with one login: it writes to all partitions, reads as a member of a group, and reads everything from the beginning by itself."""

    def __init__(self, name: str, login: dict[str, Any], topic: str, partitions: int) -> None:
        self.name, self._login, self._topic, self._partitions = name, login, topic, partitions
        self._ends = threading.Event()
        self._written = threading.Event()
        self._done = [threading.Event() for _ in range(3)]
        self.errors: list[str] = []
        self.acknowledged: dict[Place, bytes] = {}
        self.somewhere: set[bytes] = set()
        """Acknowledged without an offset: librdkafka takes what was refused behind its successors for written."""
        self.acknowledged_at: list[float] = []
        self.by_group: dict[Place, bytes] = {}
        self.followed: list[tuple[Place, bytes]] = []
        self._threads = [
            threading.Thread(target=self._guarded, args=(work, done), daemon=True)
            for work, done in zip((self._write, self._read_in_group, self._follow), self._done, strict=True)
        ]
        for thread in self._threads:
            thread.start()

    def _guarded(self, work: Any, done: threading.Event) -> None:
        try:
            client = work()
        except BaseException as problem:
            self.errors.append(f"{self.name} {work.__name__}: {problem!r}")
            raise
        finally:
            done.set()
        if client is not None:
            client.close()  # librdkafka 2.x sometimes waits for ever here when coordinators have moved; nobody waits for it

    def _complain(self, problem: KafkaError) -> None:
        # A connection that ends while it says which mechanism it wants is told as a login that failed.
        ended = problem.code() == KafkaError._AUTHENTICATION and "transport failure" in problem.str()
        if problem.code() not in PASSING and not ended:
            self.errors.append(f"{self.name}: {problem}")

    def _write(self) -> None:
        producer = confluent_kafka.Producer(
            {
                **self._login, "enable.idempotence": True, "acks": "all", "linger.ms": 5,
                "message.timeout.ms": 0, "error_cb": self._complain,
            }
        )  # fmt: skip

        def delivered(error: KafkaError | None, message: Any) -> None:
            if error is not None:
                self.errors.append(f"{self.name}: not delivered: {error}")
                return
            if message.offset() is None:
                self.somewhere.add(message.value())
            else:
                self.acknowledged[Place(message.partition(), message.offset())] = message.value()
            self.acknowledged_at.append(time.monotonic())

        for number in itertools.count():
            if self._ends.is_set():
                break
            value = f"{self.name}-{number}".encode()
            producer.produce(self._topic, value, partition=number % self._partitions, on_delivery=delivered)
            producer.poll(0.02)
        if producer.flush(PATIENCE_S):
            self.errors.append(f"{self.name}: not all of it was delivered")
        self._written.set()

    def _consumer(self, group: str, **more: Any) -> confluent_kafka.Consumer:
        return confluent_kafka.Consumer(
            {
                **self._login, "group.id": group, "auto.offset.reset": "earliest", "error_cb": self._complain, **more,
            }
        )  # fmt: skip

    def _messages(self, consumer: confluent_kafka.Consumer, enough: Any) -> Iterable[tuple[Place, bytes]]:
        while not (self._written.is_set() and enough()):
            message = consumer.poll(0.2)
            if message is None:
                continue
            problem = message.error()
            if problem is None:
                yield Place(message.partition(), message.offset()), message.value()
            else:
                self._complain(problem)

    def _read_in_group(self) -> confluent_kafka.Consumer:
        """Others of the group read the rest."""
        consumer = self._consumer(READERS)
        consumer.subscribe([self._topic])
        for place, value in self._messages(consumer, lambda: True):
            known = self.by_group.setdefault(place, value)
            if known != value:
                self.errors.append(f"{self.name}: {place} was {known!r} and is {value!r}")
        return consumer

    def _follow(self) -> confluent_kafka.Consumer:
        consumer = self._consumer("followers", **{"enable.auto.commit": False})
        consumer.assign([TopicPartition(self._topic, number, 0) for number in range(self._partitions)])
        ends: dict[int, int] = {}

        def all_of_it() -> bool:
            return all(ends.get(place.partition, -1) >= place.offset for place in list(self.acknowledged))

        for place, value in self._messages(consumer, all_of_it):
            ends[place.partition] = place.offset
            self.followed.append((place, value))
        return consumer

    # -- for a test ----------------------------------------------------------------------------------------------------

    def goes_on(self, count: int = 30) -> None:
        """Until so many more are acknowledged and read by itself: whatever was changed is in effect for it."""
        wanted, read = len(self.acknowledged) + count, len(self.followed) + count
        patiently(
            lambda: self.errors or (len(self.acknowledged) >= wanted and len(self.followed) >= read),
            f"{self.name}: {count} more",
        )
        assert not self.errors, self.errors

    def end(self) -> None:
        self._ends.set()
        for done in self._done:
            assert done.wait(PATIENCE_S), f"{self.name} does not end: {self.errors}"

    def gaps_ms(self) -> list[int]:
        """Between one acknowledgement and the next, in order of size."""
        return sorted(
            int(1000 * (later - earlier)) for earlier, later in itertools.pairwise(self.acknowledged_at)
        )


def check(loads: list[Load], topic: str, partitions: int, login: dict[str, Any]) -> None:
    """Nothing that was acknowledged is missing, at another place, or there twice; everybody has read what is there."""
    errors = [error for load in loads for error in load.errors]
    assert not errors, errors
    acknowledged = {place: value for load in loads for place, value in load.acknowledged.items()}
    assert len(acknowledged) == sum(len(load.acknowledged) for load in loads), "two got one place"
    stored = everything(topic, partitions, login)
    somewhere = {value for load in loads for value in load.somewhere}
    told = {place: value for place, value in stored.items() if value not in somewhere}
    assert told == acknowledged, "what is there is what was acknowledged, each where it was said to be"
    assert somewhere <= set(stored.values()), "nor is anything missing whose place was not told"
    assert len(set(stored.values())) == len(stored), "each once"
    for load in loads:
        places = [place for place, _ in load.followed]
        for partition in range(partitions):
            offsets = [place.offset for place in places if place.partition == partition]
            assert offsets == list(range(len(offsets))), (
                f"{load.name} read {partition} from the beginning, in order"
            )
        assert all(stored[place] == value for place, value in load.followed)
    by_group = {place: value for load in loads for place, value in load.by_group.items()}
    last = {place for place in stored if place not in by_group}
    remaining = everything(topic, partitions, login, group=READERS) if last else {}
    assert last <= set(remaining), "the group goes on where it has committed, and misses nothing"
    assert all(stored[place] == value for place, value in by_group.items())


def everything(topic: str, partitions: int, login: dict[str, Any], group: str = "") -> dict[Place, bytes]:
    """What is stored, or what the group has not committed."""
    consumer = confluent_kafka.Consumer(
        {**login, "group.id": group or "checks", "enable.auto.commit": False, "auto.offset.reset": "earliest"}
    )
    found: dict[Place, bytes] = {}
    try:
        parts = [TopicPartition(topic, number) for number in range(partitions)]
        ends = {part.partition: consumer.get_watermark_offsets(part, timeout=PATIENCE_S)[1] for part in parts}
        begins = {part.partition: 0 for part in parts}
        if group:
            committed = consumer.committed(parts, timeout=PATIENCE_S)
            begins = {part.partition: max(part.offset, 0) for part in committed}
        consumer.assign([TopicPartition(topic, number, begin) for number, begin in begins.items()])
        left = {number for number, end in ends.items() if begins[number] < end}
        deadline = time.monotonic() + PATIENCE_S
        while left:
            assert time.monotonic() < deadline, f"partitions {left} are not read to their ends"
            message = consumer.poll(1.0)
            if message is None or message.error() is not None:
                continue
            place = Place(message.partition(), message.offset())
            assert place not in found
            found[place] = message.value()
            if place.offset + 1 >= ends[place.partition]:
                left.discard(place.partition)
    finally:
        consumer.close()
    return found
