"""Joining small changes into as few transactions as the coordinator takes."""

from __future__ import annotations

from headrace.cluster.changes import Change, DeleteKey, Expect, PutKey, batched, controller_is


def change(number: int, extra: int = 0) -> Change:
    compares = [controller_is(7), Expect(f"p/{number}", "mod", number)]
    compares += [Expect(f"x/{number}/{index}", "mod", 1) for index in range(extra)]
    return Change(tuple(compares), (PutKey(f"p/{number}", b""),), f"change {number}")


def test_shared_compares_are_sent_once() -> None:
    (joined,) = batched([change(1), change(2)])
    assert joined.compares == (controller_is(7), Expect("p/1", "mod", 1), Expect("p/2", "mod", 2))
    assert joined.ops == (PutKey("p/1", b""), PutKey("p/2", b""))
    assert joined.why == "change 1; change 2"


def test_no_transaction_grows_beyond_the_limit() -> None:
    for extra in (0, 3):
        batches = batched([change(number, extra) for number in range(250)], max_ops=100)
        assert all(len(batch.ops) <= 100 and len(batch.compares) <= 100 for batch in batches)
        assert [op for batch in batches for op in batch.ops] == [
            PutKey(f"p/{number}", b"") for number in range(250)
        ]


def test_reasons_stay_readable() -> None:
    (joined,) = batched([change(number) for number in range(10)])
    assert joined.why == "change 0; change 1; change 2 and 7 more"


def test_nothing_is_nothing() -> None:
    assert batched([]) == []
    assert batched([Change((), (DeleteKey("a"),))]) == [Change((), (DeleteKey("a"),))]
