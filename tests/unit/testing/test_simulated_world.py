"""Nodes, network and disk together: an echo server under faults keeps its word, and the same seed is the same run."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path

import pytest

_spec = importlib.util.spec_from_file_location("sim_echo_world", Path(__file__).parent / "sim_echo_world.py")
assert _spec is not None and _spec.loader is not None
sim_echo_world = importlib.util.module_from_spec(_spec)
sys.modules.setdefault("sim_echo_world", sim_echo_world)
_spec.loader.exec_module(sim_echo_world)
run_echo_world = sim_echo_world.run_echo_world


@pytest.mark.parametrize("seed", range(12))
def test_what_was_acknowledged_is_in_the_journal(seed: int) -> None:
    outcome = run_echo_world(seed)
    for line in outcome.acknowledged:
        assert line in outcome.journal
    assert outcome.acknowledged, "a world in which nothing ever works proves nothing"


@pytest.mark.parametrize("seed", range(4))
def test_the_same_seed_is_the_same_run(seed: int) -> None:
    one, two = run_echo_world(seed, keep_trace=True), run_echo_world(seed, keep_trace=True)
    assert one.trace == two.trace
    assert one.trace_hash == two.trace_hash
    assert one.journal == two.journal


def test_different_seeds_are_different_runs() -> None:
    assert len({run_echo_world(seed).trace_hash for seed in range(5)}) == 5
