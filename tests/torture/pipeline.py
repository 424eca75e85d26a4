"""Consume, transform, produce in transactions: several transactional ids in one group, held to exactly once at the end.

Each worker copies what it reads into the same partition of the target and commits its offsets in the same transaction.
Whatever becomes of brokers and workers, the target must in the end be the source: each message once, in its order.
"""

from __future__ import annotations

import contextlib
import json
import subprocess
import sys
import threading
import time
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import confluent_kafka as ck
from books import Bulk, read_all
from life import CONSUMER, GROUP

HUNG_S = 35.0
"""So long one call may take. librdkafka overruns its time-outs by socket.timeout.ms and more when it has no coordinator to talk to,
and its send_offsets_to_transaction may never return when the group's coordinator is gone from the metadata (its issues 5456 and
5511). A life that hangs is ended, and the next one fences it. Whose fault it was is told by what brokers owe it (Exchange)."""
INQUEST_S = 90.0


class Worker:
    """One transactional id, life after life. Each life is a process (life.py)."""

    def __init__(self, bootstrap: str, source: str, target: str, number: int, seed: int) -> None:
        self.name = f"{GROUP}-{number}"
        self.copied = self.idle = 0
        self.troubles: Counter[str] = Counter()
        self.owed: list[str] = []
        """What a worker that hung was not answered."""
        self._settings: dict[str, Any] = {"bootstrap": bootstrap, "source": source, "target": target}
        self._seed = seed * 100 + number
        self._lives = 0
        self._words: list[str] = []
        self._doing, self._moved_at = "", 0.0
        self._inquests = 0
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name=self.name, daemon=True)

    def last_words(self) -> str:
        return "\n".join([f"--- {self.name}, {self._doing}, {dict(self.troubles)}", *self._words])

    def start(self) -> Worker:
        self._thread.start()
        return self

    def stop(self, seconds: float = 90.0) -> bool:
        self._stop.set()
        self._thread.join(seconds)
        return not self._thread.is_alive()

    def _run(self) -> None:
        while not self._stop.is_set():
            self._live()

    def _live(self) -> None:
        self._lives += 1
        settings = {**self._settings, "name": self.name, "seed": self._seed * 1000 + self._lives}
        command = [sys.executable, str(Path(__file__).with_name("life.py")), json.dumps(settings)]
        self._doing, self._moved_at = "begins", time.monotonic()
        with subprocess.Popen(command, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True) as life:
            hears = threading.Thread(target=self._hear, args=(life,), daemon=True)
            hears.start()
            try:
                self._watch(life)
            finally:
                life.kill()
                hears.join()
        if not self._stop.is_set():
            self.troubles["ended" if life.returncode == 0 else f"ended by {life.returncode}"] += 1

    def _watch(self, life: subprocess.Popen[str]) -> None:
        assert life.stdin is not None
        while life.poll() is None:
            if self._stop.is_set():
                life.stdin.close()
                with contextlib.suppress(subprocess.TimeoutExpired):
                    life.wait(HUNG_S)
                return
            if time.monotonic() - self._moved_at > HUNG_S:
                self._hangs(life)
                return
            time.sleep(0.1)

    def _hangs(self, life: subprocess.Popen[str]) -> None:
        """In a call of which client, and is it a broker that it waits for?"""
        what, asked = f"{self.name} hung in {self._doing}", len(self.owed)
        self.troubles[f"hung in {self._doing}"] += 1
        if self._doing.startswith("consumer"):
            self.owed.append(f"unknown: {what}")
            return
        self._inquests = 0
        assert life.stdin is not None
        life.stdin.write("inquest\n")
        life.stdin.flush()
        deadline = time.monotonic() + INQUEST_S
        while not self._inquests and life.poll() is None and time.monotonic() < deadline:
            time.sleep(0.1)
        if not self._inquests:
            self.owed.append(f"no answer to the inquest: {what}")
        print(f"{what}, is owed {self.owed[asked:]}\n{self.last_words()}", flush=True)

    def _hear(self, life: subprocess.Popen[str]) -> None:
        assert life.stdout is not None
        for line in life.stdout:
            self._told(json.loads(line))

    def _told(self, said: dict[str, Any]) -> None:
        """Whoever begins something new has got on."""
        if "does" in said:
            self._doing, self._moved_at = said["does"], time.monotonic()
        self.copied += said.get("copied", 0)
        self.idle += said.get("idle", 0)
        if "trouble" in said:
            self.troubles[said["trouble"]] += 1
        if "lines" in said:
            self._words = said["lines"]
        if "given_up" in said:
            print(f"given up: {said['given_up']}\n{self.last_words()}", flush=True)
        if "owed" in said:
            self.owed += said["owed"]
            print(f"{self.name} gave up {said['gave_up']}, doomed {said['doomed']}", flush=True)
            self._inquests += 1


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
