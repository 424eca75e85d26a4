"""Back-off, circuit, concurrency, rate, verdicts, the log: given the time and the draws, no clock and no dice."""

from __future__ import annotations

import heapq
from email.utils import formatdate

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.push.backoff import MAX_RETRY_AFTER_MS, RetryPolicy, retry_after_ms
from headrace.push.circuit import Circuit, CircuitRules
from headrace.push.concurrency import ConcurrencyLimit
from headrace.push.delivery_log import Attempt, DeliveryLog, shown_text
from headrace.push.rate import RateCap
from headrace.push.verdict import PushOutcome, judge, why

# -- back-off ----------------------------------------------------------------------------------------------------------


def test_gaps_grow_and_end_at_the_maximum() -> None:
    policy = RetryPolicy(initial_ms=1_000, multiplier=2, max_ms=60_000, jitter=0)
    gaps = [policy.delay_ms(attempt, 0.5) for attempt in range(1, 10)]
    assert gaps == [1_000, 2_000, 4_000, 8_000, 16_000, 32_000, 60_000, 60_000, 60_000]
    assert policy.delay_ms(100_000, 0.5) == 60_000


@given(st.integers(1, 1000), st.floats(0, 1, exclude_max=True), st.none() | st.integers(0, 10**9))
def test_jitter_takes_off_at_most_its_part_and_retry_after_is_never_undercut(
    attempt: int, draw: float, asked: int | None
) -> None:
    policy = RetryPolicy(initial_ms=500, multiplier=3, max_ms=90_000, jitter=0.3)
    whole = RetryPolicy(500, 3, 90_000, 0.0).delay_ms(attempt, 0.0)
    delay = policy.delay_ms(attempt, draw, asked)
    floor = min(asked or 0, MAX_RETRY_AFTER_MS)
    assert delay >= floor
    assert int(whole * 0.7) <= delay <= max(whole, floor)
    assert delay == policy.delay_ms(attempt, draw, asked), "the same draw gives the same gap"


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("120", 120_000),
        (" 0 ", 0),
        ("", None),
        ("-1", None),
        ("soon", None),
        ("1e3", None),
        ("٣", None),
        ("999999999", MAX_RETRY_AFTER_MS),
        (formatdate(1_000, usegmt=True), 900_000),
        (formatdate(50, usegmt=True), None),
        ("Sun, 99 Nov 2026 00:00:00 GMT", None),
    ],
)
def test_retry_after(text: str, expected: int | None) -> None:
    assert retry_after_ms(text, wall_ms=100_000) == expected


# -- circuit -----------------------------------------------------------------------------------------------------------

RULES = CircuitRules(failures=3, rest=RetryPolicy(1_000, 2.0, 8_000, 0.0))


def fail(circuit: Circuit, now_ms: int, times: int = 1) -> None:
    for _ in range(times):
        circuit.failed(circuit.began(), now_ms, 0.0)


def test_failures_in_a_row_open_it_and_one_success_begins_the_count_again() -> None:
    circuit = Circuit(RULES)
    fail(circuit, 0, 2)
    circuit.succeeded(circuit.began())
    fail(circuit, 0, 2)
    assert circuit.state.value == "closed"
    fail(circuit, 0)
    assert circuit.state.value == "open"
    assert circuit.permits(999) == 0 and circuit.wait_ms(400) == 600


def test_one_probe_decides_and_the_rest_grows() -> None:
    circuit = Circuit(RULES)
    fail(circuit, 0, 3)
    at = 0
    for rest in (1_000, 2_000, 4_000, 8_000, 8_000):
        assert circuit.wait_ms(at) == rest
        at += rest
        assert circuit.permits(at) == 1
        probe = circuit.began()
        assert circuit.permits(at) == 0, "one at a time"
        assert circuit.failed(probe, at, 0.0)
    at += 8_000
    assert circuit.permits(at) == 1
    circuit.succeeded(circuit.began())
    assert circuit.state.value == "closed" and circuit.permits(at) > 1000
    fail(circuit, at, 3)
    assert circuit.wait_ms(at) == 1_000, "after a success it begins small again"


def test_late_answers_from_before_say_nothing() -> None:
    circuit = Circuit(RULES)
    early = [circuit.began() for _ in range(5)]
    fail(circuit, 0, 3)
    circuit.succeeded(early[0])
    assert circuit.state.value == "open"
    assert circuit.permits(1_000) == 1
    circuit.began()
    circuit.failed(early[1], 1_000, 0.0)
    assert circuit.state.value == "half_open" and circuit.permits(1_000) == 0


def test_a_probe_that_is_abandoned_lets_another_go() -> None:
    circuit = Circuit(RULES)
    fail(circuit, 0, 3)
    assert circuit.permits(1_000) == 1
    circuit.abandoned(circuit.began())
    assert circuit.permits(1_000) == 1


def test_retry_after_holds_without_breaking() -> None:
    circuit = Circuit(RULES)
    circuit.hold(5_000)
    assert circuit.state.value == "closed" and circuit.permits(4_999) == 0
    assert circuit.permits(5_000) > 1000
    circuit.hold(9_000)
    circuit.reset()
    assert circuit.permits(5_001) > 1000, "a person says that it works now"


# -- concurrency -------------------------------------------------------------------------------------------------------


class Endpoint:
    """`capacity` requests at once take `base_ms`; more of them take longer for everybody. Virtual time."""

    def __init__(self, limit: ConcurrencyLimit) -> None:
        self.limit = limit
        self.now_ms = 0
        self.running: list[tuple[int, int]] = []
        self.most = 0

    def run(self, until_ms: int, capacity: int, base_ms: int, fails: bool = False) -> int:
        done = 0
        while self.now_ms < until_ms:
            while len(self.running) < self.limit.limit:
                load = max(1.0, (len(self.running) + 1) / capacity)
                heapq.heappush(self.running, (self.now_ms + int(base_ms * load), self.now_ms))
            self.most = max(self.most, len(self.running))
            end, began = self.running[0]
            self.now_ms = end
            if fails:
                self.limit.failed(end - began, end)
            else:
                self.limit.succeeded(end - began, len(self.running), end)
            heapq.heappop(self.running)
            done += 1
        return done


def test_it_slows_down_for_a_slow_endpoint_and_speeds_up_again() -> None:
    """D2: never drowned, and not forgotten either."""
    world = Endpoint(ConcurrencyLimit(64))
    world.run(4_000, capacity=1_000, base_ms=40)
    assert world.limit.limit == 64
    world.run(100_000, capacity=1_000, base_ms=3_000)
    assert world.limit.limit <= 4
    world.run(112_000, capacity=1_000, base_ms=40)
    assert world.limit.limit >= 32


def test_it_finds_what_the_endpoint_can_take() -> None:
    world = Endpoint(ConcurrencyLimit(256))
    world.run(60_000, capacity=8, base_ms=100)
    world.most = 0
    world.run(120_000, capacity=8, base_ms=100)
    assert world.limit.limit >= 6 and world.most <= 48, "a few times what it does at once, not 256"


def test_failures_bring_it_down_to_one_at_a_time() -> None:
    world = Endpoint(ConcurrencyLimit(64))
    world.run(5_000, capacity=1_000, base_ms=10)
    world.run(10_000, capacity=1_000, base_ms=100, fails=True)
    assert world.limit.limit == 1


def test_a_burst_of_bad_news_is_one_piece_of_news() -> None:
    limit = ConcurrencyLimit(64, initial=32)
    for _ in range(32):
        limit.failed(200, 1_000)
    assert limit.limit == 16


def test_a_limit_that_is_not_used_does_not_grow() -> None:
    limit = ConcurrencyLimit(64, initial=10)
    for now in range(1000):
        limit.succeeded(5, 1, now)
    assert limit.limit == 10


@given(
    st.integers(1, 100),
    st.lists(
        st.tuples(st.booleans(), st.integers(0, 30_000), st.integers(0, 300), st.integers(0, 5_000)),
        max_size=60,
    ),
)
def test_the_limit_stays_within_its_bounds(maximum: int, news: list[tuple[bool, int, int, int]]) -> None:
    limit, now_ms = ConcurrencyLimit(maximum), 0
    for ok, latency_ms, in_flight, passed_ms in news:
        now_ms += passed_ms
        limit.succeeded(latency_ms, in_flight, now_ms) if ok else limit.failed(latency_ms, now_ms)
        assert 1 <= limit.limit <= maximum


# -- rate --------------------------------------------------------------------------------------------------------------


@given(st.floats(0.5, 500), st.lists(st.integers(0, 400), min_size=1, max_size=200))
def test_the_rate_is_never_exceeded_beyond_its_burst(rate: float, gaps: list[int]) -> None:
    cap, now_ms, sent = RateCap(rate, 0), 0, 0
    for gap in gaps:
        now_ms += gap
        count = cap.permits(now_ms)
        cap.took(count)
        sent += count
        assert sent <= max(1.0, rate * 0.25) + now_ms / 1000 * rate + 1e-6
    wait = cap.wait_ms(now_ms)
    assert cap.permits(now_ms + wait) >= 1 or wait == 0


def test_no_rate_is_no_cap() -> None:
    cap = RateCap(0, 0)
    cap.took(10_000)
    assert cap.permits(0) > 1_000 and cap.wait_ms(0) == 0


# -- verdicts and the log ----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("status", "outcome", "endpoint_failed"),
    [
        (200, PushOutcome.DELIVERED, False),
        (204, PushOutcome.DELIVERED, False),
        (299, PushOutcome.DELIVERED, False),
        (301, PushOutcome.FAILED, True),
        (302, PushOutcome.FAILED, True),
        (400, PushOutcome.FAILED, False),
        (404, PushOutcome.FAILED, True),
        (410, PushOutcome.GONE, False),
        (422, PushOutcome.FAILED, False),
        (429, PushOutcome.FAILED, True),
        (500, PushOutcome.FAILED, True),
        (503, PushOutcome.FAILED, True),
    ],
)
def test_what_an_answer_means(status: int, outcome: PushOutcome, endpoint_failed: bool) -> None:
    assert judge(status) == (outcome, endpoint_failed)
    assert ("redirect" in why(status)) == (300 <= status < 400)


def attempt(number: int, outcome: str = "delivered") -> Attempt:
    return Attempt(str(number), number, "m", 2, "t", 0, number, 1, outcome, 200, 1, "", 0)


def test_the_log_is_a_ring() -> None:
    log = DeliveryLog(kept=10)
    for number in range(1000):
        log.add(attempt(number, "failed" if number % 2 else "delivered"))
    assert [entry.id for entry in log.newest()] == [str(number) for number in range(999, 989, -1)]
    assert all(entry.outcome == "failed" for entry in log.newest(3, failed_only=True))
    assert (log.delivered, log.failed) == (1000, 500)
    assert log.find("995") is not None and log.find("5") is None


def test_x28_what_an_endpoint_says_moves_no_cursor() -> None:
    assert shown_text(b"\x1b[2Jno\r\n\x00" + b"x" * 5000).isprintable()
    assert len(shown_text(b"\xff" * 5000)) <= 200
