"""F27: housekeeping looks where something has happened, and nowhere else."""

from __future__ import annotations

from headrace.broker.watchlist import Watchlist


class Place:
    def __init__(self) -> None:
        self.deadline_ms: int | None = 100
        self.looked = 0

    @property
    def has_waiting(self) -> bool:
        return self.deadline_ms is not None

    def expire_waiting(self, now_ms: int) -> None:
        self.looked += 1
        if self.deadline_ms is not None and now_ms >= self.deadline_ms:
            self.deadline_ms = None


def test_f27_who_waits_is_told_in_time_and_then_not_looked_at_again() -> None:
    watchlist: Watchlist[Place] = Watchlist()
    place, other = Place(), Place()
    watchlist.waiting[place] = None
    watchlist.overdue(99)
    assert place.has_waiting
    watchlist.overdue(100)
    assert not place.has_waiting and other.looked == 0
    watchlist.overdue(101)
    assert place.looked == 2 and not watchlist.waiting
    place.deadline_ms = 200
    watchlist.waiting[place] = None
    watchlist.overdue(300)
    assert not place.has_waiting


def test_f27_what_has_moved_is_looked_at_once() -> None:
    watchlist: Watchlist[Place] = Watchlist()
    first, second = Place(), Place()
    watchlist.moved[first] = watchlist.moved[second] = watchlist.moved[first] = None
    watchlist.forget(second)
    assert watchlist.take_moved() == [first]
    assert watchlist.take_moved() == []
