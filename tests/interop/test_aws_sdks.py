"""SDKs for Go, Java and JavaScript from their registries, and the older ones that speak the Query protocol: a queue from its creation to its end."""

from __future__ import annotations

import os
import shutil
import subprocess
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.broker_process import BrokerProcess

HERE = Path(__file__).parent / "aws"
KEPT = HERE.parents[2] / ".interop" / "aws"
"""What was downloaded is kept for the next run."""
JAVA_SDK = "2.35.0"
JAVA_SDK_OF_BEFORE = "1.12.500"
"""One of the last that speak the Query protocol; 1.12.585 began to speak JSON."""

pytestmark = pytest.mark.timeout(1800)


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as process:
        yield process


def done(command: list[str | Path], where: Path) -> str:
    ran = subprocess.run(command, cwd=where, capture_output=True, text=True, timeout=1700, env={**os.environ, "GOFLAGS": "-mod=mod"})  # fmt: skip
    return f"{ran.stdout}{ran.stderr}"


def unpacked(language: str) -> Path:
    """A copy of the program, in a folder where its libraries may lie beside it."""
    where = KEPT / language
    where.mkdir(parents=True, exist_ok=True)
    for file in (HERE / language).iterdir():
        if not (file.name == "go.mod" and (where / "go.mod").exists()):
            shutil.copy(file, where)
    return where


def test_go(broker: BrokerProcess) -> None:
    where = unpacked("go")
    if not (where / "go.sum").exists():
        subprocess.run(["go", "mod", "tidy"], cwd=where, check=True)
    assert "SQS OK" in done(["go", "run", ".", broker.url, "from-go"], where)


def test_javascript(broker: BrokerProcess) -> None:
    where = unpacked("js")
    if not (where / "node_modules").exists():
        subprocess.run(["npm", "install", "--silent", "--no-audit", "--no-fund"], cwd=where, check=True)
    assert "SQS OK" in done(["node", "walk.js", broker.url, "from-js"], where)


def test_java(broker: BrokerProcess) -> None:
    assert "SQS OK" in done(walk_in_java("java", JAVA_SDK, broker.url), HERE)


def test_f32_java_as_it_was(broker: BrokerProcess) -> None:
    assert "SQS OK" in done(walk_in_java("java-of-before", JAVA_SDK_OF_BEFORE, broker.url), HERE)


def walk_in_java(program: str, version: str, url: str) -> list[str | Path]:
    where = unpacked(program)
    jars = where / "jars"
    if not jars.exists():
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run(
            [*copy, f"-Dsdk.version={version}", f"-DoutputDirectory={jars}"], cwd=where, check=True
        )
    return ["java", "-cp", f"{jars}/*", where / "Walk.java", url, f"from-{program}"]


def test_f32_ruby(broker: BrokerProcess) -> None:
    """Version 1 of AWS's own, as Debian has it."""
    assert "SQS OK" in done(["ruby", "walk.rb", broker.url, "from-ruby"], HERE / "ruby")


def test_f32_php(broker: BrokerProcess) -> None:
    """AsyncAws, as Debian has it: AWS's own is on no registry that we reach."""
    assert "SQS OK" in done(["php", "walk.php", broker.url, "from-php"], HERE / "php")
