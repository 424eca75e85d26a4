"""F65, decision 0053: supervisors of one pipeline, on virtual time: crashes, pauses, outages, and a week of runs."""

from __future__ import annotations

import random
from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise
from typing import Any

import msgspec
import pytest

from headrace.core.pipelines import KEPT_RUNS, Hold, Run, Submitted, run_key, shown_state
from headrace.spark.pipelines.restarts import LONGEST_SECONDS
from headrace.spark.service.effects import Kill, Post, Seen, Start, Terminate, Who
from headrace.spark.service.keeper import LEASE_S, PERMANENT, SILENT_S, TERM_S, Keeper

WALL_0 = 1_800_000_000_000


def submitted(**changes: Any) -> Submitted:
    settings: dict[str, Any] = {key: changes.pop(key) for key in ("cron", "restart") if key in changes}
    base = Submitted(name="p", kind="table", life="a", version=1, toml="", definition=settings)
    return msgspec.structs.replace(base, **changes)


@dataclass
class Process:
    number: int
    until: float
    owner: str


@dataclass
class Host:
    keeper: Keeper
    process: Process | None = None
    paused: bool = False
    dead: bool = False
    ending: bool = False
    mute: bool = False
    exit: tuple[int, str] | None = None
    """Code and error with which the process ends next."""


@dataclass
class World:
    """A store that compares, processes that end with their leash or their supervisor, and time."""

    definition: Submitted | None
    hosts: list[Host] = field(default_factory=list)
    hold: Hold | None = None
    runs: dict[str, Run] = field(default_factory=dict)
    now: float = 1000.0
    outage: bool = False
    loses_answers: bool = False
    """Writes are stored, and nobody hears of it."""
    started: list[int] = field(default_factory=list)

    def __post_init__(self) -> None:
        for number in range(2):
            self.add(f"s{number}")

    def add(self, name: str) -> Host:
        host = Host(Keeper("p", Who(name, f"host-{name}", 1)))
        self.hosts.append(host)
        return host

    @property
    def wall_ms(self) -> int:
        return WALL_0 + int(self.now * 1000)

    @property
    def running(self) -> list[Process]:
        return [host.process for host in self.hosts if host.process is not None]

    def step(self, seconds: float = 0.5) -> None:
        self.now += seconds
        for host in self.hosts:
            process = host.process
            if process is not None and (host.dead or self.now >= process.until):
                # By itself: nobody has to be awake for this.
                host.process = None
                host.exit = (-9, "")
        for host in self.hosts:
            if not (host.dead or host.paused):
                self.turn(host)
        assert len(self.running) <= 1, f"two runs at {self.now}"

    def turn(self, host: Host) -> None:
        keeper = host.keeper
        if keeper.child is not None:
            if host.exit is not None or host.process is None:
                code, error = host.exit or (-9, "")
                host.process = host.exit = None
                keeper.ended(code, {"error": error, "records": 5}, "tail", self.now, self.wall_ms)
            elif not host.mute:
                keeper.heard({"state": "running", "records": 3}, self.now, self.wall_ms)
        last = self.runs.get(run_key("p", self.hold.run)) if self.hold is not None else None
        seen = Seen(self.definition, self.hold, last)
        for effect in keeper.look(seen, self.now, self.wall_ms, is_ending=host.ending):
            if isinstance(effect, Post):
                self.post(host, effect)
            elif isinstance(effect, Start):
                self.started.append(effect.number)
                host.process = Process(effect.number, keeper.leash, keeper.me.id)
                keeper.started(effect, self.now, self.wall_ms, 7, "/log")
                assert len(self.running) <= 1, f"two runs at {self.now}"
            elif host.process is not None:
                host.exit = (130, "") if isinstance(effect, Terminate) else (-9, "")
                host.process = None if isinstance(effect, Kill) else host.process

    def post(self, host: Host, post: Post) -> None:
        keeper = host.keeper
        if self.outage:
            return
        found = (self.hold.holder, self.hold.beat) if self.hold is not None else ("", -1)
        if found != post.over and (post.over is not None or found[0] != keeper.me.id):
            if keeper.refused(self.now):
                host.process, host.exit = None, (-9, "")
            return
        self.hold = post.hold
        for run in post.runs:
            self.runs[run_key("p", run.number)] = run
        if self.loses_answers:
            return
        keeper.posted(post, self.now)
        if host.process is not None and keeper.is_ours:
            host.process.until = keeper.leash

    def until(self, condition: Callable[[], Any], seconds: float = 120.0) -> None:
        end = self.now + seconds
        while not condition():
            self.step()
            assert self.now < end, (self.hold, self.hosts)

    @property
    def owner(self) -> Host:
        return next(host for host in self.hosts if host.process is not None)

    def history(self) -> list[Run]:
        return sorted(self.runs.values(), key=lambda run: run.number)


def test_f65_one_of_two_supervisors_runs_it() -> None:
    world = World(submitted())
    world.until(lambda: world.hold is not None and world.hold.state == "running")
    for _ in range(200):
        world.step()
    assert world.started == [1] and world.hold is not None and world.hold.progress == {"records": 3}
    assert shown_state(submitted(), world.hold, world.wall_ms) == "running"
    assert shown_state(submitted(), world.hold, world.wall_ms + 60_000) == "lost"


def test_f65_another_takes_over_after_the_lease_and_not_before() -> None:
    world = World(submitted())
    world.until(lambda: world.running)
    gone = world.owner
    gone.dead = True
    died = world.now
    world.until(lambda: len(world.started) == 2, LEASE_S + 10)
    assert world.now - died >= LEASE_S - 5 and world.owner is not gone
    world.until(lambda: world.history()[-1].number == 2)
    assert [run.outcome for run in world.history()] == ["lost", "running"]
    assert gone.keeper.me.host in world.history()[0].reason


def test_f65_a_supervisor_that_sleeps_has_no_run_when_another_begins() -> None:
    """The run has the deadline itself: `World.step` would find two."""
    world = World(submitted())
    world.until(lambda: world.running)
    sleeper = world.owner
    sleeper.paused = True
    world.until(lambda: len(world.started) == 2, LEASE_S + 10)
    sleeper.paused = False
    for _ in range(100):
        world.step()
    assert world.started == [1, 2] and sleeper.process is None and not sleeper.keeper.is_ours


def test_f65_a_supervisor_that_is_told_to_end_hands_over_at_once() -> None:
    world = World(submitted())
    world.until(lambda: world.running)
    leaving = world.owner
    leaving.ending = True
    world.until(lambda: len(world.started) == 2, LEASE_S / 2)
    assert leaving.keeper.is_done and world.owner is not leaving
    assert (
        world.history()[0].outcome == "stopped" and world.history()[0].reason == "its supervisor was stopped"
    )


@pytest.mark.parametrize("loses_answers", [False, True])
def test_f65_an_outage_of_any_length(loses_answers: bool) -> None:
    world = World(submitted())
    world.until(lambda: world.running)
    world.outage, world.loses_answers = not loses_answers, loses_answers
    for _ in range(7200):
        world.step(0.5)
    assert not world.running or loses_answers
    world.outage = world.loses_answers = False
    world.until(lambda: world.hold is not None and world.hold.state == "running", 2 * LEASE_S)
    numbers = [run.number for run in world.history()]
    assert numbers == sorted(set(numbers)) and world.history()[0].outcome == "lost"


def test_f65_stop_restart_and_a_new_version() -> None:
    world = World(submitted())
    world.until(lambda: world.running)
    world.definition = submitted(wanted=False)
    world.until(lambda: world.hold is not None and world.hold.state == "stopped" and not world.hold.holder)
    for _ in range(100):
        world.step()
    assert world.started == [1] and shown_state(world.definition, world.hold, world.wall_ms) == "stopped"
    world.definition = submitted(order=1)
    world.until(lambda: world.started == [1, 2])
    world.definition = submitted(version=2)
    world.until(lambda: world.started == [1, 2, 3])
    world.until(lambda: world.history()[-1].number == 3)
    assert [run.reason for run in world.history()] == ["it was stopped", "version 2 takes over", ""]
    assert world.history()[-1].version == 2
    world.definition = None
    world.until(lambda: not world.running)


def test_f65_failures_are_tried_again_less_and_less_often() -> None:
    world = World(submitted())
    starts: list[float] = []
    for number in range(1, 13):
        world.until(lambda number=number: world.started[-1:] == [number], 2 * LONGEST_SECONDS)  # type: ignore[misc]
        starts.append(world.now)
        world.owner.exit = (1, f"broken {number}\nand more")
    world.until(lambda: world.hold is not None and world.hold.state == "failing")
    gaps = [after - before for before, after in pairwise(starts)]
    assert gaps[0] < 4 and LONGEST_SECONDS / 2 <= gaps[-1] <= LONGEST_SECONDS + 2
    assert world.hold is not None and world.hold.attempts == 12 and world.hold.error == "broken 12"
    assert world.history()[3].error == "broken 4\nand more" and world.history()[3].reason == "exit code 1"


def test_f65_what_will_not_go_away_is_not_tried_hot() -> None:
    world = World(submitted())
    world.until(lambda: world.running)
    world.owner.exit = (PERMANENT, "no such column")
    world.until(lambda: world.hold is not None and world.hold.state == "failing")
    begun = world.now
    world.until(lambda: len(world.started) == 2, 2 * LONGEST_SECONDS)
    assert world.now - begun >= LONGEST_SECONDS - 2


def test_f65_never_means_never_and_a_signal_is_told() -> None:
    world = World(submitted(restart="never"))
    world.until(lambda: world.running)
    world.owner.exit = (-9, "")
    world.until(lambda: world.hold is not None and world.hold.state == "failed" and not world.hold.holder)
    for _ in range(1000):
        world.step()
    assert world.started == [1] and world.history()[0].reason == "ended by signal 9"
    assert world.history()[0].error == "tail"


def test_f65_a_run_that_hangs_is_ended_and_one_that_will_not_end_too() -> None:
    world = World(submitted())
    world.until(lambda: world.running)
    world.owner.mute = True
    begun = world.now
    world.until(lambda: len(world.started) == 2, SILENT_S + 30)
    assert world.now - begun >= SILENT_S - 2 and "hung" in world.history()[0].reason


def test_t17_a_run_that_does_not_end_when_told_is_killed() -> None:
    keeper = Keeper("p", Who("s", "h", 1))
    [claim] = keeper.look(Seen(submitted(), None, None), 0.0, WALL_0)
    assert isinstance(claim, Post)
    keeper.posted(claim, 0.0)
    [announced] = keeper.look(Seen(submitted(), claim.hold, None), 0.1, WALL_0)
    assert isinstance(announced, Post) and announced.runs[0].number == 1
    keeper.posted(announced, 0.1)
    [start] = keeper.look(Seen(submitted(), claim.hold, None), 0.2, WALL_0)
    assert isinstance(start, Start)
    keeper.started(start, 0.1, WALL_0, 7, "/log")
    said: list[Any] = []
    for now in range(1, 30):
        for effect in keeper.look(Seen(submitted(wanted=False), claim.hold, None), float(now), WALL_0):
            said.append((now, effect))
            if isinstance(effect, Post):
                keeper.posted(effect, float(now))
    assert (1, Terminate()) in said and min(now for now, effect in said if effect == Kill()) == 1 + TERM_S


def test_f65_a_finished_run_is_not_started_again_by_anybody() -> None:
    world = World(submitted(kind="replay"))
    world.until(lambda: world.running)
    world.owner.exit = (0, "")
    world.until(lambda: world.hold is not None and world.hold.state == "finished" and not world.hold.holder)
    world.add("s2")
    for _ in range(500):
        world.step()
    assert world.started == [1] and world.history()[0].records == 5


def test_f65_a_week_of_the_calendar_and_of_trouble() -> None:
    """An hourly pipeline over a week: each tick is served once, missed ones are made up for once, and history is bounded."""
    dice = random.Random(65)
    world = World(submitted(cron="0 * * * *"))
    failures = 0
    while world.now < 1000 + 7 * 86_400:
        world.step(10.0)
        for host in world.hosts:
            if host.process is not None and host.exit is None:
                bad = dice.random() < 0.2
                failures += bad
                host.exit = (1, "bad luck") if bad else (0, "")
        if dice.random() < 0.001:
            host = dice.choice(world.hosts)
            if host.process is None:
                world.hosts.remove(host)
                world.add(f"s{world.now}")
    assert len(world.started) - failures == 7 * 24 and failures > 10
    assert len(world.runs) == min(KEPT_RUNS, len(world.started))
    assert max(run.number for run in world.runs.values()) == world.started[-1]
    hours = {run.started_ms // 3_600_000 for run in world.history() if run.outcome == "finished"}
    assert len(hours) == sum(run.outcome == "finished" for run in world.history())


@pytest.mark.parametrize("seed", range(12))
def test_f65_never_two_runs_whatever_happens(seed: int) -> None:
    """Crashes, sleeps, outages, lost answers, stops, new versions: `World` asserts one run at a time, and in the end it runs."""
    dice = random.Random(seed)
    world = World(submitted())
    world.add("s2")
    for number in range(3000):
        world.step(dice.choice([0.1, 0.5, 2.0]))
        chance = dice.random()
        host = dice.choice(world.hosts)
        if chance < 0.01:
            host.paused = not host.paused
        elif chance < 0.015:
            host.dead, host.process = True, None
            world.hosts.remove(host)
            world.add(f"n{number}")
        elif chance < 0.025:
            world.outage = not world.outage
        elif chance < 0.035:
            world.loses_answers = not world.loses_answers
        elif chance < 0.045 and host.process is not None:
            host.exit = (dice.choice([0, 1, -9]), "x")
        elif chance < 0.05 and world.definition is not None:
            changes: dict[str, Any] = dice.choice(
                [{"wanted": False}, {"wanted": True, "order": number}, {"version": number}]
            )
            world.definition = msgspec.structs.replace(world.definition, **changes)
    world.outage = world.loses_answers = False
    for host in world.hosts:
        host.paused = False
    world.definition = submitted(version=10_000)
    world.until(lambda: world.hold is not None and world.hold.state == "running", 5 * LEASE_S)
    assert world.started == sorted(world.started)
