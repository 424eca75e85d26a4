"""What every peer is to the rig: a server that can be obtained, started, stopped and asked what it has used."""

from __future__ import annotations

import contextlib
import os
import shutil
import signal
import socket
import subprocess
import time
from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

KEPT = Path(__file__).resolve().parents[2] / ".peers"
"""What was obtained, for the next run; git ignores it and `make clean` removes it."""
HERE = "127.0.0.1"
STOP_S = 30.0
TICKS = os.sysconf("SC_CLK_TCK")
PAGE = os.sysconf("SC_PAGE_SIZE")


class Unobtainable(Exception):
    """This peer can't be had here, or does not start; the text says why. The table says it too."""


@dataclass(frozen=True)
class Line:
    """One connection on which one small message may be sent as often as one likes."""

    socket: socket.socket
    frame: bytes
    tally: Callable[[bytes], int]
    """Given each piece of what the server answers: how many messages are acknowledged so far. A refusal is a RuntimeError."""


class Receiver:
    """Whole answers out of pieces."""

    def __init__(self, made: socket.socket) -> None:
        self._socket = made
        self.data = b""

    def more(self) -> None:
        piece = self._socket.recv(1 << 18)
        if not piece:
            raise ConnectionResetError("the server closed the connection")
        self.data += piece

    def take(self, count: int) -> bytes:
        while len(self.data) < count:
            self.more()
        found, self.data = self.data[:count], self.data[count:]
        return found

    def line(self) -> bytes:
        while (at := self.data.find(b"\r\n")) < 0:
            self.more()
        return self.take(at + 2)[:-2]


class Peer(ABC):
    """One server, or one cluster, with data of its own. `start` after `stop` or `kill` finds the same data."""

    name: str
    title: str
    durability: str
    """What an acknowledgement means."""
    synced = False
    """Whether it means that the message is on disk."""

    def __init__(self, scratch: Path) -> None:
        self.directory = scratch / self.name
        self.directory.mkdir(parents=True, exist_ok=True)

    @abstractmethod
    def obtain(self) -> None:
        """Raises Unobtainable. Nothing is started."""

    @abstractmethod
    def start(self) -> None:
        """Returns when it serves. Raises Unobtainable when it does not."""

    @abstractmethod
    def stop(self) -> None: ...

    @abstractmethod
    def kill(self) -> None:
        """-9 for everything that was started; fine when nothing is."""

    @abstractmethod
    def pids(self) -> list[int]:
        """The roots of its trees of processes."""

    def version(self) -> str:
        return ""


class ProcessPeer(Peer):
    """A peer that is one command."""

    def __init__(self, scratch: Path) -> None:
        super().__init__(scratch)
        self.process: subprocess.Popen[bytes] | None = None

    @abstractmethod
    def command(self) -> list[str]: ...

    @abstractmethod
    def ready(self) -> bool:
        """Whether it serves; an OSError means no, too."""

    def environment(self) -> dict[str, str]:
        return dict(os.environ)

    def start(self) -> None:
        self.launch()
        wait_until(self.ready, self.process, self.log, 180)

    def launch(self) -> None:
        """Without waiting."""
        assert self.process is None, f"{self.name} runs already"
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                self.command(), stdin=subprocess.DEVNULL, stdout=log, stderr=log,
                env=self.environment(), cwd=self.directory,
            )  # fmt: skip

    @property
    def log(self) -> Path:
        return self.directory / "output.log"

    def stop(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            end(process)

    def kill(self) -> None:
        process, self.process = self.process, None
        if process is not None:
            end(process, signal.SIGKILL)

    def pids(self) -> list[int]:
        return [] if self.process is None else [self.process.pid]


def wait_until(
    ready: Callable[[], bool], process: subprocess.Popen[bytes] | None, log: Path, seconds: float
) -> None:
    deadline = time.monotonic() + seconds
    while True:
        with contextlib.suppress(OSError):
            if ready():
                return
        if process is not None and process.poll() is not None:
            raise Unobtainable(f"ended with {process.returncode}: {last_words(log)}")
        if time.monotonic() > deadline:
            raise Unobtainable(f"did not serve within {seconds:.0f} s: {last_words(log)}")
        time.sleep(0.002)


def last_words(log: Path) -> str:
    text = log.read_bytes()[-300:].decode(errors="replace") if log.exists() else ""
    return " ".join(text.split())


def end(process: subprocess.Popen[bytes], number: signal.Signals = signal.SIGTERM) -> None:
    """By its id, and whatever it has started itself."""
    if process.poll() is not None:
        return
    family = descendants(process.pid)
    process.send_signal(number)
    try:
        process.wait(STOP_S)
    except subprocess.TimeoutExpired:
        process.kill()
        process.wait()
    for pid in family:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)


def descendants(pid: int) -> list[int]:
    found: list[int] = []
    for task in children_files(pid):
        with contextlib.suppress(OSError):
            for child in map(int, task.read_text().split()):
                found += [child, *descendants(child)]
    return found


def children_files(pid: int) -> Iterator[Path]:
    with contextlib.suppress(OSError):
        yield from Path(f"/proc/{pid}/task").glob("*/children")


def command_line(pid: int) -> bytes:
    try:
        return Path(f"/proc/{pid}/cmdline").read_bytes()
    except OSError:
        return b""


def tree(pids: list[int]) -> list[int]:
    return [each for pid in pids for each in (pid, *descendants(pid))]


def cpu_s(pids: list[int]) -> float:
    """User and system time of these and what they started, with that of threads and children which have ended."""
    total = 0
    for pid in tree(pids):
        with contextlib.suppress(OSError):
            fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
            total += sum(map(int, fields[11:15]))
    return total / TICKS


def fine_cpu_s(pids: list[int]) -> float:
    """The same to the nanosecond; but the time of a thread that has ended is not in it."""
    total = 0
    for pid in tree(pids):
        for task in Path(f"/proc/{pid}/task").glob("*/schedstat"):
            with contextlib.suppress(OSError):
                total += int(task.read_text().split()[0])
    return total / 1e9


class Meter:
    """CPU from now on. The one clock is coarse, the other forgets threads that end: the higher of the two is right."""

    def __init__(self, pids: list[int]) -> None:
        self._pids = pids
        self._began = cpu_s(pids), fine_cpu_s(pids)

    def spent_s(self) -> float:
        now = cpu_s(self._pids), fine_cpu_s(self._pids)
        coarse, fine = (after - before for before, after in zip(self._began, now, strict=True))
        return fine if coarse - fine < 2 / TICKS else coarse


def memory_mb(pids: list[int]) -> float:
    total = 0
    for pid in tree(pids):
        with contextlib.suppress(OSError):
            total += int(Path(f"/proc/{pid}/statm").read_text().split()[1])
    return total * PAGE / 1e6


def connect(port: int) -> socket.socket:
    made = socket.create_connection((HERE, port), 60)
    made.setsockopt(socket.IPPROTO_TCP, socket.TCP_NODELAY, 1)
    return made


def has_program(name: str) -> str:
    found = shutil.which(name)
    if found is None:
        raise Unobtainable(f"there is no {name} here")
    return found


def obtained(command: list[str], where: Path, **environment: str) -> None:
    """A command that obtains something; what it says when it can't is the reason."""
    where.mkdir(parents=True, exist_ok=True)
    try:
        subprocess.run(
            command, cwd=where, check=True, capture_output=True, timeout=900, env={**os.environ, **environment}
        )  # fmt: skip
    except subprocess.CalledProcessError as failed:
        said = " ".join((failed.stderr or failed.stdout or b"").decode(errors="replace").split())
        raise Unobtainable(f"{command[0]}: {said[-200:]}") from failed
    except (OSError, subprocess.SubprocessError) as failed:
        raise Unobtainable(f"{command[0]}: {failed}") from failed
