"""Topics that come to be by their name (A4, F21)."""

from __future__ import annotations

from headrace.broker.auto_creation import AutoCreation


def test_an_address_has_an_allowance_that_fills_up_again_f21() -> None:
    allowance = AutoCreation(True, at_once=3, per_second=2)
    assert [allowance.take("a", 0) for _ in range(5)] == [True, True, True, False, False]
    assert allowance.take("b", 0), "another address has its own"
    assert [allowance.take("a", 500), allowance.take("a", 500)] == [True, False]
    assert [allowance.take("a", 100_000) for _ in range(4)] == [True, True, True, False]
