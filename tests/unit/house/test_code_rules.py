"""Rules that are kept by what the code does not do."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

SOURCE = Path(__file__).parents[3] / "src" / "headrace"
GENERATED_CODE = {"wire/compiler.py", "wire/schema.py"}
"""They compile encoders from our own tables of messages, never from input."""
DICE = {"testing"}
SUSPECT = re.compile(r"mmap|pickle|marshal|shelve|dill|random|xml|eval\(|exec\(")
MAPPED = {"spark/direct.py"}
"""A Spark worker maps sealed segments; a SIGBUS ends that worker, and Spark runs its task again."""


def modules() -> Iterator[tuple[str, ast.Module]]:
    for path in sorted(SOURCE.rglob("*.py")):
        text = path.read_text()
        if SUSPECT.search(text):
            yield path.relative_to(SOURCE).as_posix(), ast.parse(text)


def imported(tree: ast.Module) -> set[str]:
    names: set[str] = set()
    for node in ast.walk(tree):
        if isinstance(node, ast.Import):
            names |= {alias.name.partition(".")[0] for alias in node.names}
        elif isinstance(node, ast.ImportFrom) and node.level == 0 and node.module:
            names.add(node.module.partition(".")[0])
    return names


def called(tree: ast.Module) -> set[str]:
    return {
        node.func.id
        for node in ast.walk(tree)
        if isinstance(node, ast.Call) and isinstance(node.func, ast.Name)
    }


@pytest.fixture(scope="module")
def sources() -> dict[str, ast.Module]:
    return dict(modules())


def test_s28_no_broker_maps_files_into_memory(sources: dict[str, ast.Module]) -> None:
    assert {name for name, tree in sources.items() if "mmap" in imported(tree)} <= MAPPED


def test_x29_nothing_is_unpickled_or_evaluated(sources: dict[str, ast.Module]) -> None:
    for name, tree in sources.items():
        assert not imported(tree) & {"pickle", "marshal", "shelve", "dill"} or name.startswith("spark/"), name
        assert not called(tree) & {"eval", "exec"} or name in GENERATED_CODE, name


def test_x30_chance_comes_from_secrets(sources: dict[str, ast.Module]) -> None:
    for name, tree in sources.items():
        assert "random" not in imported(tree) or name.partition("/")[0] in DICE, name


CLOCKS = {"broker/runtime.py", "broker/threads.py", "broker/os_files.py", "coordinator/sqlite_store.py"}
"""Adapters: everybody else below the command line takes the time, and a stopwatch for work in threads, from the runtime."""


def test_f43_nothing_simulated_looks_at_a_clock_or_starts_a_thread() -> None:
    """F43: a view's filter looked at the machine's clock inside a simulation, so a seed was not a run."""
    outside = {"cli", "client", "spark", "testing"}
    for path in sorted(SOURCE.rglob("*.py")):
        name = path.relative_to(SOURCE).as_posix()
        if name in CLOCKS or name.partition("/")[0] in outside:
            continue
        assert not imported(ast.parse(path.read_text())) & {"time", "threading"}, name


def test_x21_no_xml_is_parsed(sources: dict[str, ast.Module]) -> None:
    """The Query protocol of SQS is asked in forms and only answered in XML."""
    parsers = {"ElementTree", "minidom", "sax", "lxml", "defusedxml", "expat"}
    for name, tree in sources.items():
        for node in ast.walk(tree):
            if isinstance(node, ast.ImportFrom) and (node.module or "").startswith("xml"):
                assert not parsers & {alias.name for alias in node.names}, name
