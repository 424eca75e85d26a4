"""Spark applications as processes of their own, for what kills them: started soon, seen whole, killed in parts.

A life is mostly the start of a JVM and of eight Python processes. So a first life, which ends by itself, leaves an archive of the
JVM's classes and compiled Python for the others, and no JVM waits for its second compiler.
"""

from __future__ import annotations

import os
import signal
import sys
from pathlib import Path

# A start of a session in CPU: 14 s, 8 s with one compiler, 4 s with an archive.
_QUICK_JAVA = "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC"


def environment() -> dict[str, str]:
    found = {name: value for name, value in os.environ.items() if name != "PYTHONDONTWRITEBYTECODE"}
    found.setdefault("PYTHONPYCACHEPREFIX", str(Path(__file__).parents[2] / ".pycache"))
    found["JDK_JAVA_OPTIONS"] = _QUICK_JAVA
    return found


def driver_java(classes: Path, *, writes: bool = False) -> str:
    """Options of Spark's own JVM, not of the one that finds out how to start it: an archive fits one class path."""
    use = "-XX:ArchiveClassesAtExit" if writes else "-XX:SharedArchiveFile"
    return f"-Xshare:auto -Xlog:cds=off -Xlog:cds+dynamic=off {use}={classes}"


def processes_of(session: int) -> dict[int, str]:
    """What lives in a session that was started for it (`start_new_session`): process id → driver, java or python."""
    found = {}
    for entry in os.scandir("/proc"):
        if not entry.name.isdigit():
            continue
        try:
            name, _, rest = Path(entry.path, "stat").read_text().rpartition(")")
        except OSError:
            continue
        fields = rest.split()
        if int(fields[3]) != session or fields[0] == "Z":
            continue
        pid = int(entry.name)
        kind = "java" if name.endswith("(java") else "python"
        found[pid] = "driver" if pid == session else kind
    return found


def kill(pids: list[int]) -> None:
    for pid in pids:
        try:
            os.kill(pid, signal.SIGKILL)
        except ProcessLookupError:
            continue


def pipeline_run(file: Path, *words: str) -> list[str]:
    return [sys.executable, "-m", "headrace", "pipeline", "run", str(file), *words]
