"""Public: what tests of messages say again and again: in the end, exactly these, and nothing left."""

from __future__ import annotations

import asyncio
import time
from collections import Counter
from collections.abc import Awaitable, Callable, Iterable
from typing import Any, TypeVar

T = TypeVar("T")

WITHIN_S = 10.0
LOOK_AGAIN_S = 0.01
SHOWN = 5


def eventually(look: Callable[[], T], within: float = WITHIN_S) -> T:
    """What `look` returns as soon as that is true and it raises no AssertionError; what kept it from it when the time is up."""
    deadline = time.monotonic() + within
    while True:
        is_over = time.monotonic() >= deadline
        try:
            if found := look():
                return found
            problem = AssertionError(f"still {found!r} after {within:g} s")
        except AssertionError as error:
            problem = error
        if is_over:
            raise problem
        time.sleep(LOOK_AGAIN_S)


async def eventually_async(look: Callable[[], Awaitable[T]], within: float = WITHIN_S) -> T:
    """`eventually` for a coroutine function."""
    deadline = time.monotonic() + within
    while True:
        is_over = time.monotonic() >= deadline
        try:
            if found := await look():
                return found
            problem = AssertionError(f"still {found!r} after {within:g} s")
        except AssertionError as error:
            problem = error
        if is_over:
            raise problem
        await asyncio.sleep(LOOK_AGAIN_S)


def received_exactly(received: Iterable[Any], expected: Iterable[Any], *, in_order: bool = False) -> bool:
    """Each as often as expected and nothing else; AssertionError with what is missing, twice, or nobody's.

    It returns True, so that `eventually(lambda: received_exactly(...))` waits for it.
    """
    got, wanted = list(received), list(expected)
    have, want = Counter(map(_key, got)), Counter(map(_key, wanted))
    complaints = [
        *_complaint("missing", want - have),
        *_complaint("too often", Counter({one: n for one, n in (have - want).items() if one in want})),
        *_complaint("unexpected", Counter({one: n for one, n in (have - want).items() if one not in want})),
    ]
    if not complaints and in_order and got != wanted:
        at = next(place for place, (one, other) in enumerate(zip(got, wanted, strict=True)) if one != other)
        complaints = [f"in another order from number {at} on: {got[at]!r} instead of {wanted[at]!r}"]
    if complaints:
        raise AssertionError(f"{len(got)} received, {len(wanted)} expected; " + "; ".join(complaints))
    return True


def _key(value: Any) -> Any:
    """Lists and dictionaries can't be counted as they are."""
    try:
        hash(value)
    except TypeError:
        return repr(value)
    return value


def _complaint(what: str, counted: Counter[Any]) -> list[str]:
    if not counted:
        return []
    shown = [f"{one!r}" + (f" ({n} times)" if n > 1 else "") for one, n in list(counted.items())[:SHOWN]]
    more = f" and {len(counted) - SHOWN} more" if len(counted) > SHOWN else ""
    return [f"{what}: {', '.join(shown)}{more}"]
