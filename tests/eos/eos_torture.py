"""Kill consume-transform-produce loops, and the broker under them, at random; then the output is the input, exactly once.

Three ways to die: the worker is killed (-9); the broker is killed (-9) and started again; the worker is stopped, another
takes its place, and then the first one wakes up as a zombie (R51). What was aborted on purpose must never be seen (R48).
"""

from __future__ import annotations

import os
import random
import signal
import subprocess
import sys
import tempfile
import time
from collections import Counter
from collections.abc import Callable
from dataclasses import dataclass, field
from enum import Enum
from pathlib import Path

import confluent_kafka as ck
from confluent_kafka.admin import AdminClient, NewTopic
from stall_report import stall_report

from headrace.testing.broker_process import BrokerProcess

WORKER = Path(__file__).parent / "worker.py"
CLIENTS = ("confluent", "aiokafka", "kafka-python")
PARTITIONS = 3
PER_KILL = 250
STALL_S = 40.0
ENVIRONMENT = {"HEADRACE_GROUP_MIN_SESSION_TIMEOUT_MS": "1000", "HEADRACE_SEGMENT_BYTES": "200000"}


class Death(Enum):
    WORKER = "worker"
    BROKER = "broker"
    ZOMBIE = "zombie"


@dataclass
class Report:
    client: str
    deaths: Counter[Death] = field(default_factory=Counter)
    worker_exits: int = 0
    """Workers that ended by themselves, as they do when an error reaches them."""
    records: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        deaths = ", ".join(f"{count} {death.value}" for death, count in self.deaths.items())
        return (
            f"{self.client}: {sum(self.deaths.values())} deaths ({deaths}), {self.worker_exits} workers gave up "
            f"by themselves, {self.records} records exactly once, {self.seconds:.0f} s"
        )


class Torture:
    def __init__(self, client: str, broker: BrokerProcess, seed: int) -> None:
        self._client, self._broker = client, broker
        self._dice = random.Random(seed)
        self._name = f"{client}-{seed}"
        self._source, self._sink = f"source-{self._name}", f"sink-{self._name}"
        self._workers: list[subprocess.Popen[bytes]] = []
        self._log = tempfile.TemporaryFile()  # noqa: SIM115 - closed with us
        self._feeder = ck.Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 2, "log_level": 0,
             "reconnect.backoff.max.ms": 200, "message.timeout.ms": 120_000}
        )  # fmt: skip
        self._fed: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._seen: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        self._reader = ck.Consumer(
            {"bootstrap.servers": broker.bootstrap, "group.id": f"check-{self._name}", "enable.auto.commit": False,
             "auto.offset.reset": "earliest", "isolation.level": "read_committed", "log_level": 0,
             "reconnect.backoff.max.ms": 200, "fetch.wait.max.ms": 50}
        )  # fmt: skip
        self._history: list[str] = []
        self.report = Report(client)

    def run(self, deaths: int) -> Report:
        started = time.monotonic()
        admin = AdminClient({"bootstrap.servers": self._broker.bootstrap, "log_level": 0})
        made = admin.create_topics([NewTopic(name, PARTITIONS, 1) for name in (self._source, self._sink)])
        for future in made.values():
            future.result()
        self._reader.assign([ck.TopicPartition(self._sink, number, 0) for number in range(PARTITIONS)])
        try:
            self._start_worker()
            for death in self._deck(deaths):
                self._feed(PER_KILL)
                # Somewhere in the middle of the work: between any two of its steps.
                self._progress(self._dice.randrange(1, PER_KILL))
                self._sleep(self._dice.random() * 0.1)
                self._die(death)
            self._feed(PER_KILL)
            self._until(lambda: self._count() >= self._total(), "everything has come through")
            self._read(1.0)
        finally:
            self._end()
        self._check()
        self.report.records = self._total()
        self.report.seconds = time.monotonic() - started
        return self.report

    # -- the work ------------------------------------------------------------------------------------------------

    def _feed(self, count: int) -> None:
        for _ in range(count):
            number = self._dice.randrange(PARTITIONS)
            value = b"%d:%d" % (number, len(self._fed[number]))
            self._fed[number].append(value)
            self._feeder.produce(self._source, value, partition=number)
        assert self._feeder.flush(60) == 0

    def _total(self) -> int:
        return sum(map(len, self._fed))

    def _count(self) -> int:
        return sum(map(len, self._seen))

    def _read(self, seconds: float) -> None:
        for message in self._reader.consume(500, seconds):
            if message.error() is None:
                self._seen[message.partition()].append(message.value())

    def _progress(self, records: int) -> None:
        wanted = min(self._count() + records, self._total())
        self._until(lambda: self._count() >= wanted, f"{records} more records")

    def _until(self, condition: Callable[[], bool], what: str) -> None:
        deadline, count = time.monotonic() + STALL_S, self._count()
        while not condition():
            self._read(0.05)
            self._replace_the_dead()
            if self._count() > count:
                deadline, count = time.monotonic() + STALL_S, self._count()
            if time.monotonic() >= deadline:
                self._ask_what_they_do()
                raise AssertionError(
                    f"{self._name}: no progress: {what}, after {self._history}; {self._count()} of {self._total()} came\n"
                    f"{self._tail()}\n{self._broker.log()[-3000:]}\n"
                    f"{stall_report(self._broker.kafka_port, self._name, self._sink, PARTITIONS)}"
                )

    # -- the deaths ----------------------------------------------------------------------------------------------

    def _deck(self, deaths: int) -> list[Death]:
        """All kinds equally often, in any order."""
        kinds = list(Death)
        deck = [kinds[place % len(kinds)] for place in range(deaths)]
        self._dice.shuffle(deck)
        return deck

    def _start_worker(self) -> None:
        command = [
            sys.executable, str(WORKER), self._client, self._broker.bootstrap, self._source, self._sink,
            self._name, str(self._dice.randrange(2**31)),
        ]  # fmt: skip
        self._workers.append(subprocess.Popen(command, stdout=self._log, stderr=self._log))

    def _replace_the_dead(self) -> None:
        for worker in list(self._workers):
            if worker.poll() is not None:
                self._workers.remove(worker)
                self.report.worker_exits += 1
        if not self._workers:
            self._start_worker()

    def _die(self, death: Death) -> None:
        self.report.deaths[death] += 1
        self._history.append(death.value)
        if death is Death.BROKER:
            self._broker.kill()
            self._broker.start()
            return
        if death is Death.WORKER:
            self._kill_workers()
            self._start_worker()
            return
        # The zombie still believes in its transaction; its successor has fenced it.
        zombies = list(self._workers)
        for zombie in zombies:
            zombie.send_signal(signal.SIGSTOP)
        self._start_worker()
        self._feed(20)
        self._progress(10)
        for zombie in zombies:
            zombie.send_signal(signal.SIGCONT)
        self._sleep(0.3)
        for zombie in zombies:
            zombie.kill()
            zombie.wait()
            self._workers.remove(zombie)
        self._replace_the_dead()

    def _kill_workers(self) -> None:
        for worker in self._workers:
            worker.kill()
            worker.wait()
        self._workers.clear()

    def _sleep(self, seconds: float) -> None:
        self._read(seconds)

    def _end(self) -> None:
        for worker in self._workers:
            if worker.poll() is None:
                os.kill(worker.pid, signal.SIGCONT)
        self._kill_workers()
        self._reader.close()

    def _ask_what_they_do(self) -> None:
        """Each worker that can writes where it stands into the log."""
        for worker in self._workers:
            if worker.poll() is None:
                worker.send_signal(signal.SIGUSR1)
        time.sleep(1)

    def _tail(self) -> str:
        self._log.seek(max(0, self._log.seek(0, os.SEEK_END) - 12_000))
        return self._log.read().decode(errors="replace")

    # -- the verdict ---------------------------------------------------------------------------------------------

    def _check(self) -> None:
        for number in range(PARTITIONS):
            fed, seen = self._fed[number], self._seen[number]
            strangers = [value for value in seen if value.startswith(b"aborted:")]
            assert not strangers, f"{self._name}: aborted records were seen: {strangers[:5]}"
            twice = [value for value, count in Counter(seen).items() if count > 1]
            assert not twice, f"{self._name}: {len(twice)} records came twice: {twice[:5]}"
            lost = set(fed) - set(seen)
            assert not lost, f"{self._name}: {len(lost)} records are lost: {sorted(lost)[:5]}"
            assert seen == fed, f"{self._name}: partition {number} is out of order"
        # What a reader saw along the way is also what the log says at the end.
        again = self._read_again()
        assert again == self._seen, f"{self._name}: a second reading differs"

    def _read_again(self) -> list[list[bytes]]:
        reader = ck.Consumer(
            {"bootstrap.servers": self._broker.bootstrap, "group.id": f"again-{self._name}", "log_level": 0,
             "isolation.level": "read_committed", "enable.partition.eof": True, "enable.auto.commit": False}
        )  # fmt: skip
        reader.assign([ck.TopicPartition(self._sink, number, 0) for number in range(PARTITIONS)])
        found: list[list[bytes]] = [[] for _ in range(PARTITIONS)]
        ended: set[int] = set()
        deadline = time.monotonic() + 60
        while len(ended) < PARTITIONS:
            assert time.monotonic() < deadline
            for message in reader.consume(1000, 0.5):
                if message.error() is None:
                    found[message.partition()].append(message.value())
                elif message.error().code() == ck.KafkaError._PARTITION_EOF:
                    ended.add(message.partition())
        reader.close()
        return found
