"""KAFKA-17754: requests that arrive after their client has given them up never tear a transaction.

Each seed is one schedule of deliveries, timeouts, failovers and aborts. The same schedules with one rule switched off have
to be caught: otherwise this file would prove nothing.
"""

from __future__ import annotations

import pytest
from transaction_cluster import Cluster, Rules, Torn

SEEDS = range(150)


def first_torn(rules: Rules, seeds: range, clients: int = 1) -> str | None:
    for seed in seeds:
        try:
            Cluster(seed, rules, clients).run()
        except Torn as torn:
            return f"seed {seed}: {torn}"
    return None


@pytest.mark.parametrize("version_2", [False, True])
@pytest.mark.parametrize("clients", [1, 2])
def test_no_schedule_tears_a_transaction(version_2: bool, clients: int) -> None:
    assert first_torn(Rules(version_2=version_2), SEEDS, clients) is None


def test_schedules_do_something() -> None:
    """Transactions are really committed and aborted in these runs, and requests really arrive late."""
    confirmed = {True: 0, False: 0}
    left = 0
    for seed in range(30):
        cluster = Cluster(seed, Rules(), 1)
        cluster.run()
        left += cluster.next_connection
        for attempt in cluster.clients[0].attempts:
            if attempt.confirmed and attempt.asked is not None:
                confirmed[attempt.asked] += 1
    assert confirmed[True] > 20 and confirmed[False] > 5 and left > 200


MUTANTS = {
    "R46 epoch bump": Rules(version_2=True, epoch_bump=False),
    "R47 newest connection": Rules(newest_connection=False),
    "R43 coordinator epochs": Rules(coordinator_epochs=False),
    "R47 a second hearing after an abort": Rules(second_hearing=False),
    "R45 verification": Rules(verification=False),
    "R45 marker invalidates": Rules(tickets=False),
    "R47 after a failover": Rules(connection_floor=False),
    "R49 rounds of markers": Rules(marker_rounds=False),
    "R46 open by epoch": Rules(version_2=True, open_by_epoch=False),
}


KNOWN_SEEDS = {"R43 coordinator epochs": 1539, "R45 marker invalidates": 577}
"""Where the rare ones were seen first, to keep the suite quick; the search goes on from the beginning if that moves."""


@pytest.mark.parametrize("name", MUTANTS)
def test_a_rule_that_is_off_is_noticed(name: str) -> None:
    known = KNOWN_SEEDS.get(name, 0)
    assert first_torn(MUTANTS[name], range(known, known + 1)) or first_torn(MUTANTS[name], range(2_000))
