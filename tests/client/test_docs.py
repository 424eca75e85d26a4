"""F42, F46: the commands of the manual, followed to the letter by somebody with an empty home directory."""

from __future__ import annotations

import os
import re
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Iterator
from pathlib import Path

import pytest
from shell_blocks import blocks

pytestmark = pytest.mark.client

DOCS = Path(__file__).parents[2] / "docs"
NOT_HERE = {
    r"git clone|python3 -m venv|pip install": "the package under test is installed already",
    r"make demo": "a test of its own (examples/demo.py)",
    r"headrace serve --webhook-allow-http": "the broker of the page is running",
}
ENDLESS = r"topic tail|--follow|kcat -C|curl -N|client\.subscribe"
"""They go on until somebody ends them; here when they have shown something, or have had the time to."""

PLACEHOLDERS = r"RECEIPT|MESSAGE_ID|\"R1\"|standardwebhooks"
"""What nobody can type as it stands. These are tried for their shape: a refusal, not an error of ours."""


class Reader:
    """Somebody with two terminals: the broker runs in one, everything else happens in the other."""

    def __init__(self, home: Path) -> None:
        self.home = home
        self.ports = {9092: free_port(), 9324: free_port()}
        kafka, http = self.ports.values()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))
        }
        self._environment = {
            **kept,
            "HOME": str(home),
            "PATH": f"{Path(sys.executable).parent}:{os.environ['PATH']}",
            # Where the page says 9092 and 9324, others may be at work on this machine.
            "HEADRACE_KAFKA_PORT": str(kafka),
            "HEADRACE_HTTP_PORT": str(http),
            "HEADRACE_BOOTSTRAP": f"localhost:{kafka}",
            "HEADRACE_URL": f"http://localhost:{http}",
        }
        self._running: list[subprocess.Popen[str]] = []

    def serve(self, command: str = "headrace serve") -> None:
        process = self._start(["bash", "-c", f"exec {self._here(command)}"])
        deadline = time.monotonic() + 60
        while True:
            try:
                with urllib.request.urlopen(f"http://127.0.0.1:{self.ports[9324]}/readyz", timeout=5):
                    return
            except OSError:
                assert process.poll() is None and time.monotonic() < deadline, process.communicate()
                time.sleep(0.05)

    def type(self, command: str) -> None:
        if re.match(r"headrace serve\b", command):
            self.serve(command)
        elif command.partition("#")[0].rstrip().endswith("&"):
            self._start(["bash", "-c", self._here(command.partition("#")[0].rstrip().removesuffix("&"))])
        else:
            self._run(["bash", "-c", self._here(command)], command)

    def execute(self, program: str) -> None:
        self._run([sys.executable, "-uc", self._here(program)], program)

    def _here(self, text: str) -> str:
        for written, port in self.ports.items():
            text = text.replace(f"localhost:{written}", f"localhost:{port}")
        # Quiet where it would talk of its progress; unbuffered, because nobody's terminal is at the other end.
        return text.replace("curl ", "curl -sS ").replace("kcat -C ", "kcat -u -C ")

    def _run(self, command: list[str], shown: str) -> None:
        process = self._start(command)
        if re.search(ENDLESS, shown):
            assert process.stdout is not None
            if "curl" not in shown and "--follow" not in shown:
                assert process.stdout.readline(), process.communicate()
            os.killpg(process.pid, signal.SIGTERM)
            _, complaints = process.communicate(timeout=60)
            assert "Traceback" not in complaints, complaints
            return
        out, complaints = process.communicate(timeout=120)
        assert process.returncode == 0, f"$ {shown}\n{out}{complaints}"
        if shown.startswith("curl"):
            failed = re.search(r'"status": ?([45]\d\d)', out)
            assert failed is None or (re.search(PLACEHOLDERS, shown) and failed[1][0] == "4"), (
                f"$ {shown}\n{out}"
            )

    def _start(self, command: list[str]) -> subprocess.Popen[str]:
        process = subprocess.Popen(
            command,
            cwd=self.home,
            env=self._environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def leave(self) -> None:
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGKILL)
                process.communicate()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port: int = probe.getsockname()[1]
        return port


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    somebody = Reader(tmp_path)
    yield somebody
    somebody.leave()


@pytest.mark.timeout(600)
@pytest.mark.parametrize("page", ["quickstart", "queues", "rest", "views", "webhooks"])
def test_f46_the_commands_of_the_manual_work(reader: Reader, page: str) -> None:
    shown = list(blocks(DOCS / f"{page}.md"))
    assert any(block.steps for block in shown)
    if page != "quickstart":
        reader.serve()
    for block in shown:
        for step in block.steps:
            if not step.strip() or any(re.match(pattern, step) for pattern in NOT_HERE):
                continue
            if not block.is_python:
                reader.type(step)
            elif not re.search(PLACEHOLDERS, step):
                reader.execute(step)
