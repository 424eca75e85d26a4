"""Rules switched off one at a time in the whole cluster: each breaks something that a run notices.

The pure machines have mutants of their own (tests/property/test_replication_mutants.py); these go through drivers, disks,
the network and real clients, so they also show that those are held to the rules.
"""

from __future__ import annotations

from collections.abc import Callable
from typing import Any, NamedTuple

from cluster_sim import Shape

from headrace.broker import replicator
from headrace.broker.partition import Partition
from headrace.cluster import controller, election
from headrace.core.errors import ErrorKind
from headrace.log.partition_log import PartitionLog
from headrace.log.results import ACCEPT
from headrace.replication.follower import Follower
from headrace.replication.leader import Leader
from headrace.testing.nemesis import Fault, FaultKind

Patch = tuple[Any, str, Callable[..., Any]]

CRASHES = (FaultKind.KILL, FaultKind.POWER_CUT)
CUTS = (FaultKind.ISOLATE, FaultKind.PAUSE, FaultKind.DEAFEN)
SPLIT = (*CRASHES, *CUTS)
ROUGH = Shape(
    seconds=40.0,
    partitions=1,
    min_isr=1,
    producers=2,
    transactional_ids=0,
    groups=False,
    pause_s=0.06,
    period_s=3.0,
    kinds=CRASHES,
    hostile=False,
    disk_faults=False,
    outages=False,
)


class Mutant(NamedTuple):
    rule: str
    breaks: str
    patches: tuple[Patch, ...]
    shape: Shape
    plan: tuple[Fault, ...] | None = None
    """Faults that lead to the trouble, where drawn ones find it too rarely."""
    seed: int = 0
    """Where it is found first, to keep the suite quick; the search goes on from there if that moves."""

    def __str__(self) -> str:
        return f"{self.rule} {self.breaks}"


_settle = election.settle
_fail_waiting = Partition._fail_waiting


def _settle_unclean(partition: Any, standing: Any, min_isr: int, **_: Any) -> Any:
    return _settle(partition, standing, min_isr, allow_unclean=True)


def _acknowledge_what_is_waiting(self: Partition, kind: ErrorKind) -> None:
    for callback in self._acks.fail_all():
        callback(ErrorKind.NONE)


async def _no_waiting(partitions: Any) -> None:
    pass


def _reached_in_memory(self: Leader) -> int:
    return min([self._end, *(progress.end_offset for progress in self._waited_for)])


ALL = ("b1", "b2", "b3")
LAST_ONE_STANDING = tuple(
    fault
    for one, others in (("b3", ("b1", "b2")), ("b1", ("b2", "b3")), ("b2", ("b1", "b3")))
    for at in [3.0 + 14.0 * ALL.index(one)]
    for fault in (
        Fault(at, 6.0, FaultKind.KILL, others, 0.0),
        Fault(at + 5.9, 5.0, FaultKind.KILL, (one,), 0.0),
    )
)
"""Two are away while one goes on alone; then it dies at the moment they come back."""
BLACKOUTS = tuple(Fault(2.0 + 2.5 * number, 0.2, FaultKind.POWER_CUT, ALL, 0.0) for number in range(12))


def _split(shape: Shape, *kinds: FaultKind) -> Shape:
    return Shape(**{**shape.__dict__, "kinds": kinds})


MUTANTS = [
    Mutant("R12", "the leader commits alone", ((Leader, "_reached_by_all", lambda self: self._durable),), ROUGH),
    Mutant("R14", "anyone joins the ISR", ((Leader, "_may_join", lambda *_: True),), ROUGH, seed=2),
    Mutant("R18", "a leader that resigns acknowledges what waits", ((Partition, "_fail_waiting", _acknowledge_what_is_waiting),), _split(ROUGH, *SPLIT)),
    Mutant("R22", "nobody looks for divergence", ((Leader, "_divergence", lambda *_: None),), _split(ROUGH, *SPLIT)),
    Mutant("R27", "every election may be unclean", ((controller, "settle", _settle_unclean),), ROUGH, LAST_ONE_STANDING),
    Mutant("R38", "duplicates are appended", ((PartitionLog, "check_producer", lambda *_: ACCEPT),), _split(ROUGH, *SPLIT)),
    Mutant(
        "S9",
        "acknowledgements do not wait for the disk",
        (
            (Partition, "request_flush", lambda *_, **__: None),
            (replicator, "_synced", _no_waiting),
            (Follower, "_is_safe_to_confirm", lambda _: True),
            (Leader, "_reached_by_all", _reached_in_memory),
        ),
        ROUGH,
        BLACKOUTS,
    ),
]  # fmt: skip
