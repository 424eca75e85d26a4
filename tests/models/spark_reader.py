"""Somebody who follows a page about Spark to the letter, in this process and on one Spark: a JVM or a Python for each command would take most of the time."""

from __future__ import annotations

import json
import re
import shlex
import threading
from collections.abc import Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from click.testing import CliRunner
from manual_reader import Reader

from headrace.cli.main import main

SLOW_PYTHON = "Python worker failed to connect back"
"""Spark gives a new Python ten seconds, which no setting changes and a very busy machine does not keep. Whoever reads that tries again."""


class Step(NamedTuple):
    language: str
    text: str
    """One command, or a whole program, definition or file."""


def steps(page: str) -> Iterator[Step]:
    for language, body in re.findall(r"^```(\w+)\n(.*?)^```", page, re.S | re.M):
        for text in body.strip().splitlines() if language == "sh" else [body]:
            yield Step(language, text)


class SparkReader(Reader):
    def __init__(self, home: Path, elsewhere: dict[str, str], monkeypatch: pytest.MonkeyPatch) -> None:
        super().__init__(home, elsewhere)
        monkeypatch.chdir(home)
        for name in ("HOME", "HEADRACE_BOOTSTRAP", "HEADRACE_URL"):
            monkeypatch.setenv(name, self.environment[name])
        self.names: dict[str, Any] = {"__name__": "__main__"}
        self._beside: list[threading.Thread] = []

    def type(self, command: str) -> str:  # type: ignore[override]
        """What it prints."""
        words = shlex.split(self.here(command), comments=True)
        if words[:3] == ["headrace", "pipeline", "run"] and words[-1] == "&":
            self._run_beside(Path(words[3]))
            return ""
        assert words[0] == "headrace", command
        for tries_left in reversed(range(10)):
            ran = CliRunner().invoke(main, words[1:], prog_name="headrace")
            if SLOW_PYTHON not in ran.output or not tries_left:
                break
        assert ran.exit_code == 0, f"$ {command}\n{ran.output}"
        return ran.stdout

    def execute(self, program: str) -> None:
        """All programs of a page are one session of Python."""
        exec(compile(self.here(program), "the page", "exec"), self.names)

    def save(self, name: str, text: str) -> Path:
        file = self.home / name
        file.write_text(self.here(text))
        return file

    def _run_beside(self, file: Path) -> None:
        """Until somebody stops it; returns when it runs, as one who looks at its status before going on."""
        from headrace.spark.pipelines.loading import load
        from headrace.spark.pipelines.run import run

        here = {"bootstrap": self.environment["HEADRACE_BOOTSTRAP"]}
        beside = threading.Thread(target=run, args=(load(file, here=here),), daemon=True)
        beside.start()
        self._beside.append(beside)
        while beside.is_alive() and self._state(file.stem) != "running":
            beside.join(0.2)

    def _state(self, name: str) -> str:
        return str(json.loads(self.type(f"headrace pipeline status {name} --json"))["state"])

    def leave(self) -> None:
        for beside in self._beside:
            beside.join(120)
        super().leave()
        assert not any(beside.is_alive() for beside in self._beside), "nobody stopped it"
