"""R7: our belief in a lease ends before the coordinator's."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from headrace.coordinator.lease import LeaseTerm
from headrace.coordinator.port import KeyLease
from headrace.coordinator.store import RevisionedStore


def test_r7_counts_from_sending_less_a_margin() -> None:
    term = LeaseTerm(KeyLease(1, 6_000), sent_ms=1_000)
    assert term.deadline_ms == 1_000 + 6_000 - 600
    assert term.holds(6_399) and not term.holds(6_400)
    assert (term.keep_alive_at_ms, term.keep_alive_timeout_ms) == (3_000, 2_000)
    term.answered(sent_ms=3_000, remaining_ms=6_000)
    assert term.holds(8_399) and not term.holds(8_400)
    term.answered(sent_ms=2_000, remaining_ms=6_000)  # an answer that was overtaken
    assert term.deadline_ms == 8_400


def test_a_lease_that_is_gone_never_comes_back() -> None:
    term = LeaseTerm(KeyLease(1, 6_000), sent_ms=0)
    term.answered(sent_ms=10, remaining_ms=0)
    term.answered(sent_ms=20, remaining_ms=6_000)
    assert term.lost and not term.holds(21)


@given(
    st.lists(
        st.tuples(st.integers(0, 400), st.integers(0, 400), st.booleans(), st.integers(0, 400)), max_size=20
    )
)
def test_r7_whenever_we_believe_the_coordinator_agrees(
    steps: list[tuple[int, int, bool, int]],
) -> None:
    """With any delay on the way there, any loss, and any delay on the way back."""
    store = RevisionedStore()
    now = 0
    lease = store.grant(1_000, now)
    term = LeaseTerm(lease, sent_ms=now)
    for there_ms, back_ms, lost, pause_ms in steps:
        sent = now
        now += there_ms
        store.expire(now)
        remaining = store.keep_alive(lease.id, now)
        now += back_ms
        store.expire(now)
        if not lost:
            term.answered(sent, remaining)
        now += pause_ms
        store.expire(now)
        if term.holds(now):
            assert store.next_expiry_ms() is not None
