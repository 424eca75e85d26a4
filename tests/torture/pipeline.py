"""Consume, transform, produce in transactions: several transactional ids in one group, held to exactly once at the end.

Each worker copies what it reads into the same partition of the target and commits its offsets in the same transaction.
Whatever becomes of brokers and workers, the target must in the end be the source: each message once, in its order.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from typing import Any

import confluent_kafka as ck
from books import PRODUCER, Bulk, quiet, read_all
from exchange import Exchange

GROUP = "pipeline"
TRANSACTION: dict[str, Any] = {
    **PRODUCER,
    "linger.ms": 0,
    "message.timeout.ms": 20_000,
    "transaction.timeout.ms": 20_000,
    "debug": "eos,protocol,broker",
    "log_level": 7,
}
API_S = 15.0
TRIES = 2
HUNG_S = 35.0
"""So long one call may take. librdkafka overruns API_S by socket.timeout.ms and more when it has no coordinator to talk to,
and its send_offsets_to_transaction may never return when the group's coordinator is gone from the metadata (its issues 5456 and
5511). A life that hangs is left behind, and the next one fences it. Whose fault it was is told by what brokers owe it (Exchange)."""
CONSUMER: dict[str, Any] = {
    "group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000, "heartbeat.interval.ms": 1000, "max.poll.interval.ms": 15_000, "log_level": 0, "error_cb": quiet,
}  # fmt: skip


class _Crash(Exception):
    """The worker is gone in the middle of a transaction; its next life has to fence the last."""


class Worker:
    def __init__(self, bootstrap: str, source: str, target: str, number: int, seed: int) -> None:
        self.name = f"{GROUP}-{number}"
        self.copied = self.idle = 0
        self.troubles: Counter[str] = Counter()
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._dice = random.Random(seed * 100 + number)
        self._stop = threading.Event()
        self._threads = [threading.Thread(target=self._watch, name=f"{self.name} watch", daemon=True)]
        self._life = 0
        self._doing, self._moved_at = "", 0.0
        self._producer: ck.Producer | None = None
        self.owed: list[str] = []
        """What a worker that hung was not answered."""
        self._generation = 0
        self._membership: object | None = None
        self._exchange = Exchange()

    def last_words(self) -> str:
        return "\n".join([f"--- {self.name}, {dict(self.troubles)}", *self._exchange.lines])

    def start(self) -> Worker:
        self._threads[0].start()
        return self

    def stop(self, seconds: float = 90.0) -> bool:
        self._stop.set()
        self._threads[-1].join(seconds)
        return not self._threads[-1].is_alive()

    def _watch(self) -> None:
        while not self._stop.is_set():
            if self._life and time.monotonic() - self._moved_at < HUNG_S:
                time.sleep(0.1)
                continue
            if self._life:
                self._hangs()
            self._life += 1
            self._does("begins")
            thread = threading.Thread(target=self._run, args=(self._life,), name=self.name, daemon=True)
            self._threads.append(thread)
            thread.start()

    def _hangs(self) -> None:
        """In a call of which client, and is it a broker that it waits for? The next life does not wait for the answer."""
        what, producer, exchange = f"{self.name} hung in {self._doing}", self._producer, self._exchange
        self.troubles[f"hung in {self._doing}"] += 1
        if producer is None or self._doing.startswith("consumer"):
            self.owed.append(f"unknown: {what}")
            return

        def ask() -> None:
            owed = exchange.owed(lambda: producer.poll(0))
            self.owed += owed
            said = "\n".join(exchange.lines)
            print(
                f"{what}, is owed {owed}, gave up {list(exchange.given_up)}, {exchange.doomed}\n{said}",
                flush=True,
            )

        threading.Thread(target=ask, name=f"{self.name} inquest", daemon=True).start()

    def _does(self, what: str) -> None:
        """Whoever begins something new has got on; but a life that was left behind does not count."""
        if threading.current_thread() in (self._threads[0], self._threads[-1]):
            self._doing, self._moved_at = what, time.monotonic()

    def _is_over(self, life: int) -> bool:
        return self._stop.is_set() or self._life != life

    def _run(self, life: int) -> None:
        while not self._is_over(life):
            try:
                self._live(life)
            except _Crash:
                self.troubles["crash"] += 1
            except ck.KafkaException as problem:
                self.troubles[problem.args[0].name()] += 1

    def _live(self, life: int) -> None:
        # A log of its own: the life before may still be talking.
        self._exchange = Exchange()
        logger = logging.Logger(self.name, logging.DEBUG)
        logger.addHandler(self._exchange)
        self._does("begins")
        self._producer = producer = ck.Producer(
            {
                **TRANSACTION,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self.name,
                "error_cb": quiet,
            },
            logger=logger,
        )
        consumer = ck.Consumer({**CONSUMER, "bootstrap.servers": self._bootstrap})
        try:
            self._patiently("init_transactions", lambda: producer.init_transactions(API_S))
            self._membership = None
            consumer.subscribe(
                [self._source], on_assign=self._assigned, on_revoke=self._revoked, on_lost=self._revoked
            )
            while not self._is_over(life):
                self._turn(producer, consumer)
        finally:
            self._does("consumer.close")
            consumer.close()

    def _assigned(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._generation += 1
        # Taken here and nowhere else: librdkafka's own view moves on in the background, and would vouch for messages
        # which were read under the generation before.
        self._membership = consumer.consumer_group_metadata()

    def _revoked(self, consumer: ck.Consumer, partitions: list[ck.TopicPartition]) -> None:
        self._generation += 1
        self._membership = None

    def _turn(self, producer: ck.Producer, consumer: ck.Consumer) -> None:
        messages = self._gather(consumer)
        if not messages or self._membership is None:
            # A worker may have no partition for now; that it is told so is progress all the same.
            self.idle += 1
            return
        try:
            self._copy(producer, messages)
        except ck.KafkaException as problem:
            error = problem.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            self.troubles[error.name()] += 1
            self._patiently("abort_transaction", lambda: producer.abort_transaction(API_S))
            self._rewind(consumer)

    def _gather(self, consumer: ck.Consumer, at_most: int = 200, seconds: float = 0.3) -> list[ck.Message]:
        messages: list[ck.Message] = []
        deadline = time.monotonic() + seconds
        while len(messages) < at_most and time.monotonic() < deadline:
            generation = self._generation
            self._does("consumer.poll")
            message = consumer.poll(0.05)
            if self._generation != generation:
                # Read under the assignment before; the new one begins at what is committed, so they come again.
                messages.clear()
            if message is not None and message.error() is None:
                messages.append(message)
        return messages

    def _copy(self, producer: ck.Producer, messages: list[ck.Message]) -> None:
        producer.begin_transaction()
        ends: dict[int, int] = {}
        for message in messages:
            producer.produce(self._target, message.value(), partition=message.partition())
            ends[message.partition()] = message.offset() + 1
        fate = self._dice.random()
        if fate < 0.01:
            raise _Crash
        offsets = [ck.TopicPartition(self._source, partition, end) for partition, end in ends.items()]
        self._patiently(
            "send_offsets_to_transaction",
            lambda: producer.send_offsets_to_transaction(offsets, self._membership, API_S),
        )
        if fate < 0.02:
            raise _Crash
        if fate < 0.05:
            self._patiently("abort_transaction", lambda: producer.abort_transaction(API_S))
            raise _Crash
        self._patiently("commit_transaction", lambda: producer.commit_transaction(API_S))
        self.copied += len(messages)

    def _rewind(self, consumer: ck.Consumer) -> None:
        self._does("consumer.committed")
        for place in consumer.committed(consumer.assignment(), 15):
            start = place.offset if place.offset >= 0 else ck.OFFSET_BEGINNING
            consumer.seek(ck.TopicPartition(place.topic, place.partition, start))

    def _patiently(self, what: str, call: Callable[[], object]) -> None:
        """Again while the client says that it is worth trying."""
        for tries in range(TRIES):
            self._does(what)
            try:
                call()
                return
            except ck.KafkaException as problem:
                error = problem.args[0]
                if error.fatal() or error.txn_requires_abort() or not error.retriable():
                    raise
                self.troubles[f"{error.name()} (again)"] += 1
                if tries + 1 == TRIES:
                    print(f"given up: {problem}\n{self.last_words()}", flush=True)
                    raise


@dataclass
class ExactlyOnce:
    """The target held against the source."""

    read: int
    copied: int
    lost: int
    duplicated: int
    disordered: int
    troubles: dict[str, int]
    owed: list[str]
    """To workers that hung."""
    complaints: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        """A worker that hung is excused only if every request of its was answered: then the client waits for itself."""
        return not (self.lost or self.duplicated or self.disordered or self.owed or self.complaints)


class Pipeline:
    def __init__(
        self,
        bootstrap: str,
        source: str,
        target: str,
        partitions: int,
        *,
        workers: int,
        per_second: int,
        seed: int,
    ) -> None:
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._partitions = partitions
        self.feed = Bulk(bootstrap, source, partitions, per_second)
        self.workers = [Worker(bootstrap, source, target, number, seed) for number in range(1, workers + 1)]

    def start(self) -> Pipeline:
        self.feed.start()
        for worker in self.workers:
            worker.start()
        return self

    def progress(self) -> dict[str, int]:
        """Each worker turns, and the pipeline as a whole copies; how the group shares the work out is its own affair."""
        turns = {worker.name: worker.copied + worker.idle for worker in self.workers}
        return {**self.feed.progress(), **turns, GROUP: sum(worker.copied for worker in self.workers)}

    def last_words(self) -> str:
        return "\n".join(worker.last_words() for worker in self.workers)

    def stop(self, seconds: float = 180.0) -> ExactlyOnce:
        self.feed.stop()
        complaints = []
        source = read_all(self._bootstrap, self._source, self._partitions)
        if not self._drained(time.monotonic() + seconds):
            complaints.append(f"not everything was copied within {seconds} s")
        complaints += [f"{worker.name} does not end" for worker in self.workers if not worker.stop()]
        target = read_all(self._bootstrap, self._target, self._partitions)
        lost = duplicated = disordered = 0
        for partition in range(self._partitions):
            there, wanted = Counter(target[partition]), Counter(source[partition])
            lost += (wanted - there).total()
            duplicated += (there - wanted).total()
            disordered += there == wanted and target[partition] != source[partition]
        troubles = sum((worker.troubles for worker in self.workers), Counter())
        owed = [what for worker in self.workers for what in worker.owed]
        return ExactlyOnce(
            owed=owed, read=sum(map(len, source.values())), copied=sum(map(len, target.values())),
            lost=lost, duplicated=duplicated, disordered=disordered, troubles=dict(troubles), complaints=complaints,
        )  # fmt: skip

    def _drained(self, deadline: float) -> bool:
        """Whether the group has committed everything that is in the source."""
        consumer = ck.Consumer({**CONSUMER, "bootstrap.servers": self._bootstrap})
        places = [ck.TopicPartition(self._source, number) for number in range(self._partitions)]
        try:
            while time.monotonic() < deadline:
                try:
                    ends = [consumer.get_watermark_offsets(place, timeout=10)[1] for place in places]
                    committed = [place.offset for place in consumer.committed(places, 10)]
                except ck.KafkaException:
                    continue
                if all(got >= end or end == 0 for got, end in zip(committed, ends, strict=True)):
                    return True
                time.sleep(0.2)
            return False
        finally:
            consumer.close()
