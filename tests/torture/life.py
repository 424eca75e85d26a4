"""One life of a worker of the pipeline, in a process of its own: consume, transform, produce in transactions until told to stop.

python life.py '{"bootstrap": …, "source": …, "target": …, "name": …, "seed": …}'

A process, because librdkafka's calls may hang for ever and its threads then spin (its issues 5456 and 5511): such a life is
ended by a signal and takes nothing of the machine from the brokers under torture. It tells on stdout, one JSON object a line, what it
does, what it has copied and what troubled it; the line "inquest" on stdin asks what brokers owe it.
"""

from __future__ import annotations

import contextlib
import json
import logging
import os
import random
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

import confluent_kafka as ck

sys.path.insert(0, str(Path(__file__).parent))
from books import PRODUCER, quiet
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
CONSUMER: dict[str, Any] = {
    "group.id": GROUP, "isolation.level": "read_committed", "enable.auto.commit": False, "auto.offset.reset": "earliest",
    "session.timeout.ms": 10_000, "heartbeat.interval.ms": 1000, "max.poll.interval.ms": 15_000, "log_level": 0, "error_cb": quiet,
}  # fmt: skip


class _Crash(Exception):
    """The worker is gone in the middle of a transaction; its next life has to fence the last."""


def tell(**what: object) -> None:
    try:
        sys.stdout.write(json.dumps(what) + "\n")
        sys.stdout.flush()
    except BrokenPipeError:
        os._exit(0)  # the torture is over


class Life:
    def __init__(self, bootstrap: str, source: str, target: str, name: str, seed: int) -> None:
        self._bootstrap = bootstrap
        self._source = source
        self._target = target
        self._name = name
        self._dice = random.Random(seed)
        self._stopped = threading.Event()
        self._producer: ck.Producer | None = None
        self._generation = 0
        self._membership: object | None = None
        self._exchange = Exchange()
        self._doing, self._told_at = "", 0.0

    def listen(self) -> None:
        """What the torture says on stdin; its end is ours."""
        for line in sys.stdin:
            if line.strip() == "inquest":
                self._inquest()
            else:
                self._stopped.set()
        self._stopped.set()

    def _inquest(self) -> None:
        """In a call that does not return: is it a broker that it waits for?"""
        producer, exchange = self._producer, self._exchange

        def serve() -> None:
            with contextlib.suppress(ck.KafkaException):  # it was told something fatal: an answer
                assert producer is not None
                producer.poll(0)

        owed = ["unknown"] if producer is None else exchange.owed(serve)
        tell(
            owed=owed,
            gave_up=list(exchange.given_up),
            doomed=dict(exchange.doomed),
            lines=list(exchange.lines),
        )

    def run(self) -> None:
        """Until it is told to stop; a transaction that fails ends one client, as a restarted worker would begin with a new one."""
        while not self._stopped.is_set():
            try:
                self._live()
            except _Crash:
                tell(trouble="crash")
            except ck.KafkaException as problem:
                tell(trouble=problem.args[0].name())

    def _does(self, what: str) -> None:
        """Told when it is something else, and once a second."""
        now = time.monotonic()
        if what != self._doing or now - self._told_at > 1.0:
            self._doing, self._told_at = what, now
            tell(does=what)

    def _live(self) -> None:
        # A log of its own: the life before may still be talking.
        self._exchange = Exchange()
        logger = logging.Logger(self._name, logging.DEBUG)
        logger.addHandler(self._exchange)
        self._does("begins")
        self._producer = producer = ck.Producer(
            {
                **TRANSACTION,
                "bootstrap.servers": self._bootstrap,
                "transactional.id": self._name,
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
            while not self._stopped.is_set():
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
            tell(idle=1)
            return
        try:
            self._copy(producer, messages)
        except ck.KafkaException as problem:
            error = problem.args[0]
            if error.fatal() or not error.txn_requires_abort():
                raise
            tell(trouble=error.name())
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
        tell(copied=len(messages))

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
                tell(trouble=f"{error.name()} (again)")
                if tries + 1 == TRIES:
                    tell(given_up=str(problem), lines=list(self._exchange.lines))
                    raise


def main() -> None:
    life = Life(**json.loads(sys.argv[1]))
    threading.Thread(target=life.listen, name="listen", daemon=True).start()
    life.run()
    # Clients of lives before may hang, and are not waited for.
    os._exit(0)


if __name__ == "__main__":
    main()
