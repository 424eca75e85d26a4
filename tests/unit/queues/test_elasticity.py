"""Q11: when a queue gets more partitions and when it gives some back, as a pure machine."""

from __future__ import annotations

from headrace.queues.elastic import Elastic, Elasticity, QueuePressure

PLAN = Elastic(
    max_partitions=8, min_partitions=2, rate=100, backlog=1_000, grow_after_ms=5_000, shrink_after_ms=60_000
)


class Queue:
    """A queue whose owner looks at it once a second."""

    def __init__(self, active: int) -> None:
        self.active = active
        self._machine = Elasticity()
        self._now_ms = self._sent = 0
        self.look(0)

    def look(self, per_second: int, ready: int = 0) -> int:
        self._now_ms += 1_000
        self._sent += per_second
        self.active = self._machine.step(PLAN, self.active, QueuePressure(self._sent, ready), self._now_ms)
        return self.active

    def seconds_until_it_changes(self, per_second: int, ready: int = 0, most: int = 200) -> int | None:
        before = self.active
        for second in range(1, most + 1):
            if self.look(per_second, ready) != before:
                return second
        return None


def test_it_doubles_when_it_was_busy_for_long_enough_and_each_change_waits_anew() -> None:
    queue = Queue(2)
    assert queue.seconds_until_it_changes(per_second=201) == 5 and queue.active == 4
    assert queue.seconds_until_it_changes(per_second=401) == 5 and queue.active == 8
    assert queue.seconds_until_it_changes(per_second=10_000) is None, "there are no more"


def test_what_one_partition_should_have_is_not_busy() -> None:
    assert Queue(2).seconds_until_it_changes(per_second=200, ready=2_000) is None


def test_a_backlog_makes_it_grow_too() -> None:
    assert Queue(2).seconds_until_it_changes(per_second=0, ready=2_001) == 5


def test_a_moment_of_rest_starts_the_wait_anew() -> None:
    queue = Queue(2)
    for _ in range(3):
        assert [queue.look(201) for _ in range(4)] == [2] * 4
        assert queue.look(200) == 2


def test_it_halves_when_half_would_not_be_half_busy_for_long_enough() -> None:
    queue = Queue(8)
    assert queue.seconds_until_it_changes(per_second=200, ready=2_000) == 60 and queue.active == 4
    assert queue.seconds_until_it_changes(per_second=101) is None, "two would be more than half busy"
    assert queue.seconds_until_it_changes(per_second=0, ready=1_001) is None
    assert queue.seconds_until_it_changes(per_second=100, ready=1_000) == 60 and queue.active == 2
    assert queue.seconds_until_it_changes(per_second=0) is None, "not below what it has at least"


def test_a_moment_of_load_starts_the_wait_anew() -> None:
    queue = Queue(4)
    for busy in (101, 500):
        assert [queue.look(0) for _ in range(59)] == [4] * 59
        assert queue.look(busy) == 4


def test_its_bounds_hold_at_once_and_time_that_stands_still_tells_nothing() -> None:
    machine = Elasticity()
    assert machine.step(PLAN, 1, QueuePressure(0, 0), 1_000) == 2
    assert machine.step(PLAN, 16, QueuePressure(0, 0), 2_000) == 8
    assert machine.step(PLAN, 4, QueuePressure(10**9, 10**9), 2_000) == 4


def test_what_was_ever_sent_may_begin_anew() -> None:
    """Another partition is counted, or the owner changed: less than before is no load."""
    machine = Elasticity()
    machine.step(PLAN, 2, QueuePressure(10**6, 0), 1_000)
    assert [machine.step(PLAN, 2, QueuePressure(0, 0), 1_000 * second) for second in range(2, 12)] == [2] * 10


def test_a_plan_that_can_not_be_kept_is_refused() -> None:
    assert Elastic(1).problem() is None and Elastic(1_000, 1_000).problem() is None
    for plan in (Elastic(0), Elastic(1_001), Elastic(2, 3), Elastic(2, 0)):
        assert "min_partitions" in (plan.problem() or "")
    for plan in (Elastic(2, rate=0), Elastic(2, backlog=0)):
        assert "at least 1" in (plan.problem() or "")
    for plan in (Elastic(2, grow_after_ms=-1), Elastic(2, shrink_after_ms=-1)):
        assert "negative" in (plan.problem() or "")
    assert Elastic(2, rate=1, backlog=1, grow_after_ms=0, shrink_after_ms=0).problem() is None
