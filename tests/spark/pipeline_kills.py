"""Kill pipelines of every kind, and what they stand on, at drawn moments; then the output is what the input says, exactly.

    make pipeline-kills KILLS=100 KIND=table

What is run is `headrace pipeline run FILE`, with a JVM and workers of its own, and what is fed to it comes meanwhile. Five ways to die, each
with -9: the whole application; its driver alone, whose JVM and workers have to follow it by themselves while the next life has begun
already; the JVM alone; a worker; a broker, which is started again. A seed gives the same draws, not the same schedule.
"""

from __future__ import annotations

import random
import subprocess
import tempfile
import threading
import time
from collections import Counter
from contextlib import ExitStack
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from applications import driver_java, environment, kill, pipeline_run, processes_of
from confluent_kafka import Producer
from kill_cases import CASES, Case, Ground, produce

from headrace.testing.broker_process import BrokerProcess

STALL_S = 300.0
"""Whoever shows nothing for so long has stood still; a machine that is busy with other things is slow."""
RATE = 120
AFTER_A_SIGN_S = 1.5
DEATHS = {"application": 35, "driver": 15, "java": 15, "worker": 20, "broker": 15}


class Broken(AssertionError):
    """What came out is not what went in, or something stood still."""


@dataclass
class Report:
    kind: str
    seed: int
    deaths: Counter[str] = field(default_factory=Counter)
    lives: int = 0
    rows: int = 0
    seconds: float = 0.0

    def __str__(self) -> str:
        deaths = ", ".join(f"{count} {name}" for name, count in self.deaths.most_common())
        return (
            f"{self.kind}, seed {self.seed}: {self.deaths.total()} kills ({deaths}) in {self.lives} lives, "
            f"{self.rows} records compared, every row once, {self.seconds:.0f} s"
        )


class Feeder:
    """Records without an end, a second of event time apart, through every outage of the broker."""

    def __init__(self, broker: BrokerProcess, case: Case) -> None:
        self._producer = Producer(
            {"bootstrap.servers": broker.bootstrap, "enable.idempotence": True, "linger.ms": 20,
             "delivery.timeout.ms": 600_000, "reconnect.backoff.max.ms": 500, "log_level": 0}
        )  # fmt: skip
        self._case = case
        self._number = 0
        self._acknowledged = 0
        self._ended = threading.Event()
        self._thread = threading.Thread(target=self._feed, name="feeder", daemon=True)
        self._thread.start()

    def _told(self, error: Any, _: Any) -> None:
        self._acknowledged += error is None

    def _feed(self) -> None:
        while not self._ended.wait(0.1):
            for _ in range(RATE // 10):
                value = self._case.value(self._number)
                produce(self._producer, "in", self._number, value, on_delivery=self._told)
                self._number += 1
            self._producer.poll(0)

    def stop(self) -> int:
        """How many there are. Each of them was acknowledged."""
        self._ended.set()
        self._thread.join()
        left = self._producer.flush(300)
        if left or self._acknowledged != self._number:
            raise Broken(f"of {self._number} records {self._acknowledged} were taken by the broker")
        return self._number


class Life:
    def __init__(self, case: Case, number: int) -> None:
        self.log = case.ground.work / f"life-{number}.log"
        self.began = time.monotonic()
        self.hurt: set[str] = set()
        with self.log.open("wb") as log:
            self.process = subprocess.Popen(
                pipeline_run(case.file), stdout=log, stderr=log, start_new_session=True, env=environment()
            )

    def processes(self, kind: str = "") -> list[int]:
        found = processes_of(self.process.pid)
        return sorted(pid for pid, what in found.items() if not kind or what == kind)

    def told(self) -> str:
        return self.log.read_text(errors="replace")[-4000:]

    def kill_all(self) -> None:
        while left := self.processes():
            # The eldest first, or it would start others in their place.
            kill(left)
            time.sleep(0.01)
        self.process.wait()


class PipelineKills:
    def __init__(
        self, case: Case, seed: int, brokers: list[BrokerProcess], *, deaths: list[str], tell: Any
    ) -> None:
        self.case = case
        self._deaths = deaths
        self._dice = random.Random(f"{case.kind} {seed}")
        self._brokers = brokers
        self._tell = tell
        self.report = Report(case.kind, seed)
        self._began = time.monotonic()
        self._start_s = 10.0
        self._lives: list[Life] = []

    def run(self, kills: int) -> Report:
        classes = self.case.ground.work / "classes.jsa"
        # An archive of classes costs a life, and saves half of each that follows.
        self.case.prepare(driver_java(classes), driver_java(classes, writes=True) if kills > 5 else "")
        feeder = None if self.case.ends else Feeder(self.case.ground.source, self.case)
        try:
            while self.report.deaths.total() < kills:
                self._live(kills)
            self._ensure_gone()
            fed = feeder.stop() if feeder is not None else None
            told = self.case.close_input() + self.case.problems()
        finally:
            for life in self._lives:
                life.kill_all()
        if fed is not None and not fed <= self.case.rows <= fed + 100:
            told.append(f"{fed} records were acknowledged, and the input has {self.case.rows}")
        if told:
            raise Broken(f"{self.case.kind}, seed {self.report.seed}: " + "\n".join(told))
        self.report.rows = self.case.rows
        self.report.seconds = time.monotonic() - self._began
        return self.report

    def _live(self, kills: int) -> None:
        """One application from its start to its end."""
        self.report.lives += 1
        life = Life(self.case, self.report.lives)
        self._lives.append(life)
        if not self._deaths and self._dice.random() < 1 / 6:
            time.sleep(self._dice.uniform(0, self._start_s))
            self._strike(life, "application")
            return
        is_first = True
        while self.report.deaths.total() < kills:
            if not self._has_worked(life):
                self._ended(life)
                return
            if is_first:
                self._start_s, is_first = time.monotonic() - life.began, False
            time.sleep(self._dice.uniform(0, AFTER_A_SIGN_S))
            death = self._next_death()
            self._strike(life, death)
            if death in ("application", "driver"):
                return
        life.kill_all()

    def _next_death(self) -> str:
        if self._deaths:
            return self._deaths[self.report.deaths.total()]
        return self._dice.choices(list(DEATHS), list(DEATHS.values()))[0]

    def _has_worked(self, life: Life) -> bool:
        """False: it has ended."""
        before, deadline = self.case.mark(), time.monotonic() + STALL_S
        while time.monotonic() < deadline:
            if life.process.poll() is not None:
                return False
            now = self.case.mark()
            if now is not None and before is not None and now != before:
                return True
            before = now if before is None else before
            time.sleep(0.1)
        raise Broken(
            f"life {self.report.lives} shows nothing for {STALL_S:.0f} s, hurt: {life.hurt}\n{life.told()}"
        )

    def _ended(self, life: Life) -> None:
        """By itself. That is for those who come to an end, and for those who have lost what they can't do without."""
        code = life.process.returncode
        excused = life.hurt & ({"java", "broker", "worker"} if self.case.ends else {"java"})
        if code == 0 and self.case.ends:
            told = self.case.after_end()
            if told:
                raise Broken("\n".join(told))
        elif not excused:
            raise Broken(f"life {self.report.lives} ended with {code}, hurt: {life.hurt}\n{life.told()}")

    def _strike(self, life: Life, death: str) -> None:
        if death == "broker":
            broker = self._dice.choice(self._brokers)
            broker.kill()
            time.sleep(self._dice.uniform(0, 2))
            broker.start()
        elif death == "application":
            life.kill_all()
        elif death == "driver":
            kill([life.process.pid])
        elif chosen := life.processes("java" if death == "java" else "python"):
            kill([self._dice.choice(chosen)])
        else:
            return
        life.hurt.add(death)
        self.report.deaths[death] += 1
        done, passed = self.report.deaths.total(), time.monotonic() - self._began
        self._tell(f"{self.case.kind}: {done} ({death}) in life {self.report.lives} after {passed:.0f} s")

    def _ensure_gone(self) -> None:
        """Nobody is left of a life whose driver was killed alone."""
        deadline = time.monotonic() + 60
        while left := [life.process.pid for life in self._lives if life.processes()]:
            if time.monotonic() > deadline:
                raise Broken(f"{len(left)} applications live on without their driver: {left}")
            time.sleep(0.2)


def kill_pipelines(
    kind: str, kills: int, seed: int, *, deaths: list[str] | None = None, tell: Any = print
) -> Report:
    """One kind from nothing: brokers, pipeline, kills, comparison. `deaths`: these, and only the moments are drawn."""
    with ExitStack() as stack:
        work = Path(stack.enter_context(tempfile.TemporaryDirectory(prefix="headrace-kills-")))
        brokers = [stack.enter_context(BrokerProcess()) for _ in range(2 if kind == "mirror" else 1)]
        ground = Ground(brokers[0], brokers[-1], work)
        return PipelineKills(CASES[kind](ground), seed, brokers, deaths=deaths or [], tell=tell).run(kills)
