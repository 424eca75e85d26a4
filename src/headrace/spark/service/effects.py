"""Machine: what a keeper is told and what it wants done (`keeper`)."""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.core.pipelines import Hold, Run, Submitted


class Who(NamedTuple):
    id: str
    host: str
    pid: int


class Seen(NamedTuple):
    """What the store says of the pipeline."""

    definition: Submitted | None
    hold: Hold | None
    last_run: Run | None
    """The run that the hold names."""


class Post(NamedTuple):
    """Write these. `over`: only when the hold is still the one of this holder and beat (a claim); else when it is ours."""

    hold: Hold
    runs: tuple[Run, ...]
    over: tuple[str, int] | None = None
    erases: bool = False
    """The pipeline was removed: take away whatever is left of it."""


class Start(NamedTuple):
    number: int
    definition: Submitted
    state_kept: bool


@dataclass(frozen=True, slots=True)
class Terminate:
    """Ask the run to end."""


@dataclass(frozen=True, slots=True)
class Kill:
    """End it."""


Effect = Post | Start | Terminate | Kill
