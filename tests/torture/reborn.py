"""A topic that is deleted and created again under the same name while it is written and read.

What was acknowledged before a deletion began is dead: the next topic of that name may not show it. What was sent after a
creation was answered, and acknowledged, must be there until the next deletion. What was in flight between the two may be in
either, or in both, or in neither if nobody acknowledged it. In one life nothing is there twice.

The last is promised to a client that keeps the numbers it has given (R38). librdkafka gives new ones when a message of its
own times out (`message.timeout.ms`): it bumps its epoch and numbers everything from 0, also what it has sent and never
heard of, and no broker can know that again. So this client never gives up on a message; decision 0028 tells how it was found.
"""

from __future__ import annotations

import logging
import random
import threading
import time
from collections import Counter, deque
from dataclasses import dataclass, field

import confluent_kafka as ck
from books import PRODUCER, quiet, read_all
from confluent_kafka.admin import AdminClient, NewTopic

LIMBO = 0
"""Between a deletion and the next creation."""
PATIENT = {"message.timeout.ms": 0, "topic.metadata.propagation.max.ms": 3_600_000}
"""Nothing that was sent is given up, however long the topic is away."""

READ_S = 300.0
"""So long the reading of one life may take: faults go on meanwhile, and each of them may take all its leaders away for a while."""
LATE_S = 120.0
"""So long may a broker that was paused or cut off sit on a request that nobody waits for any more."""


@dataclass
class Rebirths:
    lives: int = 0
    acked: int = 0
    lost: int = 0
    ghosts: int = 0
    duplicated: int = 0
    renumberings: Counter[str] = field(default_factory=Counter)
    """Why the client gave what it had sent new numbers. Not a complaint, but where to look when something is there twice."""
    bumps: list[str] = field(default_factory=list)
    """What the client said of the first few."""
    undecided: int = 0
    """Lives whose predecessor's deletion was not answered: it may come late and hit the new topic."""
    producers: Counter[str] = field(default_factory=Counter)
    """Why a producer had to be replaced."""
    complaints: list[str] = field(default_factory=list)

    @property
    def is_clean(self) -> bool:
        return not (self.lost or self.ghosts or self.duplicated or self.complaints)


class _Renumberings(logging.Handler):
    """Hears when librdkafka numbers anew what it has sent: a broker did not list the topic, or refused a sequence."""

    def __init__(self, owner: Reborn) -> None:
        super().__init__()
        self._owner = owner

    def emit(self, record: logging.LogRecord) -> None:
        text = record.getMessage()
        if "no longer reported in metadata" in text:
            self._owner.renumbers("told that there is no such topic")
        elif "epoch bump" in text:
            self._owner.renumbers("epoch bump")
            if len(self._owner.result.bumps) < 5:
                self._owner.result.bumps.append(text[:300])


class _LastWords(logging.Handler):
    """What the reader's client said last, for the day it stands still."""

    def __init__(self) -> None:
        super().__init__()
        self.lines: deque[str] = deque(maxlen=2_000)

    def emit(self, record: logging.LogRecord) -> None:
        self.lines.append(f"{time.strftime('%H:%M:%S')} {record.getMessage()}")


class Reborn:
    def __init__(
        self, bootstrap: str, topic: str, partitions: int, *, seed: int, life_s: tuple[float, float] = (3, 12)
    ) -> None:
        self.result = Rebirths()
        self._bootstrap = bootstrap
        self._topic = topic
        self._partitions = partitions
        self._life_s = life_s
        self._dice = random.Random(seed)
        self._admin = AdminClient({"bootstrap.servers": bootstrap, "log_level": 0, "error_cb": quiet})
        self._alive = LIMBO
        self._sent_in: dict[int, int] = {}
        self._acked: dict[int, tuple[int, int]] = {}
        """Number of the message -> where it was acknowledged."""
        self._read = 0
        self._logger = logging.Logger(topic, logging.DEBUG)
        self._logger.addHandler(_Renumberings(self))
        self._last_words = _LastWords()
        self._settle, self._stop = threading.Event(), threading.Event()
        self._threads = [
            threading.Thread(target=work, name=f"{topic} {what}", daemon=True)
            for what, work in (("manager", self._manage), ("sender", self._send), ("reader", self._poll))
        ]

    def start(self) -> Reborn:
        for thread in self._threads:
            thread.start()
        return self

    def progress(self) -> dict[str, int]:
        return {f"{self._topic} sender": len(self._acked), f"{self._topic} reader": self._read}

    def last_words(self) -> str:
        return "\n".join(self._last_words.lines)

    def renumbers(self, why: str) -> None:
        self.result.renumberings[f"{why}, between two lives" if self._alive == LIMBO else why] += 1

    def settle(self, seconds: float = READ_S + 150) -> None:
        """No more deletions; the load goes on."""
        self._settle.set()
        self._threads[0].join(seconds)
        if self._threads[0].is_alive():
            self.result.complaints.append("the last life was never audited")

    def stop(self) -> Rebirths:
        self._stop.set()
        for thread in self._threads[1:]:
            thread.join(60)
        self.result.acked = len(self._acked)
        return self.result

    # -- lives ------------------------------------------------------------------------------------------------------

    def _manage(self) -> None:
        dead: set[int] = set()
        doubtful_until = 0.0
        while True:
            self._create()
            self.result.lives += 1
            self._alive = self.result.lives
            self._settle.wait(self._dice.uniform(*self._life_s))
            self._audit(dead, is_doubtful=time.monotonic() < doubtful_until)
            if self._settle.is_set():
                return
            dead |= self._acked.keys()
            self._alive = LIMBO
            if self._delete():
                doubtful_until = time.monotonic() + LATE_S

    def _create(self) -> None:
        config, may_be_ours = {"min.insync.replicas": "2"}, False
        while True:
            try:
                topic = NewTopic(self._topic, self._partitions, 3, config=config)
                self._admin.create_topics([topic], request_timeout=15)[self._topic].result(20)
                return
            except ck.KafkaException as problem:
                if problem.args[0].code() == ck.KafkaError.TOPIC_ALREADY_EXISTS:
                    if not may_be_ours:  # F34: its deletion was answered
                        self.result.complaints.append(
                            f"life {self.result.lives + 1} was refused as already there"
                        )
                    return
                may_be_ours = True
                time.sleep(0.2)

    def _delete(self) -> bool:
        """Whether a request went unanswered: it may yet be done, to the next topic of this name."""
        is_doubtful = False
        while True:
            try:
                self._admin.delete_topics([self._topic], request_timeout=15)[self._topic].result(20)
                return is_doubtful
            except ck.KafkaException as problem:
                if problem.args[0].code() == ck.KafkaError.UNKNOWN_TOPIC_OR_PART:
                    return is_doubtful
                is_doubtful = True
                time.sleep(0.2)

    def _audit(self, dead: set[int], *, is_doubtful: bool) -> None:
        life = self._alive
        due = {number for number in tuple(self._acked) if self._sent_in[number] == life}
        try:
            rows = read_all(self._bootstrap, self._topic, self._partitions, READ_S)
        except (AssertionError, ck.KafkaException) as problem:
            if is_doubtful:
                self.result.undecided += 1
            else:
                self.result.complaints.append(f"life {life} could not be read: {problem}")
            return
        there = Counter(int(value) for values in rows.values() for value in values)
        lost, ghosts = due - there.keys(), dead & there.keys()
        if is_doubtful and lost:
            self.result.undecided += 1
            return
        self.result.lost += len(lost)
        self.result.ghosts += len(ghosts)
        twice = {number for number, count in there.items() if count > 1}
        self.result.duplicated += len(twice)
        if (lost or ghosts or twice) and len(self.result.complaints) < 10:
            shown = {
                number: (self._sent_in.get(number), self._acked.get(number))
                for number in sorted(lost | ghosts | twice)[:5]
            }
            self.result.complaints.append(
                f"{time.strftime('%H:%M:%S')} life {life} of {len(there)} messages: lost {len(lost)} of {len(due)}, "
                f"ghosts {len(ghosts)}, duplicates {len(twice)}, such as (life, place) {shown}"
            )
            print(self.result.complaints[-1], flush=True)

    # -- load -------------------------------------------------------------------------------------------------------

    def _send(self) -> None:
        number = 0
        while not self._stop.is_set():
            died: list[str] = []
            producer = ck.Producer(
                {**PRODUCER, **PATIENT, "bootstrap.servers": self._bootstrap, "debug": "topic,eos", "log_level": 7,
                 "error_cb": lambda error, died=died: died.append(error.name()) if error.fatal() else None},
                logger=self._logger,
            )  # fmt: skip
            while not self._stop.is_set() and not died:
                self._sent_in[number] = self._alive
                try:
                    producer.produce(
                        self._topic,
                        b"%d" % number,
                        partition=number % self._partitions,
                        on_delivery=lambda error, message, number=number: self._told(number, error, message),
                    )
                    number += 1
                except (BufferError, ck.KafkaException):
                    pass
                producer.poll(0.005)
            producer.flush(30 if not died else 1)
            self.result.producers.update(died[:1])

    def _told(self, number: int, error: ck.KafkaError | None, message: ck.Message) -> None:
        if error is None:
            self._acked[number] = (message.partition() or 0, message.offset() or 0)

    def _poll(self) -> None:
        logger = logging.Logger(f"{self._topic} reader", logging.DEBUG)
        logger.addHandler(self._last_words)
        consumer = ck.Consumer(
            {"bootstrap.servers": self._bootstrap, "group.id": f"{self._topic} readers", "auto.offset.reset": "earliest",
             "auto.commit.interval.ms": 500, "session.timeout.ms": 10_000, "topic.metadata.refresh.interval.ms": 1000,
             "debug": "cgrp,topic,metadata,consumer", "log_level": 7, "error_cb": quiet},
            logger=logger,
        )  # fmt: skip
        consumer.subscribe([self._topic])
        while not self._stop.is_set():
            self._read += sum(message.error() is None for message in consumer.consume(500, 0.3))
        consumer.close()
