"""Driver: the process of one run, as its supervisor sees it: a process group of its own, with a log and a file in which it speaks."""

from __future__ import annotations

import contextlib
import json
import os
import shutil
import signal
import subprocess
import sys
from collections.abc import Sequence
from pathlib import Path
from typing import Any

from headrace.core.pipelines import Submitted
from headrace.spark.service.leash import CONTEXT_FILE, DEFINITION_FILE, LOG_FILE, PROGRESS_FILE

KEPT_DIRECTORIES = 20
LOG_BYTES = 64 << 20
_TAIL_BYTES = 8 << 10


def directory_of(work: Path, name: str) -> Path:
    """A name may be two dots."""
    return work / f"{name}.pipeline"


class ChildProcess:
    def __init__(
        self,
        work: Path,
        definition: Submitted,
        number: int,
        *,
        state_kept: bool,
        until: float,
        fence: int,
        command: Sequence[str] = (sys.executable, "-m", "headrace"),
    ) -> None:
        """Raises OSError."""
        self.directory = directory_of(work, definition.name) / str(number)
        shutil.rmtree(self.directory, ignore_errors=True)
        self.directory.mkdir(parents=True)
        _forget_old(self.directory.parent)
        file = self.directory / DEFINITION_FILE
        file.write_text(json.dumps(definition.definition))
        context = {"life": definition.life, "state_kept": state_kept, "until": until, "fence": fence}
        (self.directory / CONTEXT_FILE).write_text(json.dumps(context))
        self.log = self.directory / LOG_FILE
        words = [*command, "pipeline", "run", str(file), "--supervised", str(self.directory)]
        with self.log.open("ab") as log:
            self._process = subprocess.Popen(
                [*words, "--once"] if definition.once else words,
                stdin=subprocess.PIPE, stdout=log, stderr=log, start_new_session=True, cwd=self.directory,
            )  # fmt: skip

    @property
    def pid(self) -> int:
        return self._process.pid

    def extend(self, until: float) -> None:
        """The lease holds until then."""
        assert self._process.stdin is not None
        with contextlib.suppress(OSError, ValueError):
            # Bytes for a pipe: they go out at once, or the child is not there any more.
            os.write(self._process.stdin.fileno(), f"{until:.3f}\n".encode())

    def terminate(self) -> None:
        with contextlib.suppress(ProcessLookupError):
            self._process.send_signal(signal.SIGTERM)

    def kill(self) -> None:
        """The driver and its JVM at once; workers of Spark end when their JVM is gone."""
        with contextlib.suppress(ProcessLookupError, PermissionError):
            os.killpg(self.pid, signal.SIGKILL)

    def ended(self) -> int | None:
        """Its exit code once it is gone, and everything that it started in its group with it."""
        code = self._process.poll()
        if code is None:
            return None
        self.kill()
        assert self._process.stdin is not None
        self._process.stdin.close()
        return code

    def told(self) -> dict[str, Any]:
        """What it said last."""
        with contextlib.suppress(OSError, ValueError):
            found = json.loads((self.directory / PROGRESS_FILE).read_text())
            return found if isinstance(found, dict) else {}
        return {}

    def spoke_ns(self) -> int:
        """When it last spoke: a number that changes."""
        with contextlib.suppress(OSError):
            return (self.directory / PROGRESS_FILE).stat().st_mtime_ns
        return 0

    def tail(self) -> str:
        with contextlib.suppress(OSError), self.log.open("rb") as file:
            file.seek(max(0, file.seek(0, os.SEEK_END) - _TAIL_BYTES))
            return file.read().decode(errors="replace")
        return ""

    def cut_log(self) -> None:
        """The run appends to it, so it may be made shorter under its hands. What was said last is kept beside it."""
        with contextlib.suppress(OSError):
            if self.log.stat().st_size > LOG_BYTES:
                (self.directory / "log.old").write_text(self.tail())
                os.truncate(self.log, 0)


def _forget_old(directory: Path) -> None:
    """By age and not by number: a name that was removed and submitted again counts from one."""
    with contextlib.suppress(OSError):  # another supervisor of this host may do the same
        aged = sorted((entry.stat().st_mtime_ns, entry) for entry in directory.iterdir())
        for _, entry in aged[:-KEPT_DIRECTORIES]:
            shutil.rmtree(entry, ignore_errors=True)
