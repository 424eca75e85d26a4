"""docs/frameworks.md as somebody reads it: files to write, commands to type, and what they print."""

from __future__ import annotations

import os
import re
import shlex
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

from manual_reader import free_ports_in_a_row

from headrace.testing.broker_process import BrokerProcess

PAGE = Path(__file__).parents[2] / "docs" / "frameworks.md"


class Section(NamedTuple):
    name: str
    files: dict[str, str]
    """Programs, by the name that their first line gives them."""
    commands: list[str]
    shown: list[str]
    """Lines that the commands print, sooner or later."""


def sections() -> Iterator[Section]:
    for part in PAGE.read_text().split("\n## ")[1:]:
        found = re.findall(r"^```(\w+)\n(.*?)^```", part, re.S | re.M)
        files = {}
        for body in (body for language, body in found if language == "python"):
            name = re.match(r"# (\w+\.py)\n", body)
            assert name is not None, body
            files[name[1]] = body
        commands = [
            line for language, body in found if language == "sh" for line in body.splitlines() if line
        ]
        shown = [line for language, body in found if language == "text" for line in body.splitlines()]
        yield Section(part.partition("\n")[0], files, commands, shown)


SECTIONS = {section.name: section for section in sections()}


class Terminals:
    """One for each command that ends with &, and one for the others; what they show is kept in files."""

    def __init__(self, home: Path, broker: BrokerProcess, path: Path) -> None:
        self.home = home
        host, _, kafka = broker.bootstrap.rpartition(":")
        self._places = {
            "$PWD": str(home),
            "localhost:9092": f"{host}:{kafka}",
            "localhost:9324": f"127.0.0.1:{broker.http_port}",
            "8000": str(free_ports_in_a_row(1)),
            "8001": str(free_ports_in_a_row(1)),
        }
        # As the page says at its beginning, and where the command line finds this broker.
        preamble = PAGE.read_text().partition("\n## ")[0]
        exported = re.findall(r"(AWS_\w+)=(\S+)", preamble)
        assert len(exported) == 4
        self.environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            **{name: self.here(value) for name, value in exported},
            "HOME": str(home),
            "PATH": f"{path}:{Path(sys.executable).parent}:{os.environ['PATH']}",
            "PYTHONPATH": str(home),
            "HEADRACE_BOOTSTRAP": broker.bootstrap,
            "HEADRACE_URL": f"http://127.0.0.1:{broker.http_port}",
        }
        self._running: list[subprocess.Popen[bytes]] = []

    def here(self, text: str) -> str:
        for written, here in self._places.items():
            text = text.replace(written, here)
        return text

    def type(self, command: str) -> None:
        if command.startswith("export "):
            words = shlex.split(self.here(command))[1:]
            self.environment.update(
                {name: value for name, _, value in (word.partition("=") for word in words)}
            )
        elif command.endswith("&"):
            self._running.append(self._start(f"exec {command[:-1]}"))
        else:
            ran = self._start(command)
            assert ran.wait(300) == 0, f"$ {command}\n{self.everything()}"

    def _start(self, command: str) -> subprocess.Popen[bytes]:
        with (self.home / "shown").open("ab") as shown:
            return subprocess.Popen(
                ["bash", "-c", self.here(command)], cwd=self.home, env=self.environment,
                stdin=subprocess.DEVNULL, stdout=shown, stderr=shown, start_new_session=True,
            )  # fmt: skip

    def everything(self) -> str:
        return (self.home / "shown").read_text()

    def wait_for(self, lines: list[str]) -> None:
        deadline = time.monotonic() + 240
        while missing := [line for line in lines if line not in self.everything()]:
            assert time.monotonic() < deadline, f"never shown: {missing}\n{self.everything()[-6000:]}"
            assert all(process.poll() is None for process in self._running), self.everything()
            time.sleep(0.1)

    def leave(self) -> None:
        """Ctrl+C in each: a worker ends what it does and goes."""
        for process in self._running:
            os.killpg(process.pid, signal.SIGTERM)
        for process in self._running:
            try:
                process.wait(60)
            except subprocess.TimeoutExpired:
                os.killpg(process.pid, signal.SIGKILL)
                process.wait()
                raise


def follow_section(name: str, home: Path, broker: BrokerProcess, path: Path | None = None) -> None:
    """Write its files, type its commands, wait for what it shows. `path`: where its programs are installed."""
    section = SECTIONS[name]
    terminals = Terminals(home, broker, path or Path(sys.executable).parent)
    for file, program in section.files.items():
        (home / file).write_text(terminals.here(program))
    try:
        for command in section.commands:
            terminals.type(command)
        terminals.wait_for(section.shown)
    finally:
        terminals.leave()
