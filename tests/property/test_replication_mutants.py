"""Every replication rule is needed: with its method replaced by one that breaks it, the model finds a broken invariant.

A mutant names the rule, the methods that keep it, and the kind of trouble (weights of the model's actions) in which
breaking it shows. Each is searched for over seeds until the first breach; the same troubles leave the real code unharmed.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import msgspec
import pytest
import replication_model as model
from replication_model import Broken, ModelCluster, Options

from headrace.cluster import controller, election, keys, membership, reassignment
from headrace.cluster.changes import Change
from headrace.cluster.election import BrokersStanding, Elected
from headrace.cluster.state import PartitionState
from headrace.core.plan import Rejected
from headrace.replication import leader
from headrace.replication.follower import FetchPlan, Follower
from headrace.replication.leader import Leader
from headrace.replication.progress import ReplicaProgress

Patch = tuple[Any, str, Callable[..., Any]]
Trouble = dict[str, float] | Callable[[ModelCluster], None]
"""Weights for chance, or a story."""

CALM: dict[str, float] = {}
LOSSY = {"sync": 0.5, "crash": 2.0, "restart": 8.0}
LATE = {"prefer": 6.0, "suspect": 3.0, "expire": 4.0, "control": 25.0, "deliver": 12.0}
SHIFTING = {"min_isr": 6.0, "crash": 1.5}


@dataclass(frozen=True)
class Mutant:
    rule: str
    breaks: str
    patches: tuple[Patch, ...]
    trouble: Trouble
    invariants: str
    """Those that are seen to break."""
    flush: str = "commit"
    min_isr: int = 2
    seed: int = 0
    """Where the search begins: a seed that was seen to break it, for speed only."""

    def __str__(self) -> str:
        return f"{self.rule} {self.breaks}"


# -- what the mutants do instead --------------------------------------------------------------------------------------

_isr_change = election.isr_change
_partition_change = election.partition_change
_register = membership.register
_settle = election.settle


def swap_without_compare(*args: Any, **named: Any) -> Change:
    return _isr_change(*args, **named)._replace(compares=())


def swap_without_joining(*args: Any, **named: Any) -> Change:
    return _isr_change(*args, **{**named, "joining": {}})


def write_without_compare(*args: Any) -> Change:
    return _partition_change(*args)._replace(compares=())


def write_without_leader(*args: Any) -> Change:
    change = _partition_change(*args)
    return change._replace(compares=change.compares[:2])


def register_unfenced(*args: Any, **named: Any) -> Change | Rejected:
    change = _register(*args, **named)
    return change if isinstance(change, Rejected) else change._replace(ops=change.ops[1:])


def settle_unclean(partition: PartitionState, standing: BrokersStanding, min_isr: int, **_: Any) -> Elected:
    return _settle(partition, standing, min_isr, allow_unclean=True)


def without_elr(
    partition: PartitionState, standing: BrokersStanding, min_isr: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    return tuple(member for member in partition.isr if member in standing.live), ()


def elr_for_ever(
    partition: PartitionState, standing: BrokersStanding, min_isr: int
) -> tuple[tuple[int, ...], tuple[int, ...]]:
    gone = tuple(member for member in partition.isr if member not in standing.live)
    return tuple(member for member in partition.isr if member in standing.live), partition.elr + gone


def elr_kept_by_next(
    partition: PartitionState, leader: int, isr: Any, elr: Any, min_isr: int
) -> PartitionState:
    return _next(partition, leader, isr, elr, 99)


_next = election._next


def joins_without_epoch_start(self: Leader, replica_id: int, progress: ReplicaProgress) -> bool:
    return (
        progress.has_fetched
        and progress.end_offset >= self.high_watermark
        and self._live.get(replica_id) == progress.broker_epoch
    )


def joins_from_any_life(self: Leader, replica_id: int, progress: ReplicaProgress) -> bool:
    return progress.has_fetched and progress.end_offset >= max(self.high_watermark, self.epoch_start_offset)


def remember_earlier_life(self: ReplicaProgress, broker_epoch: int) -> None:
    self.broker_epoch = broker_epoch


def follow_beyond_the_end(self: Follower) -> list[Any]:
    self.high_watermark = self._leader_high_watermark
    return []


def counts_any_epoch(self: Follower, plan: FetchPlan) -> bool:
    return plan.fetch_offset == self.end_offset and not self._busy


def truncate_to_high_watermark(self: Follower, *_: int) -> int:
    return min(self.high_watermark, self.end_offset - 1)


def shrink_within_the_epoch(
    partition: PartitionState, replicas: tuple[int, ...], adding: tuple[int, ...], removing: tuple[int, ...]
) -> PartitionState | Rejected:
    new = _with_replicas(partition, replicas, adding, removing)
    if isinstance(new, Rejected) or new.leader != partition.leader:
        return new
    return msgspec.structs.replace(new, leader_epoch=partition.leader_epoch)


def complete_within_the_epoch(partition: PartitionState, min_isr: int) -> PartitionState | None:
    new = _complete(partition, min_isr)
    if new is None or new.leader != partition.leader:
        return new
    return msgspec.structs.replace(new, leader_epoch=partition.leader_epoch)


_with_replicas = reassignment._with_replicas
_complete = reassignment.complete


def always(value: Any) -> Callable[..., Any]:
    return lambda *_: value


# -- stories: troubles that chance finds too rarely -------------------------------------------------------------------


def delayed_fetch_of_an_old_epoch(cluster: ModelCluster) -> None:
    """Broker 3 fetches at 10 in epoch 0, truncates to 5 in epoch 1, and the old fetch arrives in epoch 2."""
    cluster.write(1, 5)
    cluster.replicate(2, 3)
    cluster.write(1, 5)
    cluster.replicate(3)
    cluster.nodes[3].fetch()
    late, cluster.mail = cluster.mail[-1], []
    cluster.move_leader(2)
    cluster.tell(2, 3)
    cluster.replicate(3)
    assert cluster.nodes[3].log.end == 5
    cluster.move_leader(1)
    cluster.tell(1, 2, 3)
    late.work()
    cluster.mail = []
    cluster.replicate(2)


def restarted_follower_that_has_not_fetched(cluster: ModelCluster) -> None:
    """Broker 2 held 5 records, lost them in a crash and is let in again; broker 3 completes the commit of all 5."""
    cluster.nodes[1].produce("a")
    cluster.write(1, 4)
    for _ in range(8):
        cluster.nodes[2].fetch()
        cluster.deliver()
    cluster.nodes[2].log.durable = 0
    cluster.nodes[2].crash(0)
    cluster.store.delete(keys.broker(2))
    cluster.nodes[2].start()
    cluster.tell(1)
    cluster.control(1)
    cluster.replicate(3)
    cluster.nodes[1].lead(leader.Tick())
    cluster.deliver()


def delayed_fetch_of_an_earlier_life(cluster: ModelCluster) -> None:
    """Broker 2's fetch at 5 arrives after it has crashed, lost everything and registered again."""
    cluster.write(1, 5)
    for _ in range(8):
        cluster.nodes[2].fetch()
        cluster.deliver()
    cluster.nodes[2].fetch()
    late, cluster.mail = cluster.mail[-1], []
    cluster.nodes[2].log.durable = 0
    cluster.nodes[2].crash(0)
    cluster.store.delete(keys.broker(2))
    cluster.nodes[2].start()
    cluster.tell(1)
    cluster.control(1)
    cluster.replicate(3)
    late.work()
    cluster.deliver()


def new_leader_that_does_not_know_what_is_committed(cluster: ModelCluster) -> None:
    """Of four brokers 4 is behind. 2 takes over with an old high watermark, and 4 has reached that one."""
    cluster.write(1, 4)
    cluster.replicate(2, 3, 4)
    cluster.nodes[4].follower = None
    for _ in range(5):
        cluster.nodes[1].now_ms += 1_000
        cluster.write(1, 1)
        cluster.replicate(2, 3)
        cluster.nodes[1].lead(leader.Tick())
        cluster.deliver()
    assert cluster.truth().isr == (1, 2, 3)
    cluster.nodes[4].crash(0)
    cluster.nodes[4].start()
    known = cluster.nodes[2].follower
    assert known is not None
    known.high_watermark = 4
    cluster.move_leader(2)
    cluster.tell(1)
    cluster.control(1)
    cluster.tell(2, 4)
    cluster.nodes[4].fetch()
    cluster.deliver()


def controller_that_missed_a_restart(cluster: ModelCluster) -> None:
    """The controller acts on the end of broker 3's lease, not knowing that the leader has restarted since."""
    cluster.make_controller(2)
    cluster.write(1, 3)
    cluster.replicate(2, 3)
    cluster.store.delete(keys.broker(3))
    cluster.tell(2)
    cluster.nodes[1].crash(0)
    cluster.nodes[1].start()
    cluster.do_control(cluster.nodes[2])
    cluster.tell(1)


def replica_that_left_and_came_back(cluster: ModelCluster) -> None:
    """Broker 3 is removed and added again, empty; the leader sees only the end of it."""
    cluster.make_controller(2)
    cluster.write(1, 5)
    cluster.replicate(2, 3)
    cluster.move_partition(2, 1, 2)
    cluster.tell(3)
    assert cluster.nodes[3].log.end == 0
    cluster.move_partition(2, 1, 2, 3)
    cluster.nodes[1].read_everything()
    cluster.deliver()


# -- the list ---------------------------------------------------------------------------------------------------------

MUTANTS = [
    Mutant("R1", "the leader swaps without comparing", ((model, "isr_change", swap_without_compare),), LATE, "OneLeaderPerEpoch"),
    Mutant("R1", "the controller writes without comparing", ((controller, "partition_change", write_without_compare),), LATE, "OneLeaderPerEpoch", seed=17),
    Mutant("R4", "a broker registers without a fence", ((membership, "register", register_unfenced),), LOSSY, "CandidateCompleteness OneLeaderPerEpoch", "os"),
    Mutant("R4", "a leader of an earlier life is confirmed", ((controller, "partition_change", write_without_leader),), controller_that_missed_a_restart, "OneLeaderPerEpoch"),
    Mutant("R9", "the leader takes any epoch", ((Leader, "epoch_refusal", always(None)),), delayed_fetch_of_an_old_epoch, "CandidateCompleteness", min_isr=1),
    Mutant("R9", "the follower takes answers of any epoch", ((Follower, "_counts", counts_any_epoch),), CALM, "NoTruncationBelowHighWatermark EnoughCopies CandidateCompleteness LogMatching"),
    Mutant("R12", "too small an ISR commits", ((Leader, "_isr_is_large_enough", always(True)), (Leader, "_elr_is_covered", always(True))), CALM, "QuorumSuperset EnoughCopies CandidateCompleteness"),
    Mutant("R12", "the leader commits alone", ((Leader, "_reached_by_all", lambda self: self._durable),), CALM, "EnoughCopies CandidateCompleteness"),
    Mutant("R12", "an earlier life of a follower counts", ((ReplicaProgress, "forget", remember_earlier_life),), restarted_follower_that_has_not_fetched, "CandidateCompleteness", "os", 1),
    Mutant("R13", "a member proposed to join is not waited for", ((Leader, "_maximal_isr", lambda self: set(self._isr)),), CALM, "QuorumSuperset CandidateCompleteness"),
    Mutant("R13", "a member proposed to leave is not waited for", ((Leader, "_maximal_isr", lambda self: set(self._proposal.isr if self._proposal else self._isr)),), CALM, "QuorumSuperset EnoughCopies CandidateCompleteness"),
    Mutant("R14", "anyone joins", ((Leader, "_may_join", always(True)),), CALM, "CandidateCompleteness"),
    Mutant("R14", "members join below the start of the epoch", ((Leader, "_may_join", joins_without_epoch_start),), new_leader_that_does_not_know_what_is_committed, "CandidateCompleteness", min_isr=1),
    Mutant("R14", "a follower joins by the fetch of an earlier life", ((model, "isr_change", swap_without_joining), (Leader, "_may_join", joins_from_any_life), (Leader, "_is_from_another_life", always(False))), delayed_fetch_of_an_earlier_life, "CandidateCompleteness", "os", 1),
    Mutant("R16", "an unknown outcome counts as refused", ((Leader, "_keep_in_mind", always(None)),), CALM, "QuorumSuperset CandidateCompleteness"),
    Mutant("R20", "the follower's high watermark passes its end", ((Follower, "_follow_high_watermark", follow_beyond_the_end),), CALM, "LogMatching"),
    Mutant("R22", "the leader does not look for divergence", ((Leader, "_divergence", always(None)),), CALM, "NoTruncationBelowHighWatermark LogMatching CandidateCompleteness EnoughCopies"),
    Mutant("R22", "the follower truncates to its high watermark", ((Follower, "_truncation_point", truncate_to_high_watermark),), CALM, "CandidateCompleteness"),
    Mutant("R27", "every election may be unclean", ((controller, "settle", settle_unclean),), CALM, "CandidateCompleteness LeaderCompleteness"),
    Mutant("R28", "the ELR does not hold back commits", ((Leader, "_elr_is_covered", always(True)),), SHIFTING, "QuorumSuperset CandidateCompleteness", min_isr=1),
    Mutant("R28", "who leaves too small an ISR is forgotten", ((election, "_standing_members", without_elr),), CALM, "SomeoneIsEligible"),
    Mutant("R28", "the ELR is never cleared", ((election, "_standing_members", elr_for_ever), (election, "_next", elr_kept_by_next), (Leader, "_elr_is_covered", always(True))), CALM, "QuorumSuperset CandidateCompleteness"),
    Mutant("R35", "a replica is removed within the epoch", ((reassignment, "_with_replicas", shrink_within_the_epoch), (controller, "complete", complete_within_the_epoch)), replica_that_left_and_came_back, "CandidateCompleteness", min_isr=1),
    Mutant("R29", "a crash counts as a clean stop", ((membership, "loses", always(False)),), LOSSY, "CandidateCompleteness LeaderCompleteness", "os"),
]  # fmt: skip

SEEDS = 200
STEPS = 1000


def run(mutant: Mutant, seed: int) -> None:
    trouble = mutant.trouble
    if callable(trouble):
        brokers = 4 if trouble is new_leader_that_does_not_know_what_is_committed else 3
        calm = Options(brokers, mutant.min_isr, mutant.flush, outcomes_get_lost=False)
        cluster = ModelCluster(seed, calm)
        trouble(cluster)
        cluster.check()
    else:
        ModelCluster(seed, Options(3, mutant.min_isr, mutant.flush, STEPS, weights=trouble)).run()


def first_breach(mutant: Mutant) -> Broken | None:
    for seed in [mutant.seed, *range(1 if callable(mutant.trouble) else SEEDS)]:
        try:
            run(mutant, seed)
        except Broken as broken:
            return broken
    return None


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_model_finds_out(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name, replacement in mutant.patches:
        monkeypatch.setattr(target, name, replacement)
    broken = first_breach(mutant)
    assert broken is not None, f"nothing breaks when {mutant.breaks}"
    assert broken.invariant in mutant.invariants.split(), broken


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if callable(mutant.trouble)], ids=str)
def test_the_real_code_survives_the_story(mutant: Mutant) -> None:
    run(mutant, 0)
