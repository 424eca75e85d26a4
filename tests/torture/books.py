"""Load on a real cluster with confluent-kafka, and the books it keeps: what was acknowledged, when, and what is there.

Two kinds at once: bulk producers that only count and are audited at the end, and clients that write a History for the
checker of correctness.md section 6.
"""

from __future__ import annotations

import threading
import time
from collections import Counter
from contextlib import suppress
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import confluent_kafka as ck

from headrace.testing.history import OperationHistory, OperationOutcome, Poll, Send

PRODUCER: dict[str, Any] = {
    "acks": "all",
    "enable.idempotence": True,
    "linger.ms": 5,
    "message.timeout.ms": 120_000,
    "request.timeout.ms": 10_000,
    "socket.timeout.ms": 10_000,
    "reconnect.backoff.ms": 50,
    "reconnect.backoff.max.ms": 500,
    "retry.backoff.ms": 50,
    "retry.backoff.max.ms": 500,
    "topic.metadata.refresh.fast.interval.ms": 50,
    "queue.buffering.max.messages": 200_000,
    "log_level": 0,
    "statistics.interval.ms": 0,
}


UNTOLD = -1
"""librdkafka knows that a message is there, and not where: its repeated batch was older than the five that brokers remember."""


def quiet(error: ck.KafkaError) -> None:
    """Lost connections are what this is about."""


@dataclass
class Books:
    """What one bulk producer was told."""

    acked: dict[int, int] = field(default_factory=dict)
    """partition * 2**40 + number of the message -> its offset."""
    failures: list[str] = field(default_factory=list)
    times: dict[int, list[float]] = field(default_factory=dict)
    """partition -> when acknowledgements came, at most one each 5 ms."""


class Bulk:
    """Sends numbered messages to every partition in turn at a steady rate until told to stop."""

    def __init__(self, bootstrap: str, topic: str, partitions: int, per_second: int, size: int = 64) -> None:
        self.books = Books(times={number: [] for number in range(partitions)})
        self.sent = 0
        self._partitions = partitions
        self._topic = topic
        self._per_second = per_second
        self._padding = b"x" * size
        self._stop = threading.Event()
        self._producer = ck.Producer({**PRODUCER, "bootstrap.servers": bootstrap, "error_cb": quiet})
        self._thread = threading.Thread(target=self._run, name=f"bulk {topic}", daemon=True)

    def progress(self) -> dict[str, int]:
        return {
            f"bulk {self._topic}-{partition}": len(times) for partition, times in self.books.times.items()
        }

    def start(self) -> Bulk:
        self._thread.start()
        return self

    def _run(self) -> None:
        tick_s = 0.01
        per_tick = max(1, int(self._per_second * tick_s))
        due = time.monotonic()
        while not self._stop.is_set():
            for _ in range(per_tick):
                self._send()
            self._producer.poll(0)
            due += tick_s
            late_s = due - time.monotonic()
            if late_s > 0:
                self._producer.poll(late_s)
            else:
                due = time.monotonic()

    def _send(self) -> None:
        number = self.sent
        partition = number % self._partitions
        place = (partition << 40) + number
        while True:
            try:
                self._producer.produce(
                    self._topic,
                    b"%d:%b" % (number, self._padding),
                    partition=partition,
                    on_delivery=lambda error, message: self._told(place, error, message),
                )
                self.sent += 1
                return
            except BufferError:
                if self._stop.is_set():
                    return
                self._producer.poll(0.1)

    def _told(self, place: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is not None:
            self.books.failures.append(f"{place & (2**40 - 1)}: {error}")
            return
        offset = message.offset()
        self.books.acked[place] = UNTOLD if offset is None else offset
        times, now = self.books.times[place >> 40], time.monotonic()
        if not times or now - times[-1] > 0.005:
            times.append(now)

    def stop(self, seconds: float = 120.0) -> Books:
        self._stop.set()
        self._thread.join(30)
        left = self._producer.flush(seconds)
        if left:
            self.books.failures.append(f"{left} messages were never answered")
        return self.books


@dataclass
class Audit:
    acked: int
    there: int
    lost: int
    duplicated: int
    moved: int
    """Acknowledged at another offset than where it is."""
    disordered: int
    reread: int = 0
    """The reader went back by itself."""
    twice: list[str] = field(default_factory=list)
    """The first that are there more than once, and where: the log tells under which numbers (headrace debug dump-log)."""

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.duplicated or self.moved or self.disordered)


def audit(
    bootstrap: str,
    topic: str,
    partitions: int,
    books: Books,
    seconds: float = 300.0,
    *,
    may_fade: bool = False,
) -> Audit:
    """Read everything and hold it against the books. `may_fade`: retention may have taken the oldest."""
    offsets: dict[int, list[int]] = {}
    """place -> where it is."""
    disordered = reread = 0
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "audit", "enable.auto.commit": False, "log_level": 0,
         "error_cb": quiet, "auto.offset.reset": "error", "fetch.wait.max.ms": 100}
    )  # fmt: skip
    try:
        marks = {number: _watermarks(consumer, topic, number, seconds) for number in range(partitions)}
        starts = {number: low if may_fade else 0 for number, (low, _) in marks.items()}
        ends = {number: high for number, (_, high) in marks.items()}
        consumer.assign([ck.TopicPartition(topic, number, start) for number, start in starts.items()])
        left = {number for number, end in ends.items() if end > starts[number]}
        last = dict.fromkeys(range(partitions), -1)
        deadline = time.monotonic() + seconds
        while left:
            if time.monotonic() > deadline:
                raise AssertionError(f"partitions {sorted(left)} could not be read to their ends {ends}")
            for message in consumer.consume(10_000, 0.5):
                if message.error() is not None:
                    continue
                partition, offset = message.partition(), message.offset()
                number = int(message.value().split(b":", 1)[0])
                at = offsets.setdefault((partition << 40) + number, [])
                if offset in at:
                    reread += 1  # a client may go back, which says nothing of what is stored
                    continue
                at.append(offset)
                disordered += number <= last[partition]
                last[partition] = max(last[partition], number)
                if offset + 1 >= ends[partition]:
                    left.discard(partition)
    finally:
        consumer.close()
    return Audit(
        acked=len(books.acked),
        there=sum(map(len, offsets.values())),
        lost=sum(
            place not in offsets and (offset >= starts[place >> 40] or (offset == UNTOLD and not may_fade))
            for place, offset in books.acked.items()
        ),
        duplicated=sum(len(at) - 1 for at in offsets.values()),
        moved=sum(
            offset != UNTOLD and place in offsets and offset not in offsets[place]
            for place, offset in books.acked.items()
        ),
        disordered=disordered,
        reread=reread,
        twice=[
            f"{topic}-{place >> 40}: message {place & (2**40 - 1)} at {at}, acknowledged at {books.acked.get(place)}"
            for place, at in offsets.items()
            if len(at) > 1
        ][:20],
    )


def _watermarks(consumer: ck.Consumer, topic: str, number: int, seconds: float) -> tuple[int, int]:
    deadline = time.monotonic() + seconds
    while True:
        try:
            low, high = consumer.get_watermark_offsets(ck.TopicPartition(topic, number), timeout=10)
            return int(low), int(high)
        except ck.KafkaException:
            if time.monotonic() > deadline:
                raise
            time.sleep(0.1)
            # librdkafka keeps "no leader" for metadata.max.age.ms, and this question alone does not make it look again.
            with suppress(ck.KafkaException):
                consumer.list_topics(topic, timeout=10)


def read_all(bootstrap: str, topic: str, partitions: int, seconds: float = 180.0) -> dict[int, list[bytes]]:
    """Every committed message of a topic that may still be written, in its order, up to where it ended when we began."""
    found: dict[int, dict[int, bytes]] = {number: {} for number in range(partitions)}
    told: Counter[str] = Counter()
    consumer = ck.Consumer(
        {"bootstrap.servers": bootstrap, "group.id": "reader", "enable.auto.commit": False, "log_level": 0,
         "error_cb": quiet, "auto.offset.reset": "error", "isolation.level": "read_committed", "enable.partition.eof": True,
         "fetch.wait.max.ms": 100}
    )  # fmt: skip
    deadline = time.monotonic() + seconds
    try:
        ends = {number: _watermarks(consumer, topic, number, seconds)[1] for number in range(partitions)}
        consumer.assign([ck.TopicPartition(topic, number, 0) for number in range(partitions)])
        left = {number for number, end in ends.items() if end > 0}
        while left:
            if time.monotonic() > deadline:
                at = {place.partition: place.offset for place in consumer.position(consumer.assignment())}
                raise AssertionError(f"{topic}: read to {at} of {ends} within {seconds} s, told {dict(told)}")
            for message in consumer.consume(10_000, 0.2):
                error, partition = message.error(), message.partition()
                if error is None:
                    # A client may go back; what it finds must be the same.
                    if found[partition].setdefault(message.offset(), message.value()) != message.value():
                        raise AssertionError(f"{topic}-{partition} has changed at {message.offset()}")
                elif error.code() != ck.KafkaError._PARTITION_EOF:
                    told[str(error)] += 1
                    continue
                # At the end there may be markers only, which nobody is shown: the end of the partition tells.
                if message.offset() + (error is None) >= ends[partition]:
                    left.discard(partition)
    finally:
        consumer.close()
    return {number: [rows[offset] for offset in sorted(rows)] for number, rows in found.items()}


class Witness:
    """A producer and a consumer that write down every operation, for the checker."""

    def __init__(self, bootstrap: str, topic: str, partitions: int) -> None:
        self.history = OperationHistory()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._stop = threading.Event()
        self._book = threading.Lock()
        self._sent = self._polled = 0
        self._threads = [
            threading.Thread(target=self._send, name="witness sender", daemon=True),
            threading.Thread(
                target=self._poll, args=(200, self._stop.is_set), name="witness reader", daemon=True
            ),
        ]

    def progress(self) -> dict[str, int]:
        return {"witness sender": self._sent, "witness reader": self._polled}

    def start(self) -> Witness:
        for thread in self._threads:
            thread.start()
        return self

    def _send(self) -> None:
        producer = ck.Producer(
            {**PRODUCER, "linger.ms": 0, "bootstrap.servers": self._bootstrap, "error_cb": quiet}
        )
        number = 0
        while not self._stop.is_set():
            partition, value = number % self._partitions, f"w{number}"
            number += 1
            told: list[tuple[Any, int | None]] = []
            with self._book:
                operation = self.history.invoke(100, "send", [Send(partition, value)], now_ms=_now_ms())
            producer.produce(
                self._topic,
                value.encode(),
                partition=partition,
                on_delivery=lambda error, message, told=told: told.append((error, message.offset())),
            )
            while not told:
                producer.poll(0.1)
            error, offset = told[0]
            self._sent += error is None
            with self._book:
                self.history.complete(
                    operation,
                    OperationOutcome.OK if error is None and offset is not None else OperationOutcome.INFO,
                    [Send(partition, value, offset if error is None else None)],
                    now_ms=_now_ms(),
                )
            time.sleep(0.02)

    def _poll(self, process: int, enough: Any) -> None:
        consumer = ck.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": f"w{process}", "enable.auto.commit": False,
             "isolation.level": "read_committed", "auto.offset.reset": "earliest", "log_level": 0, "error_cb": quiet}
        )  # fmt: skip
        keys = range(self._partitions)
        consumer.assign([ck.TopicPartition(self._topic, number, 0) for number in keys])
        with self._book:
            assigned = self.history.invoke(process, "assign", keys=keys, now_ms=_now_ms())
            self.history.complete(assigned, OperationOutcome.OK, now_ms=_now_ms())
        while not enough():
            with self._book:
                operation = self.history.invoke(process, "poll", now_ms=_now_ms())
            records: dict[int, list[tuple[int, str]]] = {}
            for message in consumer.consume(1000, 0.2):
                if message.error() is None:
                    self._polled += 1
                    records.setdefault(message.partition(), []).append(
                        (message.offset(), message.value().decode())
                    )
            with self._book:
                self.history.complete(operation, OperationOutcome.OK, [Poll(records)], now_ms=_now_ms())  # type: ignore[arg-type]
        consumer.close()

    def stop(self) -> OperationHistory:
        self._stop.set()
        for thread in self._threads:
            thread.join(150)
        highest: dict[Any, int] = {}
        for operation in self.history.operations:
            for send in operation.sends():
                if send.offset is not None:
                    highest[send.key] = max(highest.get(send.key, -1), send.offset)
        self._read_past(highest)
        return self.history

    def _read_past(self, highest: dict[Any, int]) -> None:
        """The last phase: a new reader goes from the beginning past everything known."""
        deadline = time.monotonic() + 60

        def enough() -> bool:
            read: dict[Any, int] = {}
            for operation in self.history.operations:
                if operation.process == 300:
                    for key in operation.polled_keys():
                        read[key] = max(
                            [read.get(key, -1), *(offset for offset, _ in operation.polled_from(key))]
                        )
            return time.monotonic() > deadline or all(
                read.get(key, -1) >= end for key, end in highest.items()
            )

        self._poll(300, enough)


def gaps(times: dict[int, list[float]], at: float, until: float) -> dict[int, float]:
    """Per partition, the longest silence between acknowledgements that touches [at, until]."""
    found = {}
    for partition, moments in times.items():
        around = [moment for moment in moments if at - 1.0 <= moment <= until]
        pairs = pairwise(around)
        found[partition] = max((after - before for before, after in pairs if after >= at), default=until - at)
    return found


def _now_ms() -> int:
    return int(time.monotonic() * 1000)
