"""The whole cluster on virtual time: a few seeds, that a seed is a run, and that broken rules are noticed.

`make sim SEEDS=…` runs more seeds than anybody waits for here.
"""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_mutants import MUTANTS, Mutant
from cluster_sim import Shape, SimCluster, find, run

SHORT = Shape(seconds=30.0, pause_s=0.4, period_s=4.0)
SEEDS = 12


@pytest.mark.parametrize("seed", range(6))
def test_nothing_acknowledged_is_lost_in_a_storm(seed: int) -> None:
    """Section 3 at every step, section 6 over the whole history, and everybody back in sync at the end."""
    result = run(seed, SHORT)
    assert result.acked > 0


def test_a_seed_is_a_run() -> None:
    assert run(3, SHORT).trace_hash == run(3, SHORT).trace_hash


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_rule_is_noticed(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name, replacement in mutant.patches:
        monkeypatch.setattr(target, name, replacement)
    seeds = range(mutant.seed, mutant.seed + SEEDS)
    assert find(seeds, lambda seed: SimCluster(seed, mutant.shape, mutant.plan)) is not None


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.plan], ids=str)
def test_the_real_code_survives_the_same_faults(mutant: Mutant) -> None:
    SimCluster(mutant.seed, mutant.shape, mutant.plan).run()
