"""Somebody who follows the manual to the letter, from an empty home directory (F46)."""

from __future__ import annotations

import json
import os
import re
import shlex
import signal
import socket
import subprocess
import sys
import time
import urllib.request
from collections.abc import Mapping
from pathlib import Path

from shell_blocks import blocks

NOT_HERE = {
    r"git clone|python3 -m venv|pip install": "the package under test is installed already",
    r"\(umask 077; openssl|headrace security reseal|sed -i 1q secrets\.key": "at brokers that have the file: tests/client/test_resealing.py",
    r"from pyspark": "of README: tests/spark/test_docs.py runs it beside the page it comes from",
    r"make (demo|test)": "a test of its own (examples/demo.py), or the one that runs this",
    r"headrace serve --webhook-allow-http": "the broker of the page is running; tests/client/test_webhooks.py starts one so",
    r"headrace serve (--brokers 3 )?--secure": "the broker of the page is running; tests/client/test_tls.py starts them so",
}
ENDLESS = r"topic tail|--follow|kcat -C|curl -N|client\.subscribe"
"""They go on until somebody ends them; here when they have shown something, or have had the time to."""

PLACEHOLDERS = r"RECEIPT|MESSAGE_ID|\"R1\""
"""What nobody can type as it stands. These are tried for their shape: a refusal, not an error of ours."""


class Reader:
    """Somebody with two terminals: the broker runs in one, everything else happens in the other."""

    def __init__(
        self, home: Path, elsewhere: Mapping[str, str] | None = None, path: Path | None = None
    ) -> None:
        """`elsewhere`: what the page calls by an address of its own, and where it is here. `path`: where more tools are."""
        self.home = home
        home.mkdir(exist_ok=True)
        self._elsewhere = dict(elsewhere or {})
        self.ports = {9092: free_ports_in_a_row(), 9324: free_ports_in_a_row()}
        kafka, http = self.ports.values()
        kept = {
            name: value for name, value in os.environ.items() if not name.startswith(("HEADRACE_", "XDG_"))
        }
        self.environment = {
            **kept,
            "HOME": str(home),
            "PATH": f"{path or home}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            # Where the page says 9092 and 9324, others may be at work on this machine.
            "HEADRACE_KAFKA_PORT": str(kafka),
            "HEADRACE_HTTP_PORT": str(http),
            "HEADRACE_BOOTSTRAP": f"localhost:{kafka}",
            "HEADRACE_URL": f"http://localhost:{http}",
        }
        self._running: list[subprocess.Popen[str]] = []

    def serve(self, command: str = "headrace serve") -> None:
        process = self._start(["bash", "-c", f"exec {self.here(command)}"])
        several = re.search(r"--brokers (\d+)", command)
        wanted = int(several[1]) if several else 1
        deadline = time.monotonic() + 240
        while not self._are_ready(wanted):
            assert process.poll() is None, process.communicate()
            assert time.monotonic() < deadline, f"not ready: {command}"
            time.sleep(0.05)

    def _are_ready(self, wanted: int) -> bool:
        """As one who reads the banner, which comes when all of them are there."""
        address = f"http://127.0.0.1:{self.ports[9324]}"
        try:
            with urllib.request.urlopen(f"{address}/readyz", timeout=5):
                pass
            with urllib.request.urlopen(f"{address}/api/v1/cluster", timeout=5) as answer:
                return len(json.load(answer)["brokers"]) >= wanted
        except OSError:
            return False

    def type(self, command: str) -> None:
        if command.startswith("export "):
            words = shlex.split(self.here(command), comments=True)[1:]
            self.environment.update(
                {name: value for name, _, value in (word.partition("=") for word in words)}
            )
        elif re.match(r"headrace serve\b", command):
            self.serve(command)
        elif command.partition("#")[0].rstrip().endswith("&"):
            self._start(["bash", "-c", self.here(command.partition("#")[0].rstrip().removesuffix("&"))])
        else:
            self._run(["bash", "-c", self.here(command)], command)

    def read(self, pattern: str, *, warning: bool = False) -> str:
        """What the terminal of the first command shows, as soon as it does."""
        first = self._running[0]
        shown = first.stderr if warning else first.stdout
        assert shown is not None
        while line := shown.readline():
            if found := re.search(pattern, line):
                return found[1]
        raise AssertionError(f"it ended without {pattern}")

    def beside(self, command: str) -> None:
        """In a terminal of its own."""
        self._start(["bash", "-c", f"exec {command}"])

    def until_it_works(self, command: str, works: bool = True) -> None:
        """As one who types it again and again."""
        deadline = time.monotonic() + 240
        while True:
            ran = self._start(["bash", "-c", self.here(command)])
            shown = "".join(ran.communicate(timeout=240))
            if (ran.returncode == 0) is works:
                return
            assert time.monotonic() < deadline, f"$ {command}\n{shown}"

    def until_it_fails(self, command: str) -> None:
        self.until_it_works(command, works=False)

    def execute(self, program: str) -> None:
        self._run([sys.executable, "-uc", self.here(program)], program)

    def here(self, text: str) -> str:
        for written, here in self._elsewhere.items():
            text = text.replace(written, here)
        for number, port in self.ports.items():
            text = text.replace(f"localhost:{number}", f"localhost:{port}")
        # Quiet where it would talk of its progress; unbuffered, because nobody's terminal is at the other end.
        return text.replace("curl ", "curl -sS ").replace("kcat -C ", "kcat -u -C ")

    def _run(self, command: list[str], shown: str) -> None:
        process = self._start(command)
        if re.search(ENDLESS, shown):
            assert process.stdout is not None
            if "curl" not in shown and "--follow" not in shown:
                assert process.stdout.readline(), process.communicate()
            os.killpg(process.pid, signal.SIGTERM)
            _, complaints = process.communicate(timeout=300)
            assert "Traceback" not in complaints, complaints
            return
        out, complaints = process.communicate(timeout=600)
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
            env=self.environment,
            text=True,
            stdin=subprocess.DEVNULL,
            stdout=subprocess.PIPE,
            stderr=subprocess.PIPE,
            start_new_session=True,
        )
        self._running.append(process)
        return process

    def leave(self) -> None:
        """Ctrl+C in both terminals; a cluster of brokers ends with the one that started them."""
        for process in self._running:
            if process.poll() is None:
                os.killpg(process.pid, signal.SIGTERM)
        for process in self._running:
            try:
                process.communicate(timeout=120)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
        self._running.clear()


def free_ports_in_a_row(count: int = 3) -> int:
    """The first of them: brokers of one host take one after the other."""
    while True:
        with socket.socket() as probe:
            probe.bind(("127.0.0.1", 0))
            first: int = probe.getsockname()[1]
        if first + count < 65_536 and all(_is_free(first + further) for further in range(count)):
            return first


def _is_free(port: int) -> bool:
    with socket.socket() as probe:
        try:
            probe.bind(("127.0.0.1", port))
        except OSError:
            return False
        return True


def follow(reader: Reader, page: Path) -> None:
    """Every command and every program of a page, in their order."""
    for block in blocks(page):
        for step in block.steps:
            if not step.strip() or any(re.match(pattern, step) for pattern in NOT_HERE):
                continue
            if not block.is_python:
                reader.type(step)
            elif not re.search(PLACEHOLDERS, step):
                reader.execute(step)
