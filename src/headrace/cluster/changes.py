"""Machine: what a decision asks of the coordinator, as plain values: one Change is one transaction.

Invariant: every change is guarded by compares, never read-then-put (R1). A change that is refused has done nothing;
one whose outcome is unknown must be re-read before anyone acts on it (R5).
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Literal, NamedTuple

from headrace.cluster import keys

MAX_OPS_PER_TRANSACTION = 100
"""etcd refuses more than 128 compares or operations in one transaction by default."""

CompareTarget = Literal["mod", "create", "value"]


class Expect(NamedTuple):
    """`mod` and `create` expect a revision (0 = the key does not exist); `value` expects the exact bytes."""

    key: str
    target: CompareTarget
    expected: int | bytes


class PutKey(NamedTuple):
    key: str
    value: bytes
    lease: int = 0


class DeleteKey(NamedTuple):
    key: str


Op = PutKey | DeleteKey


class Change(NamedTuple):
    """One transaction: if every compare holds, every op is applied. `why` is for people who read the log."""

    compares: tuple[Expect, ...]
    ops: tuple[Op, ...]
    why: str = ""


def controller_is(epoch: int) -> Expect:
    """R1: a zombie controller's transactions fail. The controller key is created once and never updated."""
    return Expect(keys.CONTROLLER, "create", epoch)


def absent(key: str) -> Expect:
    return Expect(key, "create", 0)


def batched(changes: Iterable[Change], max_ops: int = MAX_OPS_PER_TRANSACTION) -> list[Change]:
    """Join small independent changes into as few transactions as the coordinator takes.

    One refused compare refuses its whole batch; the caller decides again from a fresh image, so nothing is lost.
    Changes whose order matters (topic creation) must not be batched.
    """
    batches: list[Change] = []
    compares: dict[Expect, None] = {}
    ops: list[Op] = []
    reasons: dict[str, None] = {}
    for change in changes:
        grown = len(compares.keys() | set(change.compares))
        if ops and (len(ops) + len(change.ops) > max_ops or grown > max_ops):
            batches.append(_joined(compares, ops, reasons))
            compares, ops, reasons = {}, [], {}
        compares.update(dict.fromkeys(change.compares))
        ops.extend(change.ops)
        reasons[change.why] = None
    if ops:
        batches.append(_joined(compares, ops, reasons))
    return batches


def _joined(compares: dict[Expect, None], ops: Sequence[Op], reasons: dict[str, None]) -> Change:
    shown = list(reasons)
    more = f" and {len(shown) - 3} more" if len(shown) > 3 else ""
    return Change(tuple(compares), tuple(ops), "; ".join(shown[:3]) + more)
