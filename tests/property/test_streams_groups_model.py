"""Streams groups with lost answers, silent and killed instances, dying coordinators and changing settings (KIP-1071, F37).

Always: no active task is in the hands of two threads and no process has a task twice (R55), counted in the clients' own
hands and not only in the coordinator's books; epochs only grow (R54). In the end, when nothing is lost any more, every
task has one thread that works on it, and loads differ by one at most.
"""

from __future__ import annotations

from typing import Any

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, invariant, rule
from streams_apps import COUNT, INTERNAL, topic_infos

from headrace.core.errors import ErrorKind
from headrace.core.plan import JournalRecord, Plan
from headrace.groups.commands import ConfigsChanged
from headrace.groups.config import GroupConfig, StreamsSettings
from headrace.groups.consumer.commands import TopicsChanged
from headrace.groups.shard import GroupShard
from headrace.groups.streams.commands import StreamsGroupHeartbeat, TasksByRole
from headrace.groups.streams.members import Role, Task, Tasks, as_tasks, of_role

THREADS = {"a1": "a", "a2": "a", "b1": "b", "c1": "c"}
"""Threads and the processes that they are of."""
WORDS = {"words": 4, **INTERNAL}


class Thread:
    def __init__(self, name: str) -> None:
        self.name, self.process = name, THREADS[name]
        self.lives = 0
        self.reset()

    def reset(self) -> None:
        self.lives += 1
        self.member_id = f"{self.name}-{self.lives}"
        self.epoch: int | None = None
        self.owned: Tasks = frozenset()
        self.told: Tasks = frozenset()
        self.must_report = True


class StreamsGroups(RuleBasedStateMachine):
    def __init__(self) -> None:
        super().__init__()
        self.now_ms = 0
        self.shard = GroupShard(GroupConfig())
        self.journal: list[JournalRecord] = []
        self.threads = {name: Thread(name) for name in THREADS}
        self.standbys = 0
        self.waiters = 0
        self.replies: dict[int, Any] = {}
        self.topics = WORDS
        self.highest_epoch = 0
        self.change_topics(WORDS)

    # --- driver ----------------------------------------------------------------------------------------------

    def submit(self, make: Any) -> Any:
        self.waiters += 1
        self.run(self.shard.decide(make(self.waiters), self.now_ms))
        return self.replies.pop(self.waiters)

    def run(self, plan: Plan) -> None:
        for fact in plan.facts:
            self.shard.apply(fact, self.now_ms)
            if fact.durable:
                self.journal += self.shard.encode(fact)
        self.replies.update(plan.replies)
        self.shard.invariants()

    def change_topics(self, counts: dict[str, int]) -> None:
        self.topics = counts
        infos = topic_infos(**counts)
        self.submit(lambda w: TopicsChanged(infos, waiter=w))

    @property
    def group(self) -> Any:
        return self.shard.table.groups.get("app")

    # --- clients ---------------------------------------------------------------------------------------------

    def beat(self, thread: Thread, lost: bool = False) -> None:
        joins = thread.epoch is None
        fields: dict[str, Any] = {}
        if joins:
            fields = {
                "topology": COUNT,
                "rebalance_timeout_ms": 60_000,
                "process_id": thread.process,
                "owned": TasksByRole(),
            }
        elif thread.must_report or (thread.owned == thread.told):
            # It reports when it has done as it was told, or when it can't know what it was told.
            fields = {"owned": TasksByRole(*(of_role(thread.owned, role) for role in Role))}
            thread.told = thread.owned
        wanted = StreamsSettings(
            standby_replicas=self.standbys, initial_rebalance_delay_ms=0, assignment_interval_ms=0
        )
        self.submit(lambda w: ConfigsChanged(GroupConfig(streams=wanted), {}, waiter=w))
        answer = self.submit(
            lambda w: StreamsGroupHeartbeat("app", thread.member_id, thread.epoch or 0, **fields, waiter=w)
        )
        if lost:
            thread.must_report = True
            return
        if answer.error in (ErrorKind.FENCED_MEMBER_EPOCH, ErrorKind.UNKNOWN_MEMBER_ID):
            thread.owned = thread.told = frozenset()
            thread.epoch = None
            return
        assert answer.error is ErrorKind.NONE, answer
        thread.epoch, thread.must_report = answer.member_epoch, False
        if answer.tasks is not None:
            pairs = zip(Role, answer.tasks, strict=True)
            thread.told = frozenset(task for role, lists in pairs for task in as_tasks(role, lists))

    def obey(self, thread: Thread) -> None:
        thread.owned = thread.told

    @rule(name=st.sampled_from(sorted(THREADS)), lost=st.booleans())
    def heartbeat(self, name: str, lost: bool) -> None:
        self.beat(self.threads[name], lost)

    @rule(name=st.sampled_from(sorted(THREADS)))
    def does_as_it_was_told(self, name: str) -> None:
        self.obey(self.threads[name])

    @rule(name=st.sampled_from(sorted(THREADS)))
    def leaves(self, name: str) -> None:
        thread = self.threads[name]
        if thread.epoch is not None:
            thread.owned = frozenset()
            self.submit(lambda w: StreamsGroupHeartbeat("app", thread.member_id, -1, waiter=w))
            thread.reset()

    @rule(name=st.sampled_from(sorted(THREADS)))
    def is_killed(self, name: str) -> None:
        self.threads[name].reset()

    @rule()
    def time_passes_and_the_silent_are_out(self) -> None:
        """Nobody has anything any more whose session is over: clients stop before the coordinator gives up on them."""
        for thread in self.threads.values():
            thread.owned = thread.told = frozenset()
            thread.must_report = True
        end_ms = self.now_ms + 61_000
        while (at_ms := self.shard.next_deadline()) is not None and at_ms <= end_ms:
            self.now_ms = max(self.now_ms, at_ms)
            self.run(self.shard.expire(self.now_ms))
        self.now_ms = end_ms

    @rule(standbys=st.integers(0, 2))
    def an_administrator_wants_standbys(self, standbys: int) -> None:
        self.standbys = standbys

    @rule()
    def the_topics_go_and_come(self) -> None:
        self.change_topics({"words": 4} if self.topics is WORDS else WORDS)

    @rule()
    def the_coordinator_dies(self) -> None:
        self.now_ms += 10
        self.shard = GroupShard(GroupConfig())
        for record in self.journal:
            self.shard.replay(record, self.now_ms)
        self.run(self.shard.loaded(self.now_ms))
        self.change_topics(self.topics)

    @invariant()
    def nobody_works_on_what_another_works_on(self) -> None:
        active: dict[Any, str] = {}
        copies: dict[Any, str] = {}
        for thread in self.threads.values():
            for task in thread.owned:
                if task.role is Role.ACTIVE:
                    other = active.setdefault(task[1:], thread.name)
                    assert other == thread.name, f"R55: {task} is with {other} and {thread.name}"
                key = (thread.process, *task[1:])
                other = copies.setdefault(key, thread.name)
                assert other == thread.name, f"process {thread.process} has {task} twice"

    @invariant()
    def epochs_grow(self) -> None:
        if self.group is None:  # empty for so long that it was forgotten
            self.highest_epoch = 0
        else:
            assert self.group.epoch >= self.highest_epoch
            self.highest_epoch = self.group.epoch

    def teardown(self) -> None:
        if self.topics is not WORDS:
            self.change_topics(WORDS)
        self.time_passes_and_the_silent_are_out()
        for thread in self.threads.values():
            thread.epoch = None
        for _ in range(12):
            for thread in self.threads.values():
                self.beat(thread)
                self.obey(thread)
                self.nobody_works_on_what_another_works_on()
        held = [task for thread in self.threads.values() for task in thread.owned]
        active = sorted(task for task in held if task.role is Role.ACTIVE)
        assert active == sorted(Task(Role.ACTIVE, sub, n) for sub in "01" for n in range(4))
        standby = [task for task in held if task.role is Role.STANDBY]
        assert len(standby) == 4 * self.standbys, "three processes have room for two standbys"
        loads = [sum(t.role is Role.ACTIVE for t in thread.owned) for thread in self.threads.values()]
        assert max(loads) - min(loads) <= 1
        assert self.group.state_name == "Stable"


StreamsGroups.TestCase.settings = settings(max_examples=60, stateful_step_count=40, deadline=None)
TestStreamsGroups = StreamsGroups.TestCase
