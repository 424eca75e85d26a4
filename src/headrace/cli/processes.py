"""Adapter: what Linux tells about processes under /proc: who listens on a port, and what a process has used.

Everywhere else, and for processes of other users, the answer is None: these are hints and measurements, never needed.
"""

from __future__ import annotations

import os
import time
from pathlib import Path
from typing import NamedTuple

_LISTEN = "0A"
_TICKS_PER_SECOND = os.sysconf("SC_CLK_TCK") if hasattr(os, "sysconf") else 100


class Usage(NamedTuple):
    cpu_seconds: float
    """User and system time of all threads."""
    memory_bytes: int
    """Resident now."""


def listener(port: int) -> int | None:
    """The process that listens on this TCP port."""
    inodes = _listening_inodes(port)
    if not inodes:
        return None
    wanted = {f"socket:[{inode}]" for inode in inodes}
    for entry in Path("/proc").iterdir():
        if not entry.name.isdecimal():
            continue
        try:
            for descriptor in (entry / "fd").iterdir():
                if os.readlink(descriptor) in wanted:
                    return int(entry.name)
        except OSError:
            continue
    return None


def _listening_inodes(port: int) -> set[str]:
    found = set()
    for table in ("/proc/net/tcp", "/proc/net/tcp6"):
        try:
            lines = Path(table).read_text().splitlines()[1:]
        except OSError:
            continue
        for line in lines:
            fields = line.split()
            if fields[3] == _LISTEN and int(fields[1].rpartition(":")[2], 16) == port:
                found.add(fields[9])
    return found


def command_line(pid: int) -> str | None:
    try:
        raw = Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return None
    return " ".join(raw.decode(errors="replace").split("\0")).strip() or None


def born(pid: int) -> str | None:
    """When a process began, in whatever words this system has for it, so that another one of the same number is told from it.
    None: there is none, or it has ended and nobody has noticed yet."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        return None if fields[0] in "ZX" else f"{_boot_id()}/{fields[19]}"
    except (FileNotFoundError, ProcessLookupError, IndexError):
        return None if Path("/proc/self/stat").exists() else _born_as_ps_says(pid)


def _boot_id() -> str:
    try:
        return Path("/proc/sys/kernel/random/boot_id").read_text().strip()
    except OSError:
        return ""


def _born_as_ps_says(pid: int) -> str | None:
    import subprocess

    told = subprocess.run(
        ["ps", "-o", "stat=,lstart=", "-p", str(pid)], capture_output=True, text=True, check=False
    ).stdout.split(None, 1)
    return None if len(told) < 2 or told[0].startswith("Z") else told[1].strip()


def usage(pid: int) -> Usage | None:
    try:
        # The name, in parentheses, may hold spaces; the numbers come after it.
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
        pages = int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    except (OSError, IndexError, ValueError):
        return None
    ticks = int(fields[11]) + int(fields[12])
    return Usage(ticks / _TICKS_PER_SECOND, pages * os.sysconf("SC_PAGE_SIZE"))


def age_ms() -> int | None:
    """How long this process has been running, the interpreter's own start included."""
    try:
        started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19]) / _TICKS_PER_SECOND
        return int((time.clock_gettime(time.CLOCK_BOOTTIME) - started) * 1000)
    except (OSError, AttributeError, IndexError, ValueError):
        return None
