"""Torture in short: real brokers, a real etcd, kill -9 under load, a pause beyond the lease. `make torture` goes on for longer."""

from __future__ import annotations

import sys
from pathlib import Path

import pytest

sys.path.insert(0, str(Path(__file__).parent))
from faults import LEASE_S
from real_disk import RealDisk

from headrace.testing.etcd_server import etcd_binary
from torture import coordinator_away, failing_disks, leader_kills, rolling_restart

pytestmark = pytest.mark.skipif(etcd_binary() is None, reason="etcd is not installed")


def test_leaders_are_killed_and_nothing_is_lost(tmp_path: Path) -> None:
    """R12, R18, R38: what was acknowledged is there once, at its offset, and the next leader is quick."""
    result = leader_kills(tmp_path, 2)
    assert result["acked"] > 0 and not result["failures"]
    assert (result["lost"], result["duplicated"], result["moved"], result["disordered"]) == (0, 0, 0, 0)
    assert result["gap_p50_s"] < LEASE_S, (
        "the next leader does not wait until the lease of the last one runs out"
    )


def test_a_rolling_restart_goes_unnoticed(tmp_path: Path) -> None:
    """R33: leaderships are handed over before a broker stops; no error reaches a client that retries."""
    result = rolling_restart(tmp_path)
    assert result["failures"] == []
    assert (result["lost"], result["duplicated"], result["moved"]) == (0, 0, 0)


def test_acks_all_goes_on_without_the_coordinator(tmp_path: Path) -> None:
    """R36: for longer than the leases last; nobody exits, nothing is lost, and all is well afterwards."""
    outage_s = 9.0
    result = coordinator_away(tmp_path, outage_s)
    assert result["alive"] == [1, 2, 3]
    assert result["failures"] == [] and (result["lost"], result["duplicated"]) == (0, 0)
    assert result["longest_gap_s"] < outage_s, "writes must not wait for the coordinator"


def test_disks_lose_power_fill_up_and_fail_to_sync(tmp_path: Path) -> None:
    """S5, S7, S15, R12, R29 on ext4: one broker after the other; what was acknowledged is there, once, and all come back."""
    if not RealDisk.are_possible():
        pytest.skip("no loop devices, or no right to mount them")
    result = failing_disks(tmp_path, ("power loss", "disk full", "fsync failure"))
    assert result["acked"] > 0 and result["failures"] == []
    assert (result["lost"], result["duplicated"], result["moved"], result["disordered"]) == (0, 0, 0, 0)
    assert all(result["noticed"].values()), result["noticed"]
