"""Driver: tasks that must not end in silence.

A supervised task that raises, or returns although it should not, is started again after a pause that grows, and counted. One
without which the broker is no broker ends it in order when it fails time after time: others take over, and somebody is told.
What raises inside a boundary that keeps it to itself (a commit listener, one replica of a fetch) is told to `unexpected`:
logged with its traceback, counted, and, in simulation, the end of the run.
"""

from __future__ import annotations

import asyncio
import logging
from collections.abc import Callable, Coroutine, Iterable
from typing import NamedTuple, Never, Protocol, TypeAlias

from headrace.core.ports import Clock

log = logging.getLogger(__name__)

Work: TypeAlias = Coroutine[object, Never, object]
"""What a task carries out; nobody looks at what comes of it."""

Factory = Callable[[], Work]

SETTLED_MS = 5_000
"""Who was started again and ran this long is well again in the eyes of a health check."""

LOG_EVERY_MS = 1_000
"""The same trouble is logged so often at most; what was left out is counted in the next line."""


class Policy(NamedTuple):
    first_pause_s: float = 0.1
    longest_pause_s: float = 10.0
    calm_ms: int = 60_000
    """Who ran this long before it failed begins again with the shortest pause."""
    last_straw: int | None = None
    """So many failures without a calm time between them end the broker; None: it is started again for ever."""
    may_return: bool = False
    """Whether an end without an exception is what it wanted."""

    def pause_s(self, in_a_row: int) -> float:
        doublings = min(in_a_row - 1, 30)
        return min(self.longest_pause_s, self.first_pause_s * 2.0**doublings)


RESTART = Policy()
"""For ever: what it does is missed, but a broker without it serves."""

OR_END = Policy(last_straw=8)
"""The broker is of no use without it: some thirteen seconds of trying, then others shall lead."""


class EndedEarly(Exception):
    """A task that runs for ever returned."""


class Supervised:
    """One task and how it fares."""

    def __init__(self, name: str, policy: Policy) -> None:
        self.name = name
        self.policy = policy
        self.is_running = True
        self.has_ended = False
        """It returned as it may, was cancelled, or was given up."""
        self.was_given_up = False
        self.failures = 0
        self.in_a_row = 0
        self.failed_ms = 0
        self.problem = ""
        self.task: asyncio.Task[object] | None = None

    def trouble(self, now_ms: int) -> str | None:
        """What a health check says of it."""
        if self.was_given_up:
            return f"{self.name} failed {self.in_a_row} times in a row and was given up: {self.problem}"
        if self.has_ended or not self.failures:
            return None
        if not self.is_running or now_ms - self.failed_ms < SETTLED_MS:
            return f"{self.name} failed and is started again: {self.problem}"
        return None

    def done(self) -> bool:
        return self.task is not None and self.task.done()

    def cancel(self) -> None:
        if self.task is not None:
            self.task.cancel()


class Tally:
    """How often something unexpected happened in one place."""

    __slots__ = ("count", "logged_ms", "unlogged")

    def __init__(self) -> None:
        self.count = self.unlogged = 0
        self.logged_ms: int | None = None


class Spawns(Protocol):
    def __call__(self, coro: Work, name: str) -> asyncio.Task[object]: ...


class Supervisor:
    def __init__(
        self,
        clock: Clock,
        spawn: Spawns,
        alarm: Callable[[str, BaseException], None] = lambda where, problem: None,
    ) -> None:
        """`alarm` hears of everything unexpected besides the log: a simulation fails its run."""
        self._clock = clock
        self._spawn = spawn
        self._alarm = alarm
        self.tasks: list[Supervised] = []
        """The living and those that were given up; whoever ended as it should is forgotten."""
        self.failures: dict[str, int] = {}
        """By name, also of those that are forgotten: a counter never falls."""
        self.surprises: dict[str, Tally] = {}
        self.on_given_up: Callable[[Supervised], None] = lambda task: None

    def supervise(self, name: str, factory: Factory, policy: Policy = RESTART) -> Supervised:
        """Run `factory()` and go on running it. `cancel` of what comes back is the only quiet end."""
        entry = Supervised(name, policy)
        self.tasks.append(entry)
        entry.task = self._spawn(self._keep(entry, factory), name)
        return entry

    async def _keep(self, entry: Supervised, factory: Factory) -> None:
        try:
            while True:
                began_ms = self._clock.now_ms()
                try:
                    await factory()
                    if entry.policy.may_return:
                        return
                    self._failed(entry, EndedEarly(f"{entry.name} returned"), began_ms)
                except asyncio.CancelledError as cancelled:
                    task = asyncio.current_task()
                    if task is None or task.cancelling():
                        raise
                    # A future it waited for was cancelled, not the task itself.
                    self._failed(entry, cancelled, began_ms)
                except Exception as error:
                    if not _loop_runs():
                        raise  # a coroutine that is closed after its loop has ended
                    self._failed(entry, error, began_ms)
                if entry.policy.last_straw is not None and entry.in_a_row >= entry.policy.last_straw:
                    entry.was_given_up = True
                    log.critical("%s failed %d times in a row: giving up", entry.name, entry.in_a_row)
                    self.on_given_up(entry)
                    return
                await asyncio.sleep(entry.policy.pause_s(entry.in_a_row))
                entry.is_running = True
        finally:
            entry.is_running = False
            entry.has_ended = True
            if not entry.was_given_up:
                self.tasks.remove(entry)

    def _failed(self, entry: Supervised, problem: BaseException, began_ms: int) -> None:
        """It ended as it should not."""
        now_ms = self._clock.now_ms()
        if now_ms - began_ms >= entry.policy.calm_ms:
            entry.in_a_row = 0
        entry.is_running = False
        entry.failed_ms = now_ms
        entry.failures += 1
        self.failures[entry.name] = self.failures.get(entry.name, 0) + 1
        entry.in_a_row += 1
        entry.problem = describe(problem)
        self.unexpected(entry.name, problem)

    def unexpected(self, where: str, problem: BaseException, about: str = "") -> None:
        """An exception that nobody foresaw and that was kept from doing more harm. `where` is one of few names (it is a
        label of a metric), `about` says which of many."""
        tally = self.surprises.setdefault(where, Tally())
        tally.count += 1
        now_ms = self._clock.now_ms()
        if tally.logged_ms is None or now_ms - tally.logged_ms >= LOG_EVERY_MS:
            more = f" ({tally.unlogged} more like it were not logged)" if tally.unlogged else ""
            subject = f"{where}, {about}" if about else where
            log.error("%s: unexpected %s%s", subject, describe(problem), more, exc_info=problem)
            tally.logged_ms, tally.unlogged = now_ms, 0
        else:
            tally.unlogged += 1
        self._alarm(f"{where} {about}".strip(), problem)

    def troubles(self, *, vital: bool) -> Iterable[str]:
        """Of the tasks without which this is no broker, or of the others."""
        now_ms = self._clock.now_ms()
        for entry in self.tasks:
            if (entry.policy.last_straw is not None) is vital and (trouble := entry.trouble(now_ms)):
                yield trouble


def _loop_runs() -> bool:
    try:
        asyncio.get_running_loop()
    except RuntimeError:
        return False
    return True


def describe(problem: BaseException) -> str:
    text = str(problem)
    return f"{type(problem).__name__}: {text}" if text else type(problem).__name__
