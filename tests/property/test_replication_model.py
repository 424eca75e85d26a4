"""The invariants of correctness.md section 3 hold in every step of seeded runs, under several kinds of trouble.

HEADRACE_MODEL_SEEDS=1000 searches longer; a seed that fails is the whole bug report.
"""

from __future__ import annotations

import os

import pytest
from replication_model import ModelCluster, Options

SEEDS = int(os.environ.get("HEADRACE_MODEL_SEEDS", "4"))

TROUBLES: dict[str, dict[str, float]] = {
    "everything": {},
    "metadata comes late": {"watch": 4, "crash": 2, "restart": 8, "control": 25, "expire": 1},
    "suspicions": {"watch": 6, "prefer": 6, "control": 20, "suspect": 2, "restart": 8},
    "messages come late": {"deliver": 10, "crash": 1.5, "restart": 8, "control": 20, "sync": 2},
    "leaders change": {"prefer": 10, "control": 20, "crash": 0.3},
    "much is written": {"produce": 20, "fetch": 8, "crash": 1.2, "restart": 8},
    "much is lost": {"produce": 12, "sync": 0.5, "crash": 2, "restart": 10, "expire": 0.5, "control": 25},
    "followers are slow": {"tick": 12, "produce": 12, "fetch": 6, "crash": 1},
    "min.insync.replicas changes": {"min_isr": 6, "crash": 1.5},
}

MOVING: dict[str, float] = {"move": 1.5, "crash": 0.4, "control": 25}


@pytest.mark.parametrize("flush", ["commit", "os"])
@pytest.mark.parametrize("trouble", TROUBLES)
def test_no_invariant_breaks(trouble: str, flush: str) -> None:
    for seed in range(SEEDS):
        survive(seed, Options(min_isr=1 + seed % 3, flush=flush, steps=600, weights=TROUBLES[trouble]))


@pytest.mark.parametrize("flush", ["commit", "os"])
def test_no_invariant_breaks_while_partitions_move(flush: str) -> None:
    """R35."""
    for seed in range(2 * SEEDS):
        replicas = 2 + seed % 2
        survive(seed, Options(4, 1 + seed % 2, flush, steps=600, replicas=replicas, weights=MOVING))


def survive(seed: int, options: Options) -> None:
    cluster = ModelCluster(seed, options)
    try:
        cluster.run()
        if options.flush == "commit":
            # With synced logs nothing is ever given up, so everything must come back.
            cluster.check_recovered()
    except AssertionError as problem:
        raise AssertionError(f"seed {seed}: {problem}") from problem


def test_a_seed_always_tells_the_same_story() -> None:
    runs = []
    for _ in range(2):
        cluster = ModelCluster(5, Options(steps=800))
        cluster.run()
        runs.append((cluster.committed, cluster.acknowledged, cluster.store.history))
    assert runs[0] == runs[1]
    assert runs[0][0], "nothing was committed, so nothing was tested"
