"""docs/everyday.md names every item of its list, and the tests that it names exist; what CI would run is there to be run."""

from __future__ import annotations

import re
import shlex
from pathlib import Path

import yaml
from rule_page import check

ROOT = Path(__file__).parents[3]
WORKFLOWS = ROOT / ".github" / "workflows"
TARGETS = set(re.findall(r"^([a-z-]+):", (ROOT / "Makefile").read_text(), re.MULTILINE))


def test_every_item_of_every_day_is_held_by_tests_that_exist() -> None:
    check("everyday.md", r"E\d+", [f"E{number}" for number in range(1, 69)])


def commands(name: str) -> list[str]:
    """What the jobs of a workflow run, one line each, with every value of a matrix in its place."""
    found: list[str] = []
    for job in yaml.safe_load((WORKFLOWS / name).read_text())["jobs"].values():
        matrix = job.get("strategy", {}).get("matrix", {})
        lines = [step["run"] for step in job["steps"] if "run" in step]
        for key, values in matrix.items():
            hole = f"${{{{ matrix.{key} }}}}"
            lines = [
                line.replace(hole, value) for line in lines for value in (values if hole in line else [""])
            ]
        found += lines
    return found


def test_what_the_workflows_run_is_there() -> None:
    for name in ("ci.yml", "nightly.yml"):
        for line in commands(name):
            words = [
                word
                for word in shlex.split(re.sub(r"\$\{\{.*?\}\}", "7", line))
                if word not in ("sudo", "-E")
            ]
            if words[0] == "make":
                assert words[1] in TARGETS, line
            elif words[0] != "docker":
                script = next(word for word in words if word.startswith("scripts/"))
                assert (ROOT / script).exists(), line
                flags = [word for word in words if word.startswith("--")]
                assert all(flag in (ROOT / script).read_text() for flag in flags), line


def test_the_matrix_and_the_long_things_of_the_night() -> None:
    matrix = yaml.safe_load((WORKFLOWS / "ci.yml").read_text())["jobs"]["test"]["strategy"]["matrix"]
    (oldest,) = re.findall(r'requires-python = ">=(3\.\d+)', (ROOT / "pyproject.toml").read_text())
    assert matrix["python"] == [oldest, "3.12", "3.13", "3.14"]
    nightly = "\n".join(commands("nightly.yml"))
    for long in (
        "scripts/sim --seeds",
        "scripts/sim --queues",
        "scripts/torture",
        "make fuzz",
        "make rest-fuzz",
        "make interop",
    ):
        assert long in nightly
    assert nightly.count("github.run_number") > 2, "seeds that nobody has run yet"
