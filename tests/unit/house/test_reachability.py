"""F41: whatever stands under src is reached from where people come in; what only tests call is no part of the product."""

from __future__ import annotations

import importlib
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path

import pytest
from reachability import Reach

import headrace
from headrace.cli.main import NOUNS

ROOT = Path(__file__).parents[3]
HANDLER_NAMES = (
    "KEY",
    "VERSIONS",
    "LOWEST_ADVERTISED",
    "HIGHEST_ADVERTISED",
    "handle",
    "handle_frame",
    "RIGHTS",
    "PARTS",
)

ASKED_FOR = {
    r"headrace\.net\.h1_connection:H1Connection\.on_\w+": "httptools calls its owner back by these names",
    r"headrace\.http\.reader:RequestReader\.on_\w+": "httptools calls its owner back by these names",
    r"[\w.]+:(\w+\.)?invariants": "what must hold of a machine stands beside its state; simulations ask after every step",
}
"""Patterns of what is reached in ways that no name shows, each with its reason."""


@pytest.fixture(scope="module")
def reach() -> Reach:
    found = Reach(ROOT / "src")
    for module, names in entry_points(found):
        found.enter(module, *names)
    return found


def entry_points(found: Reach) -> Iterator[tuple[str, tuple[str, ...]]]:
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    for script in project["scripts"].values():
        module, _, name = script.partition(":")
        yield module, (name,)
    for plugin in project["entry-points"]["pytest11"].values():
        yield plugin, public(found, plugin)
    yield from commands("headrace.cli", NOUNS)
    yield "headrace", ("__version__", "__getattr__")
    yield "headrace.testing", ("__getattr__",)
    for name, home in vars(headrace)["_HOMES"].items():
        yield home, (f"{name}.*",)
    # Spark imports pyspark_… by itself; the other two are in docs/spark.md.
    yield "pyspark_headrace", ("DefaultSource",)
    yield "headrace.spark", ("register",)
    yield "headrace.spark.program", ("Pipeline.*",)
    yield "headrace.spark.dead_letters", ("dead_letters",)
    # scripts/generate-docs writes docs/openapi.json with it, without a broker.
    yield "headrace.http.rest.described", ("api_document",)
    for name, module in found.modules.items():
        if name.startswith("headrace.kafka.handlers."):
            yield name, tuple(one for one in HANDLER_NAMES if one in module.bodies)
        elif name.startswith("headrace.testing."):
            yield name, public(found, name)
    for pattern in ASKED_FOR:
        for name, module in found.modules.items():
            for one in module.bodies:
                if re.fullmatch(pattern, f"{name}:{one}"):
                    yield name, (one,)


def public(found: Reach, module: str) -> tuple[str, ...]:
    names = found.modules[module].bodies
    return tuple(
        f"{name}.*" if any(other.startswith(f"{name}.") for other in names) else name
        for name in names
        if "." not in name and not name.startswith("_")
    )


def commands(package: str, table: dict[str, str]) -> Iterator[tuple[str, tuple[str, ...]]]:
    for verb in table:
        path = f"{package}.{verb.replace('-', '_')}"
        module = importlib.import_module(path)
        if hasattr(module, "VERBS"):
            yield path, ("VERBS", "HELP")
            yield from commands(path, module.VERBS)
        else:
            yield path, ("command",)


def test_f41_everything_is_reached(reach: Reach) -> None:
    unreached = [f"{one} (line {one.line})" for one in reach.unreached()]
    assert not unreached, "wire it in, or delete it with its tests:\n" + "\n".join(unreached)


def test_the_reading_finds_what_is_dead(tmp_path: Path) -> None:
    """A twin that only its brother calls, a method that nobody names, a constant that nobody reads."""
    (tmp_path / "dead_or_alive.py").write_text(
        "LIMIT = 1\nUNUSED = 2\n"
        "class Used:\n    def run(self): return self._step()\n    def _step(self): return LIMIT\n    def spare(self): ...\n"
        "def twin(): return brother()\ndef brother(): return twin()\n"
        "def main(): return Used().run()\n"
    )
    found = Reach(tmp_path, expected=lambda *_: False)
    found.enter("dead_or_alive", "main")
    assert {one.name for one in found.unreached()} == {"UNUSED", "Used.spare", "twin", "brother"}
