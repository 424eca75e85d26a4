"""Machine: one pipeline as one supervisor sees it: whether to claim it, when to start a run, when to end one, what to tell the others.

Two kinds of time. Durations (the lease, back-off) are seconds of a clock that never jumps, `now`; the calendar is `wall_ms`.

Invariant: a run is started only while the lease is known to be ours, and is dead `MARGIN_S` before anybody else may believe that the
lease is free. A lease is ours up to `LEASE_S` after we *sent* the last beat that was stored; others call it free when they have *seen*
no new beat for `LEASE_S` on their own clock, which begins later. No two clocks are compared. A supervisor that sleeps through all this
is not asked: the run has the deadline itself (`leash`).
"""

from __future__ import annotations

import zlib
from dataclasses import dataclass, field
from typing import Any

import msgspec

from headrace.core.calendar import next_tick_ms
from headrace.core.pipelines import ENDED, ERROR_CHARACTERS, Hold, Run, Submitted
from headrace.spark.pipelines.restarts import LONGEST_SECONDS, Restarts
from headrace.spark.service.effects import Effect, Kill, Post, Seen, Start, Terminate, Who

LEASE_S = 15.0
BEAT_S = 4.0
MARGIN_S = 3.0
TERM_S = 20.0
"""A run that is told to end has so long until it is ended."""
SILENT_S = 60.0
"""A run whose process says nothing for so long hangs."""
SPREAD_S = 0.25
"""For each run that it has a supervisor lets others go first for so long."""
_DROPPED = "; the round under way was dropped"
PERMANENT = 2
"""Exit code of a definition that can't work: trying again at once does not help."""


@dataclass(slots=True)
class Child:
    """A run of ours whose end we have not seen."""

    run: Run
    definition: Submitted
    heard: float
    ending: float | None = None
    """Since when it is asked to end."""
    why: str = ""
    is_lost: bool = False
    """It is ended because the lease is."""
    is_hung: bool = False


@dataclass(slots=True)
class Keeper:
    name: str
    me: Who
    is_ours: bool = False
    hold: Hold = field(default_factory=Hold)
    child: Child | None = None
    _deadline: float = 0.0
    _sent: float = float("-inf")
    _is_urgent: bool = False
    _unwritten: list[Run] = field(default_factory=list)
    _watched: tuple[str, int] | None = None
    _watched_since: float = 0.0
    _restarts: Restarts = field(default_factory=Restarts)
    _next_try: float = 0.0
    _coming: Run | None = None
    """A run that is to be started as soon as its number is stored: no two runs have one number, and none is forgotten."""
    _is_announced: bool = False
    _owed: Post | None = None
    """That we let go, which could not be written yet."""

    # -- what should happen now --------------------------------------------------------------------------------------

    def look(
        self, seen: Seen, now: float, wall_ms: int, *, load: int = 0, is_ending: bool = False
    ) -> list[Effect]:
        """`load`: how many pipelines this supervisor has; `is_ending`: it wants to stop."""
        if not self.is_ours:
            return self._from_outside(seen, now, wall_ms, load, is_ending)
        if now >= self.leash:
            return self._let_go(now)
        effects = self._govern(seen.definition, now, wall_ms, is_ending)
        if self.is_ours and (self._is_urgent or now - self._sent >= BEAT_S):
            self.hold = msgspec.structs.replace(self.hold, beat=self.hold.beat + 1, at_ms=wall_ms)
            effects.append(Post(self.hold, tuple(self._unwritten)))
        return effects

    @property
    def leash(self) -> float:
        """When a run of ours has to be dead, unless the lease is renewed until then."""
        return self._deadline - MARGIN_S

    def _let_go(self, now: float) -> list[Effect]:
        self.is_ours = False
        self._coming = None
        if self.child is None:
            return []
        self.child.is_lost = True
        return [Kill()]

    def _from_outside(self, seen: Seen, now: float, wall_ms: int, load: int, is_ending: bool) -> list[Effect]:
        if self.child is not None:
            return [Kill()]
        hold = seen.hold
        watched = (hold.holder, hold.beat) if hold is not None else ("", -1)
        if watched != self._watched:
            self._watched, self._watched_since = watched, now
        if is_ending or not _is_wanted(seen):
            return self._pay(seen, watched)
        is_free = watched[0] in ("", self.me.id)
        if now < self._watched_since + (0.0 if is_free else LEASE_S) + load * SPREAD_S:
            return []
        return [self._claim(seen, wall_ms)]

    def _pay(self, seen: Seen, watched: tuple[str, int]) -> list[Effect]:
        """Say once more that we let go, if nobody has it since, and nobody has submitted what was to be erased."""
        is_stale = self._owed is not None and self._owed.erases and seen.definition is not None
        if self._owed is not None and watched[0] == self.me.id and not is_stale:
            hold = msgspec.structs.replace(self._owed.hold, beat=watched[1] + 1)
            return [self._owed._replace(hold=hold, over=watched)]
        self._owed = None
        return []

    @property
    def is_done(self) -> bool:
        """Nothing here is left to be ended or said."""
        return not self.is_ours and self.child is None and self._owed is None

    def _claim(self, seen: Seen, wall_ms: int) -> Post:
        before = seen.hold or Hold()
        # Of an older run somebody else has told since.
        runs = [run for run in self._unwritten if run.number >= before.run]
        last = seen.last_run
        if last is not None and last.outcome == "running" and all(run.number != last.number for run in runs):
            reason = f"nothing was heard of the supervisor on {before.host} any more"
            runs.append(_ended(last, "lost", reason, "", wall_ms, before.progress))
        assert seen.definition is not None
        self.hold = msgspec.structs.replace(
            before, holder=self.me.id, host=self.me.host, pid=self.me.pid, beat=before.beat + 1, at_ms=wall_ms,
            state="waiting", since_ms=wall_ms, run_pid=0, log="" if before.host != self.me.host else before.log,
            run=max([before.run, *(run.number for run in runs)]), attempts=0, next_try_ms=0,
        )  # fmt: skip
        self._restarts, self._next_try, self._owed = Restarts(), 0.0, None
        self._adopt(seen.definition, wall_ms)
        return Post(
            self.hold, tuple(runs), over=(before.holder, before.beat if seen.hold is not None else -1)
        )

    def _adopt(self, definition: Submitted, wall_ms: int) -> None:
        """Begin with a task: what was counted of another is over."""
        if self.hold.task == definition.task:
            return
        is_same_life = self.hold.task[0] == definition.life
        is_same_version = is_same_life and self.hold.task[1] == definition.version
        self._restarts = Restarts()
        self._next_try = 0.0
        self.hold = msgspec.structs.replace(
            self.hold, task=definition.task, restarts=0, attempts=0, next_try_ms=0, error="",
            # Somebody who restarts one of the calendar's wants it now; a new version begins with the next tick.
            tick_ms=(0 if definition.order else wall_ms) if is_same_version else wall_ms,
            state_kept=self.hold.state_kept and is_same_life,
        )  # fmt: skip

    def _govern(
        self, definition: Submitted | None, now: float, wall_ms: int, is_ending: bool
    ) -> list[Effect]:
        wanted = definition if definition is not None and definition.wanted and not is_ending else None
        if self.child is not None:
            return self._over_child(wanted, now, wall_ms, is_ending)
        if self._coming is not None:
            if wanted is not None and wanted.task == self.hold.task:
                return (
                    [Start(self._coming.number, wanted, self.hold.state_kept)] if self._is_announced else []
                )
            self._unwritten.append(
                _ended(self._coming, "stopped", "it was not wanted any more", "", wall_ms, {})
            )
            self._coming = None
        if definition is None or wanted is None:
            # Ended by us: others may go on at once. Ended by somebody: it stays so.
            self._say(
                "waiting" if is_ending and definition is not None and definition.wanted else "stopped",
                wall_ms,
            )
            return self._release(wall_ms, erases=definition is None)
        self._adopt(definition, wall_ms)
        if self.hold.is_settled and not _comes_again(definition):
            return self._release(wall_ms)
        if self._is_due(definition, now, wall_ms):
            self._announce(definition, wall_ms)
        return []

    def _announce(self, definition: Submitted, wall_ms: int) -> None:
        self._coming = Run(
            number=self.hold.run + 1, version=definition.version, life=definition.life,
            started_ms=wall_ms, host=self.me.host,
        )  # fmt: skip
        self._is_announced = False
        self._unwritten.append(self._coming)
        self.hold = msgspec.structs.replace(
            self.hold, run=self._coming.number, log="", progress={}, next_try_ms=0,
            tick_ms=wall_ms if definition.cron else 0,
        )  # fmt: skip
        self._say("starting", wall_ms)
        self._is_urgent = True

    def _is_due(self, definition: Submitted, now: float, wall_ms: int) -> bool:
        if self.hold.attempts:
            return now >= self._next_try
        if not definition.cron:
            return now >= self._next_try
        tick_ms = next_tick_ms(definition.cron, self.hold.tick_ms)
        if tick_ms != self.hold.next_try_ms:
            self.hold = msgspec.structs.replace(self.hold, next_try_ms=tick_ms)
        return tick_ms <= wall_ms

    def _over_child(
        self, wanted: Submitted | None, now: float, wall_ms: int, is_ending: bool
    ) -> list[Effect]:
        child = self.child
        assert child is not None
        if child.ending is not None:
            return [Kill()] if now - child.ending >= TERM_S else []
        if now - child.heard >= SILENT_S:
            child.ending, child.is_hung = now - TERM_S, True
            return [Kill()]
        if wanted is not None and wanted.task == child.definition.task:
            return []
        child.ending = now
        child.why = _why(wanted, child, is_ending)
        self._say("stopping", wall_ms)
        return [Terminate()]

    def _release(self, wall_ms: int, *, erases: bool = False) -> list[Effect]:
        """From here on it is not ours, whether the others hear of it now or later: nothing is started any more."""
        self.is_ours = False
        self.hold = msgspec.structs.replace(
            self.hold, holder="", run_pid=0, beat=self.hold.beat + 1, at_ms=wall_ms
        )
        self._owed = Post(self.hold, tuple(self._unwritten), erases=erases)
        return [self._owed]

    def _say(self, state: str, wall_ms: int) -> None:
        if state != self.hold.state:
            self.hold = msgspec.structs.replace(self.hold, state=state, since_ms=wall_ms)
            self._is_urgent = True

    # -- what has happened -------------------------------------------------------------------------------------------

    def posted(self, post: Post, sent: float) -> None:
        """It is stored. `sent` is when we began to write it."""
        self.is_ours = post.hold.holder == self.me.id
        self._deadline, self._sent = sent + LEASE_S, sent
        self._unwritten = [run for run in self._unwritten if run not in post.runs] if self.is_ours else []
        self._is_announced = self._coming in post.runs
        self._is_urgent = False
        self._owed = None

    def refused(self, now: float) -> list[Effect]:
        """It is somebody else's. The run ends before anything else happens here."""
        self._watched = self._owed = None
        return self._let_go(now)

    def started(self, start: Start, now: float, wall_ms: int, pid: int, log: str) -> None:
        assert self._coming is not None
        run = msgspec.structs.replace(self._coming, pid=pid, log=log, started_ms=wall_ms)
        self._coming = None
        self.child = Child(run, start.definition, now)
        self._restarts.begin(now)
        self._unwritten.append(run)
        self.hold = msgspec.structs.replace(self.hold, run_pid=pid, log=log)
        self._is_urgent = True

    def heard(self, told: dict[str, Any], now: float, wall_ms: int) -> None:
        """The run says how it is."""
        if self.child is None:
            return
        self.child.heard = now
        kept = bool(told.get("state_kept")) or self.hold.state_kept
        self.hold = msgspec.structs.replace(self.hold, progress=_progress(told), state_kept=kept)
        if self.child.ending is None and told.get("state") == "running":
            self._say("running", wall_ms)

    def ended(self, code: int, told: dict[str, Any], tail: str, now: float, wall_ms: int) -> None:
        """The process of the run is gone. `told`: what it said last; `tail`: the end of its log."""
        child, self.child = self.child, None
        assert child is not None
        self.hold = msgspec.structs.replace(
            self.hold,
            progress=_progress(told),
            run_pid=0,
            state_kept=bool(told.get("state_kept")) or self.hold.state_kept,
        )
        error = str(told.get("error") or "")
        if child.is_lost or (now >= self.leash and code < 0):
            outcome, reason = "lost", "the lease could not be renewed in time"
            self._next_try = now
        elif child.is_hung:
            outcome, reason = "failed", "it hung: nothing was heard of it for a minute"
            error = error or tail
        elif child.ending is not None:
            is_dropped = code < 0 or told.get("last_round") == "dropped"
            outcome, reason = "stopped", child.why + (_DROPPED if is_dropped else "")
            self._next_try = now
        elif code == 0:
            outcome, reason = "finished", ""
        else:
            outcome, reason = "failed", _death(code)
            error = error or tail
        run = _ended(child.run, outcome, reason, error, wall_ms, told)
        self._unwritten = [one for one in self._unwritten if one.number != run.number] + [run]
        self._is_urgent = True
        if outcome == "finished":
            self._finished(child.definition, now, wall_ms)
        elif outcome == "failed":
            self._failed(run, child.definition, code, now, wall_ms)
        elif self.is_ours and outcome == "stopped":
            self._say("waiting", wall_ms)

    def _finished(self, definition: Submitted, now: float, wall_ms: int) -> None:
        self.hold = msgspec.structs.replace(self.hold, attempts=0, error="")
        self._restarts = Restarts()
        self._next_try = now + 1.0
        self._say("waiting" if _comes_again(definition) else "finished", wall_ms)

    def _failed(self, run: Run, definition: Submitted, code: int, now: float, wall_ms: int) -> None:
        first_line = (run.error.strip() or run.reason).splitlines()[0][:500]
        is_final = definition.restart == "never"
        dice = (zlib.crc32(f"{self.name}/{run.number}".encode()) & 0xFFFF) / 0xFFFF
        delay = self._restarts.failed(now, dice)
        state = self._restarts.state
        if code == PERMANENT:
            delay, state = LONGEST_SECONDS, "failing"
        self._next_try = now + delay
        self.hold = msgspec.structs.replace(
            self.hold, attempts=0 if is_final else self._restarts.attempts, restarts=self.hold.restarts + 1,
            next_try_ms=0 if is_final else wall_ms + int(delay * 1000), error=first_line,
        )  # fmt: skip
        self._say("failed" if is_final else state, wall_ms)


def _is_wanted(seen: Seen) -> bool:
    """Is there anything to do for whoever holds it?"""
    definition, hold = seen.definition, seen.hold
    if definition is None or not definition.wanted:
        return False
    if hold is None or hold.task != definition.task or hold.state not in ENDED:
        return True
    return _comes_again(definition)


def _comes_again(definition: Submitted) -> bool:
    return bool(definition.cron) or definition.restart == "always"


def _why(wanted: Submitted | None, child: Child, is_ending: bool) -> str:
    if is_ending:
        return "its supervisor was stopped"
    if wanted is None:
        return "it was stopped"
    return (
        "it was restarted" if wanted.version == child.run.version else f"version {wanted.version} takes over"
    )


def _death(code: int) -> str:
    return f"ended by signal {-code}" if code < 0 else f"exit code {code}"


def _progress(told: dict[str, Any]) -> dict[str, Any]:
    return {key: value for key, value in told.items() if key not in ("error", "state", "state_kept")}


def _ended(run: Run, outcome: str, reason: str, error: str, wall_ms: int, told: dict[str, Any]) -> Run:
    numbers = {key: told[key] for key in ("records", "bytes", "lag") if isinstance(told.get(key), int)}
    return msgspec.structs.replace(
        run, outcome=outcome, reason=reason, error=error[:ERROR_CHARACTERS], ended_ms=wall_ms, **numbers
    )
