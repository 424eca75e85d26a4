"""Driver: a real broker as a child process, for tests that kill it.

with BrokerProcess(data_dir=tmp) as broker:
    producer = confluent_kafka.Producer({"bootstrap.servers": broker.bootstrap})
    broker.kill()       # -9
    broker.start()      # same data, same ports
"""

from __future__ import annotations

import contextlib
import json
import os
import selectors
import subprocess
import sys
import tempfile
import time
from pathlib import Path
from signal import SIGKILL, SIGTERM, Signals
from types import TracebackType
from typing import Any


class BrokerDied(RuntimeError):
    """The child ended before it was ready; the text is what it printed."""


class BrokerProcess:
    def __init__(
        self,
        data_dir: str | os.PathLike[str] | None = None,
        *,
        arguments: tuple[str, ...] = (),
        environment: dict[str, str] | None = None,
        start_seconds: float = 120.0,
        prefix: tuple[str, ...] = (),
    ) -> None:
        """`prefix` is put before the command: `ip netns exec …`, `strace …`, as long as it becomes the broker."""
        self._own_dir = tempfile.TemporaryDirectory(prefix="headrace-") if data_dir is None else None
        self.data_dir = Path(self._own_dir.name if self._own_dir else data_dir or ".")
        self._arguments = arguments
        self._environment = environment or {}
        self._start_seconds = start_seconds
        self._prefix = prefix
        self._process: subprocess.Popen[bytes] | None = None
        self._log = self.data_dir.parent / f"{self.data_dir.name}.log"
        self.kafka_port = 0
        self.http_port = 0

    @property
    def bootstrap(self) -> str:
        return f"127.0.0.1:{self.kafka_port}"

    @property
    def url(self) -> str:
        return f"http://127.0.0.1:{self.http_port}"

    def stored_bytes(self, topic: str, partition: int = 0, pattern: str = "*.log") -> int:
        """What the partition's segments take on disk now. The broker goes on meanwhile: a file that it deletes between the listing and
        the look takes nothing."""
        total = 0
        for file in self.data_dir.glob(f"topics/{topic}@*/{partition}/{pattern}"):
            with contextlib.suppress(FileNotFoundError):
                total += file.stat().st_size
        return total

    @property
    def pid(self) -> int:
        assert self._process is not None
        return self._process.pid

    def start(self) -> BrokerProcess:
        command = [
            *self._prefix, sys.executable, "-m", "headrace", "serve", "--json",
            "--kafka-port", str(self.kafka_port), "--http-port", str(self.http_port),
            "--data-dir", str(self.data_dir), *self._arguments,
        ]  # fmt: skip
        with self._log.open("ab") as errors:
            self._process = subprocess.Popen(
                command, stdout=subprocess.PIPE, stderr=errors, env={**os.environ, **self._environment}
            )
        ready = self._wait_ready()
        self.kafka_port, self.http_port = int(ready["kafka_port"]), int(ready["http_port"])
        return self

    def _wait_ready(self) -> dict[str, Any]:
        process = self._process
        assert process is not None and process.stdout is not None
        deadline = time.monotonic() + self._start_seconds
        line = b""
        with selectors.DefaultSelector() as selector:
            selector.register(process.stdout, selectors.EVENT_READ)
            while not line.endswith(b"\n"):
                left = deadline - time.monotonic()
                if left <= 0 or not selector.select(left):
                    self.kill()
                    raise BrokerDied(f"not ready after {self._start_seconds} s\n{self.log()}")
                piece = os.read(process.stdout.fileno(), 65536)
                if not piece:
                    raise BrokerDied(f"exit code {process.wait()}\n{self.log()}")
                line += piece
        ready: dict[str, Any] = json.loads(line)
        return ready

    def log(self) -> str:
        return self._log.read_text(errors="replace") if self._log.exists() else ""

    def signal(self, number: int) -> None:
        assert self._process is not None
        self._process.send_signal(number)

    def kill(self) -> None:
        """-9: no clean-shutdown marker, no flush, no goodbye."""
        self._end(SIGKILL)

    def stop(self, seconds: float = 20.0) -> int:
        """SIGTERM, and the exit code."""
        return self._end(SIGTERM, seconds)

    def wait(self, seconds: float) -> int:
        assert self._process is not None
        return self._process.wait(seconds)

    def _end(self, number: Signals, seconds: float = 20.0) -> int:
        process, self._process = self._process, None
        if process is None:
            return 0
        process.send_signal(number)
        try:
            return process.wait(seconds)
        except subprocess.TimeoutExpired:
            process.kill()
            process.wait()
            raise
        finally:
            if process.stdout is not None:
                process.stdout.close()

    def __enter__(self) -> BrokerProcess:
        return self.start()

    def __exit__(
        self, kind: type[BaseException] | None, value: BaseException | None, trace: TracebackType | None
    ) -> None:
        if self._process is not None:
            self.kill() if self._process.poll() is not None else self.stop()
        self._log.unlink(missing_ok=True)
        if self._own_dir is not None:
            self._own_dir.cleanup()
