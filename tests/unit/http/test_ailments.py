"""What is not well, and since when: for who asks late too."""

from __future__ import annotations

from types import SimpleNamespace
from typing import Any

from headrace.cluster.deltas import PartitionChanged, TopicGone
from headrace.http.ailments import Ailments
from headrace.http.health import Degraded


class Wall:
    wall = 1_000

    def wall_ms(self) -> int:
        return self.wall


def state(leader: int, replicas: tuple[int, ...], isr: tuple[int, ...]) -> Any:
    return SimpleNamespace(leader=leader, replicas=replicas, isr=isr)


ORDERS: Any = SimpleNamespace(id=b"o" * 16, name="orders")


def ailments(look: dict[str, str | None], partitions: list[Any] | None = None) -> tuple[Ailments, Wall]:
    clock, image = Wall(), SimpleNamespace(all_partitions=lambda: partitions or [])
    made: Any = Ailments(clock, image, lambda: look)  # type: ignore[arg-type]
    return made, clock


def changed(number: int, new: Any) -> PartitionChanged:
    return PartitionChanged(ORDERS, number, None, new, 1)


def test_since_when_is_not_when_somebody_asked() -> None:
    look: dict[str, str | None] = {"disk": None, "loop": Degraded("it stood still")}
    found, clock = ailments(look)
    assert found.found() == {}, "a moment's trouble is no state"
    look["disk"] = "nearly full"
    clock.wall = 5_000
    found.tick()
    clock.wall = 65_000
    assert found.found() == {"disk": ("nearly full", 5_000)}
    look["disk"] = None
    found.tick()
    look["disk"] = "nearly full"
    clock.wall = 70_000
    assert found.found() == {"disk": ("nearly full", 70_000)}, "what comes back begins anew"


def test_partitions_are_counted_as_the_metadata_changes() -> None:
    found, clock = ailments({}, [(ORDERS, 0, state(1, (1, 2), (1, 2)))])
    clock.wall = 2_000
    found.heard([changed(0, state(-1, (1, 2), (2,))), changed(1, state(2, (2, 3), (2,)))])
    clock.wall = 9_000
    found.heard([changed(2, state(-1, (3,), ()))])
    told = found.found()
    assert told["leaders"] == ("2 partitions without a leader (held by brokers 1, 2, 3)", 2_000)
    assert told["in sync"] == ("1 partition with a replica that is not in sync (it is at broker 3)", 2_000)
    found.heard([changed(0, state(2, (1, 2), (2, 1))), changed(2, state(3, (3,), (3,)))])
    assert list(found.found()) == ["in sync"]
    found.heard([TopicGone("orders", ORDERS.id, 3)])
    assert found.found() == {}


def test_what_was_not_well_before_it_began_is_known() -> None:
    found, _ = ailments({}, [(ORDERS, 0, state(-1, (3,), ()))])
    assert found.found() == {"leaders": ("1 partition without a leader (held by broker 3)", 1_000)}
