"""Spark's workers collect garbage after every task; what they have imported is not looked at each time."""

from __future__ import annotations

import gc
import sys
from types import ModuleType, SimpleNamespace
from typing import Any

import pytest

from headrace.spark import worker_memory
from headrace.spark.worker_memory import settle


@pytest.fixture
def freezes(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """One entry for each time that everything is frozen."""
    seen: list[int] = []
    monkeypatch.setattr(gc, "freeze", lambda: seen.append(1))
    monkeypatch.setattr(worker_memory, "_seen", 0)
    return seen


def test_frozen_once_for_what_is_imported(freezes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys.modules["__main__"], "__spec__", SimpleNamespace(name="pyspark.daemon"))
    settle()
    settle()
    assert freezes == [1], "what tasks leave behind stays where it can be collected"
    monkeypatch.setitem(sys.modules, "imported_by_a_task", ModuleType("imported_by_a_task"))
    settle()
    settle()
    assert freezes == [1, 1]


def test_other_processes_are_left_alone(freezes: list[int], monkeypatch: pytest.MonkeyPatch) -> None:
    for spec in (None, SimpleNamespace(name="pytest")):
        monkeypatch.setattr(sys.modules["__main__"], "__spec__", spec)
        settle()
    assert not freezes


def test_a_task_on_spark_is_a_worker(spark: Any) -> None:
    """And its collections, which Spark asks for after every task, walk little."""

    def work(_: int) -> tuple[bool, int, int]:
        settle()
        return worker_memory._in_worker(), gc.get_freeze_count(), len(gc.get_objects())

    # Not by this module's name, which workers can not import.
    work.__module__ = "__main__"
    found = spark.sparkContext.parallelize([0], 1).map(work).collect()
    (is_worker, frozen, watched) = found[0]
    assert is_worker and frozen > 10 * watched
