"""R41-R55: every rule is needed. With the code that keeps it replaced by code that does not, a test of the suite fails.

A mutant names the rule, what it breaks, and the test that has to notice: one of the late-request schedules, of the models or
of the unit tests, called here with the break in place. The same tests run unharmed elsewhere in the suite. The rules that
late requests are about (R43, R45-R47, R49) have their switches in the schedules themselves
(test_transactions_late_requests.py).
"""

from __future__ import annotations

import importlib.util
import sys
from collections.abc import Callable
from functools import cache
from pathlib import Path
from types import ModuleType
from typing import Any, NamedTuple

import pytest
import transaction_world
from hypothesis import HealthCheck, Phase, settings
from hypothesis.stateful import RuleBasedStateMachine, run_state_machine_as_test
from transaction_cluster import Cluster, Rules

from headrace.broker.load import Load
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.plan import Plan
from headrace.groups import offsets as group_offsets
from headrace.groups import reconcile, txn_offsets
from headrace.groups.consumer import draft
from headrace.groups.facts import Assigned, GenerationStarted, OffsetsCommitted, OffsetsDropped
from headrace.groups.offset_table import OffsetTable
from headrace.groups.state import ClassicGroup
from headrace.log import compaction
from headrace.log.aborted import AbortedIndex
from headrace.log.parts import LogParts
from headrace.log.producers import ProducerTable
from headrace.log.results import ACCEPT
from headrace.transactions import add, end, expire, state, table
from headrace.transactions.facts import Fencing

TESTS = Path(__file__).parents[1]
Patch = tuple[Any, str, Any]
Finder = Callable[[], None]


class Mutant(NamedTuple):
    rule: str
    breaks: str
    patches: tuple[Patch, ...]
    found_by: Finder

    def __str__(self) -> str:
        return f"{self.rule} {self.breaks}"


# -- the tests that notice ---------------------------------------------------------------------------------------------


@cache
def module(path: str) -> ModuleType:
    name = "mutants_" + path.replace("/", "_").removesuffix(".py")
    spec = importlib.util.spec_from_file_location(name, TESTS / path)
    assert spec is not None and spec.loader is not None
    loaded = sys.modules[name] = importlib.util.module_from_spec(spec)
    spec.loader.exec_module(loaded)
    return loaded


def unit(path: str, name: str, *arguments: Any) -> Finder:
    return lambda: getattr(module(path), name)(*(a() if callable(a) else a for a in arguments))


def transaction(path: str, name: str, *arguments: Any) -> Finder:
    return unit(f"unit/transactions/{path}", name, transaction_world.World, *arguments)


def group_world() -> Any:
    return module("unit/groups/conftest.py").World()


def consumers() -> Any:
    return module("unit/groups/test_consumer_heartbeat.py").Consumers(group_world())


def syncing() -> Any:
    """Generation 1 of m1 (leads) and m2 has started and nobody has synced."""
    world = module("unit/groups/conftest.py").World(initial_rebalance_delay_ms=1_000)
    world.join()
    world.join()
    world.advance(2_000)
    return world


def static_pair() -> Any:
    """A stable group of two static members: instance a leads as m1, instance b follows as m2."""
    world = module("unit/groups/conftest.py").World(initial_rebalance_delay_ms=1_000)
    times = module("unit/groups/test_static_members.py").TIMES
    world.join(instance_id="a", **times)
    world.join(instance_id="b", **times)
    world.advance(2_000)
    world.sync("m1", 1)
    world.sync("m2", 1)
    return world


def model(path: str, name: str, steps: int = 40) -> Finder:
    """A state machine of the property tests, without shrinking: here it only matters that it fails."""

    def run() -> None:
        found: type[RuleBasedStateMachine] = getattr(module(path), name)
        quick = settings(
            max_examples=1_000,
            stateful_step_count=steps,
            deadline=None,
            derandomize=True,
            database=None,
            phases=(Phase.generate,),
            suppress_health_check=list(HealthCheck),
        )
        run_state_machine_as_test(found, settings=quick)

    return run


def schedules(clients: int) -> Finder:
    def run() -> None:
        for seed in range(1_000):
            Cluster(seed, Rules(), clients).run()

    return run


FAILURES = (AssertionError, ExceptionGroup, HeadraceError, KeyError, pytest.fail.Exception)
"""How a test fails; anything else would be a mutant that does not even run."""
SHARDS = "unit/broker/test_shards.py"
GROUPS = model("property/test_groups_model.py", "ClassicGroups")
CONSUMERS = model("property/test_consumer_groups_model.py", "ConsumerGroups", 50)
LOG = model("property/test_log_model.py", "LogMachine", 30)
ONE_CLIENT, TWO_CLIENTS = schedules(1), schedules(2)
LONG = (GROUPS, CONSUMERS, LOG, ONE_CLIENT, TWO_CLIENTS)
"""These run unharmed as tests of their own."""

# -- what the mutants do instead ---------------------------------------------------------------------------------------

_append = Load._append
_complete = ProducerTable.complete
_reconcile = reconcile.reconcile
_refusal = ClassicGroup.refusal
_classic_refusal = group_offsets.classic_refusal


def append_and_open_the_gate(self: Load, *arguments: Any) -> None:
    _append(self, *arguments)
    self._gate_offset = 0


def end_and_keep_the_gate(self: Load, kind: ErrorKind) -> None:
    self._waiters.clear()


async def nobody_is_waited_for(self: Any, *_: Any) -> None:
    pass


def abort_without_a_fence(which: Any, transaction: Any, now_ms: int) -> Any:
    return end._decide(which, transaction, False, now_ms)


def moved_in_memory(transaction: Any, marker_round: int = 0) -> Fencing:
    return Fencing(transaction)


def stable_at_the_high_watermark(self: ProducerTable, high_watermark: int) -> int:
    return high_watermark


def stable_before_the_marker_is_replicated(self: ProducerTable, high_watermark: int) -> int:
    return min([high_watermark, *self._open.values()])


def complete_what_wrote_nothing(
    self: ProducerTable, pid: int, epoch: int, coordinator: int, offset: int, wall_ms: int
) -> int:
    first = _complete(self, pid, epoch, coordinator, offset, wall_ms)
    return offset if first is None else first


def committed_at_once(group_id: str, entries: Any, producer: Any) -> OffsetsCommitted:
    return OffsetsCommitted(group_id, entries)


def anybody_in_a_transaction(*arguments: Any, transactional: bool) -> ErrorKind:
    return ErrorKind.NONE if transactional else _classic_refusal(*arguments, transactional=transactional)


def any_instance(self: ClassicGroup, member_id: str, instance_id: str | None) -> ErrorKind:
    return _refusal(self, member_id, None)


def always(value: Any) -> Callable[..., Any]:
    return lambda *_, **__: value


class AnyNumber(int):
    def __eq__(self, other: object) -> bool:
        return True

    def __ne__(self, other: object) -> bool:
        return False

    __hash__ = int.__hash__


class AnyGeneration:
    """Whoever asks whether a generation is the current one is told yes."""

    def __init__(self, real: Any) -> None:
        self._real = real

    def __get__(self, group: Any, owner: Any) -> Any:
        return AnyNumber(self._real.__get__(group, owner))

    def __set__(self, group: Any, number: int) -> None:
        self._real.__set__(group, int(number))


def without_waiting_for_the_owner(now: Any, target: Any, epoch: int, owned: Any, is_free: Any) -> Any:
    return _reconcile(now, target, epoch, owned, lambda part: True)


def without_waiting_for_the_revocation(now: Any, target: Any, epoch: int, owned: Any, is_free: Any) -> Any:
    return _reconcile(now, target, epoch, frozenset(), is_free)


# -- the list ----------------------------------------------------------------------------------------------------------

MUTANTS = [
    Mutant("R41", "any state follows any", ((table, "check_change", always(None)),), unit("unit/transactions/test_transaction_state.py", "test_r41_apply_refuses_what_is_not_legal")),
    Mutant("R41", "what was prepared is prepared again", ((state, "PREDECESSORS", {**state.PREDECESSORS, state.TransactionState.PREPARE_ABORT: frozenset(state.TransactionState)}),), unit("unit/transactions/test_transaction_state.py", "test_r41_every_pair_of_states", state.TransactionState.PREPARE_COMMIT, state.TransactionState.PREPARE_ABORT)),
    Mutant("R42", "answers do not wait for the journal", ((Load, "_append", append_and_open_the_gate),), unit(SHARDS, "test_replies_and_effects_wait_for_their_facts")),
    Mutant("R42", "decisions are not journaled", ((end, "Moved", moved_in_memory),), ONE_CLIENT),
    Mutant("R42", "what is decided can be asked for as if it were open", ((add, "PREPARED", frozenset()),), ONE_CLIENT),
    Mutant("R43", "a partition takes markers of any coordinator", ((ProducerTable, "check_marker", always(ACCEPT)),), unit("unit/log/test_producers.py", "test_r43_markers_of_older_epochs_and_coordinators")),
    Mutant("R43", "a coordinator that was replaced sends its markers", ((Load, "end", end_and_keep_the_gate),), unit(SHARDS, "test_losing_the_leadership_fails_everybody_who_waits")),
    Mutant("R44", "partitions join in memory only", ((add, "Moved", Fencing),), transaction("test_add_and_verify.py", "test_r44_what_was_added_survives_the_coordinator")),
    Mutant("R44", "partitions join in memory only (schedules)", ((add, "Moved", Fencing),), ONE_CLIENT),
    Mutant("R48", "readers do not stop at open transactions", ((ProducerTable, "last_stable_offset", stable_at_the_high_watermark),), unit("unit/log/test_producers.py", "test_r48_last_stable_offset")),
    Mutant("R48", "a marker counts before it is replicated", ((ProducerTable, "last_stable_offset", stable_before_the_marker_is_replicated),), unit("unit/log/test_producers.py", "test_r48_last_stable_offset")),
    Mutant("R48", "truncation leaves aborted transactions behind", ((AbortedIndex, "truncate", always(None)),), unit("unit/log/test_aborted.py", "test_r48_truncation_makes_transactions_open_again")),
    Mutant("R48", "an aborted transaction that wrote nothing is listed", ((ProducerTable, "complete", complete_what_wrote_nothing),), LOG),
    Mutant("R49", "a new coordinator resumes nothing", ((expire, "resume", always(Plan())),), transaction("test_end.py", "test_r49_a_decision_is_carried_out_by_the_next_coordinator")),
    Mutant("R50", "offsets count before their marker", ((txn_offsets, "TxnOffsetsPending", committed_at_once),), unit("unit/groups/test_txn_offsets.py", "test_r50_pending_offsets_are_invisible_until_the_commit_marker", group_world)),
    Mutant("R50", "pending offsets pass for stable", ((OffsetTable, "is_unstable", always(False)),), unit("unit/groups/test_txn_offsets.py", "test_r50_only_the_partitions_of_the_transaction_are_unstable", group_world)),
    Mutant("R50", "the generation of a transaction's offsets is not checked", ((group_offsets, "classic_refusal", anybody_in_a_transaction),), unit("unit/groups/test_txn_offsets.py", "test_r50_kip_447_the_member_and_generation_are_checked", group_world, {"member_id": "m1", "generation": 0}, ErrorKind.ILLEGAL_GENERATION)),
    Mutant("R51", "a second producer does not fence the first", ((end, "fence_and_abort", abort_without_a_fence),), transaction("test_init_producer.py", "test_r51_an_open_transaction_is_fenced_and_aborted_first")),
    Mutant("R51", "a timeout aborts without a fence", ((expire, "fence_and_abort", abort_without_a_fence),), transaction("test_expiry.py", "test_r51_a_timeout_fences_and_aborts")),
    Mutant("R51", "nobody is fenced (schedules)", ((end, "fence_and_abort", abort_without_a_fence), (expire, "fence_and_abort", abort_without_a_fence)), TWO_CLIENTS),
    Mutant("R52", "open transactions do not hold cleaning back", ((LogParts, "settled", lambda self, upto: upto),), unit("unit/log/test_compaction.py", "test_r52_an_open_transaction_holds_compaction_back")),
    Mutant("R52", "open transactions do not hold retention back", ((LogParts, "settled", lambda self, upto: upto),), unit("unit/log/test_retention.py", "test_r52_nothing_above_the_high_watermark_or_of_an_open_transaction")),
    Mutant("R52", "aborted records win over committed ones", ((compaction._Transactions, "is_aborted", always(False)),), unit("unit/log/test_compaction.py", "test_r52_aborted_data_goes_and_never_supersedes")),
    Mutant("R52", "markers go before their data", ((compaction._Transactions, "end", always(False)),), unit("unit/log/test_compaction.py", "test_r52_aborted_data_goes_and_never_supersedes")),
    Mutant("R53", "commits are not journaled", ((OffsetsCommitted, "durable", False),), unit("unit/groups/test_group_offsets.py", "test_r53_the_commit_and_its_answer_are_one_plan", group_world)),
    Mutant("R53", "deletions of offsets are not journaled", ((OffsetsDropped, "durable", False),), GROUPS),
    Mutant("R53", "commits are answered before they are replicated", ((Load, "_append", append_and_open_the_gate),), unit(SHARDS, "test_replies_and_effects_wait_for_their_facts")),
    Mutant("R53", "a coordinator answers before its journal is committed", ((Load, "_wait_committed", nobody_is_waited_for),), unit(SHARDS, "test_a_fact_that_is_not_journaled_never_was", "refused")),
    Mutant("R54", "any generation may heartbeat, sync and commit", ((ClassicGroup, "generation", AnyGeneration(vars(ClassicGroup)["generation"])),), unit("unit/groups/test_sync.py", "test_refusals", syncing, "m1", 0, {}, ErrorKind.ILLEGAL_GENERATION)),
    Mutant("R54", "strangers are members", ((ClassicGroup, "refusal", always(ErrorKind.NONE)),), GROUPS),
    Mutant("R54", "instances that were replaced are not fenced", ((ClassicGroup, "refusal", any_instance),), unit("unit/groups/test_static_members.py", "test_the_old_member_id_is_fenced_everywhere", static_pair)),
    Mutant("R54", "generations are not journaled", ((GenerationStarted, "durable", False),), GROUPS),
    Mutant("R54", "assignments are not journaled", ((Assigned, "durable", False),), unit("unit/groups/test_sync.py", "test_r54_assignments_are_journaled_before_they_are_handed_out", syncing)),
    Mutant("R55", "a partition is given away while its owner has it", ((draft, "reconcile", without_waiting_for_the_owner),), CONSUMERS),
    Mutant("R55", "nobody is asked to let go", ((draft, "reconcile", without_waiting_for_the_revocation),), unit("unit/groups/test_consumer_heartbeat.py", "test_r55_the_new_member_waits_until_the_old_one_lets_go", consumers)),
]  # fmt: skip


@pytest.mark.parametrize("mutant", MUTANTS, ids=str)
def test_the_suite_notices(mutant: Mutant, monkeypatch: pytest.MonkeyPatch) -> None:
    for target, name, replacement in mutant.patches:
        monkeypatch.setattr(target, name, replacement)
    with pytest.raises(FAILURES):
        mutant.found_by()


@pytest.mark.parametrize("mutant", [mutant for mutant in MUTANTS if mutant.found_by not in LONG], ids=str)
def test_the_real_code_passes(mutant: Mutant) -> None:
    mutant.found_by()
