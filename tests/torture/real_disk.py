"""A disk of its own for a real broker: ext4 on a loop device, which can lose its power, fill up, and fail to sync.

What happens is the kernel's doing, not a model's: the shutdown ioctl makes ext4 forget everything that was not synced, a
ballast file takes the last free block, and strace lets one fdatasync of the running broker fail. Needs root on Linux.
"""

from __future__ import annotations

import contextlib
import errno
import fcntl
import os
import shutil
import signal
import struct
import subprocess
import sys
import time
from pathlib import Path

from headrace.core.limits import MIB

SHUTDOWN = 0x8004587D
"""ext4 and xfs: _IOR('X', 125, __u32). Every I/O fails from now on, as at a power cut."""
NO_LOG_FLUSH = 2
PROGRAMS = ("losetup", "mkfs.ext4", "mount", "umount", "strace")
SIZE_BYTES = 2048 * MIB


def run(*command: str | os.PathLike[str]) -> str:
    return subprocess.run(command, check=True, capture_output=True, text=True, timeout=60).stdout.strip()


class RealDisk:
    def __init__(self, directory: Path, name: str) -> None:
        self._image = directory / f"{name}.img"
        self.mount = directory / name
        self._ballast = self.mount / "ballast"
        self._device = ""

    @staticmethod
    def are_possible() -> bool:
        """Tried, not guessed: containers differ in what they allow."""
        if os.geteuid() != 0 or sys.platform != "linux":
            return False
        path = f"{os.environ.get('PATH', '')}:/sbin:/usr/sbin"
        if any(shutil.which(program, path=path) is None for program in PROGRAMS):
            return False
        probe = RealDisk(Path(os.environ.get("TMPDIR", "/tmp")), f"hrdisk{os.getpid()}")
        try:
            probe.make(64 * MIB)
            probe.lose_power()
        except (OSError, subprocess.SubprocessError):
            return False
        finally:
            probe.remove()
        return True

    def make(self, size_bytes: int = SIZE_BYTES) -> RealDisk:
        self.mount.mkdir(parents=True)
        with self._image.open("wb") as file:
            file.truncate(size_bytes)
        self._device = run("losetup", "-f", "--show", self._image)
        run("mkfs.ext4", "-q", "-m", "0", self._device)
        run("mount", self._device, self.mount)
        return self

    def remove(self) -> None:
        subprocess.run(["umount", "-l", self.mount], check=False, capture_output=True)
        if self._device:
            subprocess.run(["losetup", "-d", self._device], check=False, capture_output=True)
        self._image.unlink(missing_ok=True)
        with contextlib.suppress(OSError):
            self.mount.rmdir()

    # -- power ------------------------------------------------------------------------------------------------------

    def lose_power(self) -> None:
        """What was not synced is gone. Whoever writes here must have been stopped before, and be killed after."""
        descriptor = os.open(self.mount, os.O_RDONLY)
        try:
            fcntl.ioctl(descriptor, SHUTDOWN, struct.pack("I", NO_LOG_FLUSH))
        finally:
            os.close(descriptor)

    def come_back(self, seconds: float = 30.0) -> None:
        """The file system recovers from its journal, as at boot."""
        deadline = time.monotonic() + seconds
        while True:
            done = subprocess.run(["umount", self.mount], check=False, capture_output=True)
            if done.returncode == 0:
                break
            if time.monotonic() > deadline:
                raise AssertionError(f"{self.mount} can't be unmounted: {done.stderr!r}")
            time.sleep(0.05)
        run("mount", self._device, self.mount)

    # -- room -------------------------------------------------------------------------------------------------------

    def fill(self) -> None:
        """To the last block."""
        descriptor = os.open(self._ballast, os.O_WRONLY | os.O_CREAT)
        try:
            size, step = 0, 256 * MIB
            while step >= 4096:
                try:
                    os.posix_fallocate(descriptor, size, step)
                    size += step
                except OSError as problem:
                    if problem.errno != errno.ENOSPC:
                        raise
                    step //= 4
        finally:
            os.close(descriptor)

    def make_room(self) -> None:
        self._ballast.unlink(missing_ok=True)


def fail_one_sync(pid: int, seconds: float = 5.0) -> None:
    """The next fdatasync of this process fails with EIO, once: what the kernel does after a failed write-back (S7)."""
    command = ["strace", "-qq", "-o", "/dev/null", "-f", "--seccomp-bpf", "-p", str(pid),
               "-e", "trace=fdatasync", "-e", "inject=fdatasync:error=EIO:when=1"]  # fmt: skip
    # Attached tracers can't use the filter; strace says so and goes on without it.
    with subprocess.Popen(command, stderr=subprocess.DEVNULL) as tracer:
        try:
            time.sleep(seconds)
        finally:
            tracer.send_signal(signal.SIGTERM)
            tracer.wait(10)
