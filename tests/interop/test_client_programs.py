"""`headrace generate client java` and `go`: what is written compiles and runs with the clients it names, in the open and with TLS and a login."""

from __future__ import annotations

import os
import subprocess
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest
from click.testing import CliRunner
from kafka_jars import class_path

from headrace.cli.main import main
from headrace.security.founding import SecureFiles
from headrace.testing.broker_process import BrokerProcess

KEPT = Path(__file__).parents[2] / ".interop" / "go-programs"
pytestmark = pytest.mark.timeout(1800)


class Place(NamedTuple):
    bootstrap: str
    variables: dict[str, str]
    """Of the command that writes, and of the program that runs."""


@pytest.fixture(params=["open", "secure"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Place]:
    secure = request.param == "secure"
    with BrokerProcess(tmp_path / "data", arguments=("--secure",) if secure else ()) as broker:
        variables = {"HEADRACE_CONTEXT": "", "HEADRACE_TIMEOUT": "60s"}
        bootstrap, url = broker.bootstrap, broker.url
        if secure:
            files = SecureFiles(tmp_path / "data" / "security")
            bootstrap, url = f"localhost:{broker.kafka_port}", f"https://localhost:{broker.http_port}"
            variables |= {
                "HEADRACE_USER": "admin", "HEADRACE_PASSWORD_FILE": str(files.password), "HEADRACE_TLS_CA": str(files.authority.certificate),
                "HEADRACE_PASSWORD": files.password.read_text().strip(),
            }  # fmt: skip
        yield Place(bootstrap, {**variables, "HEADRACE_URL": url})


def written(language: str, place: Place) -> str:
    variables = {name: value for name, value in place.variables.items() if name != "HEADRACE_PASSWORD"}
    done = CliRunner(env=variables).invoke(
        main,
        ["generate", "client", language, "-b", place.bootstrap, "--topic", "greetings"],
        prog_name="headrace",
    )
    assert done.exit_code == 0, done.output
    assert place.variables.get("HEADRACE_PASSWORD", "\0") not in done.stdout
    return done.stdout


def ran(command: list[str], where: Path, place: Place) -> str:
    kept = {**os.environ, **place.variables, "GOFLAGS": "-mod=mod"}
    done = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=1700, env=kept)
    assert done.returncode == 0, done.stdout + done.stderr
    return done.stdout


def test_java(place: Place, tmp_path: Path) -> None:
    (tmp_path / "First.java").write_text(written("java", place))
    assert "hello" in ran(["java", "-cp", class_path(), "First.java"], tmp_path, place).splitlines()


def test_go(place: Place) -> None:
    """As its first line says."""
    KEPT.mkdir(parents=True, exist_ok=True)
    text = written("go", place)
    (KEPT / "first.go").write_text(text)
    initialise, get, run = (step.split() for step in text.splitlines()[0].removeprefix("// ").split(" && "))
    if not (KEPT / "go.mod").exists():
        subprocess.run(initialise, cwd=KEPT, check=True)
        subprocess.run(get, cwd=KEPT, check=True)
    assert "hello" in ran(run, KEPT, place).splitlines()
