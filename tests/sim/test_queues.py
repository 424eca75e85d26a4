"""Queues on the whole cluster on virtual time: a few seeds, that a seed is a run, and that broken rules are noticed.

`make sim-queues SEEDS=…` runs more seeds than anybody waits for here.
"""

from __future__ import annotations

import sys
from dataclasses import replace
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from cluster_invariants import Broken
from queue_mutants import MUTANTS, QueueMutant
from queue_sim import QueueCluster, QueueShape, run

from headrace.queues import commands, shard

STANDARD = QueueShape(seconds=15.0, partitions=2, pause_s=0.3, period_s=3.0, dead_letters=True)
FIFO = QueueShape(seconds=15.0, partitions=2, pause_s=0.3, period_s=3.0, fifo=True)
ELASTIC = QueueShape(seconds=20.0, partitions=1, pause_s=0.15, period_s=4.0, elastic=True, workers=2)
SEEDS = 8


@pytest.mark.parametrize("seed", range(2))
@pytest.mark.parametrize("shape", [STANDARD, FIFO], ids=["standard", "fifo"])
def test_nothing_is_lost_early_stale_or_out_of_order(shape: QueueShape, seed: int) -> None:
    """R56-R60 through the SQS door of any broker, with crashes, cut links, torn disks and an unreliable coordinator."""
    assert run(seed, shape).acked > 0


@pytest.mark.parametrize("fifo", [False, True], ids=["standard", "fifo"])
def test_partitions_come_and_go_and_nothing_is_lost_or_overtaken(fifo: bool) -> None:
    """Q11: by load, while clients go on as they are, under the same faults."""
    result = run(1, replace(ELASTIC, fifo=fifo))
    assert len(set(result.actives) - {0}) > 1


def test_a_seed_is_a_run() -> None:
    assert run(3, FIFO).trace_hash == run(3, FIFO).trace_hash


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_a_broken_rule_of_queues_is_noticed(mutant: QueueMutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name, replacement in mutant.patches:
        if target is shard._DECIDE:
            monkeypatch.setitem(shard._DECIDE, getattr(commands, name), replacement)
        else:
            monkeypatch.setattr(target, name, replacement)
    for seed in range(mutant.seed, mutant.seed + SEEDS):
        try:
            QueueCluster(seed, mutant.shape, mutant.plan).run()
        except Broken as broken:
            assert any(anomaly in str(broken) for anomaly in mutant.finds.split("|")), broken
            return
    pytest.fail("nobody noticed")


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.plan], ids=str)
def test_the_real_queue_survives_the_same_faults(mutant: QueueMutant) -> None:
    QueueCluster(mutant.seed, mutant.shape, mutant.plan).run()
