"""Driver: what a run of a supervised pipeline has around it, in its own process: a leash and a voice.

The leash: its supervisor writes to the run's stdin, again and again, until when the lease holds, by the clock that both share (it does
not stop while a machine sleeps). When that time is over, or the supervisor is gone (end of file), the whole process group ends at once:
the driver, and with it the JVM and its workers. No help of the supervisor is needed for that; it may hang, sleep or be dead.

The voice: every second a small file says how the run is, however long a round takes and whether or not a broker is there.
"""

from __future__ import annotations

import contextlib
import json
import os
import select
import signal
import threading
import time
from pathlib import Path
from typing import Any

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.spark.pipelines.definition import Kinds, Table

PROGRESS_FILE = "progress.json"
DEFINITION_FILE = "definition.json"
CONTEXT_FILE = "context.json"
LOG_FILE = "log"
_SAY_S = 1.0
_MARK = ".headrace-pipeline.json"


def steady_s() -> float:
    """Seconds that also pass while the machine sleeps, the same for all processes of a host."""
    return time.clock_gettime(getattr(time, "CLOCK_BOOTTIME", time.CLOCK_MONOTONIC))


class Leash:
    def __init__(self, directory: Path, fd: int = 0) -> None:
        context = json.loads((directory / CONTEXT_FILE).read_text())
        self.life = str(context["life"])
        self.state_was_kept = bool(context["state_kept"])
        self.fence = int(context["fence"])
        """Larger for every holder of the lease than for all before it."""
        self._file = directory / PROGRESS_FILE
        self._fd = fd
        self._until = float(context["until"])
        self._unread = b""
        self._ended = threading.Event()
        self._one = threading.Lock()
        self._thread = threading.Thread(target=self._hold, name="leash", daemon=True)
        self.entry: dict[str, Any] = {}
        """What the run says of itself; whoever runs it changes this."""
        self.facts: dict[str, Any] = {}
        """What we know besides."""

    def __enter__(self) -> Leash:
        self._thread.start()
        return self

    def __exit__(self, *problem: object) -> None:
        self._ended.set()
        self._thread.join()
        self.say()

    def _hold(self) -> None:
        try:
            self._watch()
        except BaseException:
            _end_group()  # nobody would hold it

    def _watch(self) -> None:
        while not self._ended.is_set():
            left = self._until - steady_s()
            # First what was written, then the clock: this process may have been slow to begin.
            if not self._listen(max(0.0, min(left, _SAY_S))) or steady_s() >= self._until:
                _end_group()
            self.say()

    def _listen(self, seconds: float) -> bool:
        """False: there is no supervisor any more."""
        ready, _, _ = select.select([self._fd], [], [], seconds)
        if not ready:
            return True
        piece = os.read(self._fd, 4096)
        *lines, self._unread = (self._unread + piece).split(b"\n")
        for line in lines:
            with contextlib.suppress(ValueError):
                self._until = float(line)
        return bool(piece)

    def say(self) -> None:
        told = {**self.entry, **self.facts}
        with self._one, contextlib.suppress(OSError):
            fresh = self._file.with_suffix(".new")
            fresh.write_text(json.dumps(told))
            fresh.rename(self._file)


def _end_group() -> None:
    """Not a request: whoever has the lease now may have started."""
    os.killpg(os.getpgrp(), signal.SIGKILL)


def mark_state(definition: Kinds, leash: Leash) -> None:
    """A run that finds its state directory empty begins from the beginning. So whoever kept state once has to find it again: on another
    host without the same disk it would do everything twice, and nobody would know."""
    if not _keeps_files(definition):
        return
    mark = Path(definition.state) / _MARK
    known = ""
    with contextlib.suppress(OSError, ValueError, AttributeError):
        known = str(json.loads(mark.read_text()).get("life"))
    if leash.state_was_kept and known != leash.life:
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG,
            f"{definition.name} has run before, and {definition.state} on this host does not have the state that it left",
            "Use a directory that all supervisors share (state = …), or accept the loss:  "
            f"headrace pipeline checkpoint {definition.name} --forget",
        )
    if known != leash.life:
        mark.parent.mkdir(parents=True, exist_ok=True)
        mark.write_text(json.dumps({"pipeline": definition.name, "life": leash.life}))
    leash.facts["state_kept"] = True


def _keeps_files(definition: Kinds) -> bool:
    """Mirrors and replays keep their position in the cluster; tables of another store in that store."""
    if isinstance(definition, Table):
        return "://" not in definition.warehouse
    return definition.kind in ("archive", "transform", "aggregate", "program", "redrive")
