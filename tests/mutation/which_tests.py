"""A pytest plugin that writes down which test runs which line, and how long each takes (`scripts/mutants --map`)."""

from __future__ import annotations

import json
import os
from collections.abc import Iterator
from pathlib import Path
from time import perf_counter

import coverage
import pytest

TARGET = Path(os.environ["HEADRACE_TEST_MAP"])
_seconds: dict[str, float] = {}
_measure = coverage.Coverage(data_file=None, source_pkgs=["headrace"], config_file=False)
_measure.start()


@pytest.hookimpl(hookwrapper=True)
def pytest_runtest_protocol(item: pytest.Item) -> Iterator[None]:
    _measure.switch_context(item.nodeid)
    begun = perf_counter()
    yield
    _seconds[item.nodeid] = perf_counter() - begun
    _measure.switch_context("")


def pytest_sessionfinish() -> None:
    _measure.stop()
    data = _measure.get_data()
    lines = {
        name.partition("/src/")[2]: {
            str(line): tests for line, tests in data.contexts_by_lineno(name).items()
        }
        for name in data.measured_files()
    }
    TARGET.mkdir(parents=True, exist_ok=True)
    found = {"seconds": _seconds, "lines": lines}
    (TARGET / f"{os.getpid()}.json").write_text(json.dumps(found))
