"""F37: Kafka Streams on Headrace with both group protocols, exactly once, through kill -9 of application and broker."""

from __future__ import annotations

import random
import subprocess
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient, NewTopic
from kafka_jars import HERE, java

from headrace.testing.broker_process import BrokerProcess

WORDS = [f"word{number}" for number in range(40)]
ROUND = 2_000


class Application:
    """Instances of the counting application, each a process with two threads and a directory of its own."""

    def __init__(self, broker: BrokerProcess, protocol: str, directory: Path) -> None:
        self._broker, self._protocol, self._directory = broker, protocol, directory
        self._running: dict[int, subprocess.Popen[bytes]] = {}

    def start(self, number: int) -> None:
        log = (self._directory / f"app-{number}.log").open("ab")
        program = java(str(HERE / "streams" / "CountWords.java"), log_level="warn")
        state = str(self._directory / f"state-{number}")
        arguments = [self._broker.bootstrap, "count", self._protocol, state, str(9_000 + number)]
        self._running[number] = subprocess.Popen([*program, *arguments], stdout=log, stderr=subprocess.STDOUT)

    def kill(self, number: int) -> None:
        """-9."""
        process = self._running.pop(number)
        process.kill()
        process.wait()

    def check(self) -> None:
        for number, process in self._running.items():
            assert process.poll() is None, f"instance {number} ended: {self.log(number)}"

    def log(self, number: int) -> str:
        return (self._directory / f"app-{number}.log").read_text(errors="replace")[-8_000:]

    def stop(self) -> None:
        for number in list(self._running):
            self.kill(number)


@contextmanager
def application(broker: BrokerProcess, protocol: str, directory: Path) -> Iterator[Application]:
    started = Application(broker, protocol, directory)
    try:
        yield started
    finally:
        started.stop()


class Totals:
    """What a reader of committed records sees in the output."""

    def __init__(self, broker: BrokerProcess) -> None:
        settings = {
            "bootstrap.servers": broker.bootstrap,
            "group.id": "checker",
            "auto.offset.reset": "earliest",
            "isolation.level": "read_committed",
            "enable.auto.commit": False,
            "log_level": 0,
        }
        self._consumer = Consumer(settings)
        self._consumer.subscribe(["totals"])
        self.seen: Counter[tuple[str, int]] = Counter()

    def read_until(self, number: int, check: Callable[[], None], seconds: float = 300.0) -> None:
        end = time.monotonic() + seconds
        while self.seen.total() < number:
            check()
            assert time.monotonic() < end, f"{self.seen.total()} of {number} after {seconds} s"
            for message in self._consumer.consume(500, 0.5):
                if message.error() is None:
                    self.seen[message.key().decode(), int(message.value())] += 1

    def close(self) -> None:
        self._consumer.close()


def feed(broker: BrokerProcess, words: list[str]) -> None:
    """Once each: an idempotent producer that waits, also through the death of the broker."""
    settings = {
        "bootstrap.servers": broker.bootstrap,
        "enable.idempotence": True,
        "delivery.timeout.ms": 300_000,
        "log_level": 0,
    }
    producer = Producer(settings)
    for number, word in enumerate(words):
        producer.produce("words", key=str(number), value=word)
    assert producer.flush(300) == 0


@pytest.mark.timeout(1_500)
@pytest.mark.parametrize("protocol", ["streams", "classic"])
def test_f37_exactly_once_through_kills(protocol: str, tmp_path: Path) -> None:
    dice = random.Random(protocol)
    with BrokerProcess(tmp_path / "data") as broker, application(broker, protocol, tmp_path) as app:
        admin = AdminClient({"bootstrap.servers": broker.bootstrap, "log_level": 0})
        for made in admin.create_topics([NewTopic("words", 4, 1), NewTopic("totals", 2, 1)]).values():
            made.result()
        totals = Totals(broker)
        fed: list[str] = []

        def more(words: int = ROUND) -> None:
            drawn = dice.choices(WORDS, k=words)
            feed(broker, drawn)
            fed.extend(drawn)

        app.start(1)
        more()
        totals.read_until(len(fed), app.check)
        app.start(2)
        more()
        app.kill(1)  # in the middle of it
        more()
        totals.read_until(len(fed) - ROUND // 2, app.check)
        more()
        broker.kill()
        broker.start()
        app.start(1)
        more()
        app.kill(2)
        more()
        totals.read_until(len(fed), app.check)
        app.start(2)
        broker.kill()
        app.kill(1)
        broker.start()
        app.start(1)
        more()
        totals.read_until(len(fed), app.check)
        totals.close()
        expected = {
            (word, count): 1 for word, number in Counter(fed).items() for count in range(1, number + 1)
        }
        assert totals.seen == Counter(expected), "each count of each word is written once"
