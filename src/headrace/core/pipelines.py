"""Codec: what the cluster keeps about submitted pipelines: records of one compacted topic.

    NAME               what it is, in which version, and whether it should run          Submitted
    NAME/version/SLOT  the versions before                                              Submitted
    NAME/lease         who runs it and how it is: written every few seconds             Hold
    NAME/run/SLOT      its runs, each with how it ended                                 Run

Slots are a number modulo how many are kept, so that history is bounded by compaction alone. Supervisors and the command line read and write the
topic as clients; a broker reads it to answer /api/v1/pipelines and knows nothing of Spark. Pipelines that somebody runs by hand speak for
themselves on another topic, the board.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any, TypeVar

import msgspec

DEFINITIONS = "_headrace_definitions"
BOARD = "_headrace_pipelines"
KEPT_RUNS = 200
KEPT_VERSIONS = 50
ERROR_CHARACTERS = 65_536

ENDED = ("stopped", "finished", "failed")
"""States of a pipeline that nobody has to hold."""

T = TypeVar("T", bound=msgspec.Struct)


class Submitted(msgspec.Struct, frozen=True, kw_only=True):
    name: str
    kind: str
    life: str
    """Another for each time that the name was submitted anew: what is remembered of an older life is not of this one."""
    version: int
    toml: str
    """As its author wrote it."""
    definition: dict[str, Any]
    """As it runs: every path absolute, schemas in full."""
    wanted: bool = True
    """Whether it should run."""
    order: int = 0
    """How often somebody asked for a restart."""
    by: str = ""
    at_ms: int = 0
    """Of this version."""
    changed_by: str = ""
    changed_ms: int = 0
    """Of the last stop or restart."""

    @property
    def task(self) -> tuple[str, int, int]:
        """What a run was started for; another one means another run."""
        return self.life, self.version, self.order

    @property
    def cron(self) -> str:
        return str(self.definition.get("cron", ""))

    @property
    def restart(self) -> str:
        return str(self.definition.get("restart", "on-failure"))

    @property
    def once(self) -> bool:
        """Each run does what is there and ends."""
        return bool(self.cron) or self.kind in ("replay", "audit", "redrive")


class Hold(msgspec.Struct, frozen=True, kw_only=True):
    """Somebody's hold on a pipeline. It changes with every beat, and only under the epoch of whoever claimed it last."""

    holder: str = ""
    """Id of a supervisor; empty when it was let go."""
    beat: int = 0
    host: str = ""
    pid: int = 0
    """Of the supervisor."""
    state: str = "waiting"
    since_ms: int = 0
    at_ms: int = 0
    task: tuple[str, int, int] = ("", 0, 0)
    """What the state is about."""
    run: int = 0
    """Number of the last run."""
    run_pid: int = 0
    log: str = ""
    restarts: int = 0
    """Runs that failed, of this task."""
    attempts: int = 0
    """Failures in a row."""
    next_try_ms: int = 0
    tick_ms: int = 0
    """The last tick of the calendar that was served."""
    error: str = ""
    """First line of the last failure; the run has all of it."""
    state_kept: bool = False
    """The run has marked its state directory, so the next one has to find the mark (`leash.StateMark`)."""
    progress: dict[str, Any] = {}
    """What the run last said of itself: records, rate, lag, and what its kind tells."""

    @property
    def is_settled(self) -> bool:
        return self.state in ENDED


class Run(msgspec.Struct, frozen=True, kw_only=True):
    number: int
    version: int = 0
    life: str = ""
    outcome: str = "running"
    """running, finished, stopped, failed, or lost (nobody knows how it ended)."""
    reason: str = ""
    """One line."""
    error: str = ""
    """In full, up to 64 KiB."""
    started_ms: int = 0
    ended_ms: int = 0
    host: str = ""
    pid: int = 0
    log: str = ""
    records: int = 0
    bytes: int = 0
    lag: int = 0


def lease_key(name: str) -> str:
    return f"{name}/lease"


def run_key(name: str, number: int) -> str:
    return f"{name}/run/{number % KEPT_RUNS}"


def version_key(name: str, version: int) -> str:
    return f"{name}/version/{version % KEPT_VERSIONS}"


def encode(value: msgspec.Struct) -> bytes:
    return msgspec.json.encode(value)


def decode(raw: bytes | None, kind: type[T]) -> T | None:
    """None for what is not there, and for what is not of this kind: it was written by a client, and perhaps by a newer one (X27)."""
    if raw is None:
        return None
    try:
        return msgspec.json.decode(raw, type=kind)
    except (msgspec.DecodeError, UnicodeDecodeError):
        return None


LOST_MS = 30_000
"""A holder that has been silent for so long is shown as lost; by the clocks of two hosts, so it is for people only."""


def shown_state(definition: Submitted, hold: Hold | None, wall_ms: int) -> str:
    if hold is not None and hold.holder:
        if wall_ms - hold.at_ms <= LOST_MS:
            return hold.state
        return "lost" if definition.wanted else "stopped"
    if not definition.wanted:
        return "stopped"
    if hold is not None and hold.task == definition.task:
        return hold.state
    return "submitted"


class Shelf:
    """What the topic says, key by key. Whoever reads it tells what was committed, in order."""

    def __init__(self) -> None:
        self._kept: dict[str, bytes] = {}

    def learn(self, key: bytes | None, value: bytes | None) -> None:
        name = (key or b"").decode(errors="replace")
        if value is None:
            self._kept.pop(name, None)
        else:
            self._kept[name] = value

    def forget(self) -> None:
        self._kept.clear()

    def names(self) -> list[str]:
        return sorted(key for key in self._kept if "/" not in key and self.definition(key) is not None)

    def definition(self, name: str) -> Submitted | None:
        found = decode(self._kept.get(name), Submitted)
        return found if found is not None and found.name == name else None

    def hold(self, name: str) -> Hold | None:
        return decode(self._kept.get(lease_key(name)), Hold)

    def run(self, name: str, number: int) -> Run | None:
        found = decode(self._kept.get(run_key(name, number)), Run)
        return found if found is not None and found.number == number else None

    def runs(self, name: str) -> list[Run]:
        """The newest first."""
        slots = (decode(self._kept.get(run_key(name, slot)), Run) for slot in range(KEPT_RUNS))
        return sorted((run for run in slots if run is not None), key=lambda run: -run.number)

    def versions(self, name: str) -> list[Submitted]:
        """The newest first."""
        slots = (decode(self._kept.get(version_key(name, slot)), Submitted) for slot in range(KEPT_VERSIONS))
        return sorted((one for one in slots if one is not None), key=lambda one: -one.version)

    def keys_of(self, name: str) -> list[str]:
        return [key for key in self._kept if key == name or key.startswith(f"{name}/")]


def defining_id(name: str) -> str:
    """The transactional id under which definitions of a pipeline are written: of two at a time one is told that it is too late."""
    return f"headrace-define-{name}"


def ordered(known: Submitted, by: str, wall_ms: int, *, wanted: bool, restart: bool = False) -> Submitted:
    """The same pipeline, from now on wanted or not, or once more."""
    return msgspec.structs.replace(
        known, wanted=wanted, order=known.order + int(restart), changed_by=by, changed_ms=wall_ms
    )


# -- the board -----------------------------------------------------------------------------------------------------------

STALE_MS = 60_000
ALIVE = ("starting", "running", "backing-off", "failing")
"""States in which somebody says every few seconds that it is there."""


def on_the_board(entries: Mapping[str, Mapping[str, Any]], wall_ms: int) -> dict[str, dict[str, Any]]:
    """Name -> what it last said. One that says it is there but has been silent for a minute is lost."""
    found = {name: dict(entry) for name, entry in entries.items() if "/" not in name}
    for entry in found.values():
        heard_ms = entry.get("updated_ms")
        if (
            entry.get("state") in ALIVE
            and wall_ms - (heard_ms if isinstance(heard_ms, int) else 0) > STALE_MS
        ):
            entry["state"] = "lost"
    return found
