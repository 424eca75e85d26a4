"""Who may connect, and who makes room (X14, F26)."""

from __future__ import annotations

from typing import Any

from headrace.cluster.configs import BrokerLayers
from headrace.kafka.admission import PROBATION_MS, RESERVED, Admission, read_limits


class Caller:
    """A connection, as far as a door looks at it."""

    def __init__(
        self, host: str = "10.0.0.1", idle_since_ms: int | None = 0, is_broker: bool = False
    ) -> None:
        self.host = host
        self.idle_since_ms = idle_since_ms
        self.is_broker = is_broker
        self.closed = False

    def close(self) -> None:
        self.closed = True


def door(**configs: str) -> Admission:
    layers = BrokerLayers({name.replace("_", "."): value for name, value in configs.items()})
    return Admission(lambda: layers)


def come(admission: Admission, *callers: Caller, now_ms: int = 10_000) -> list[bool]:
    return [admission.admit(caller, now_ms) for caller in callers]  # type: ignore[arg-type]


def test_the_longest_idle_of_the_same_address_makes_room_f26() -> None:
    admission = door(max_connections_per_ip="3")
    other = Caller("10.0.0.2", 0)
    held = [Caller(idle_since_ms=at) for at in (500, 300, 400)]
    come(admission, other, *held)
    assert come(admission, Caller()) == [True]
    assert [caller.closed for caller in (other, *held)] == [False, False, True, False]


def test_a_full_door_takes_room_from_the_address_with_the_most_f26() -> None:
    admission = door(max_connections="4")
    few, many = Caller("10.0.0.2", 0), [Caller(idle_since_ms=at) for at in (1, 2, 3)]
    come(admission, few, *many)
    assert come(admission, Caller("10.0.0.3")) == [True]
    assert not few.closed and [caller.closed for caller in many] == [True, False, False]


def test_who_has_something_to_be_answered_stays_f26() -> None:
    """Then the reserved places are left; who sits there must prove to be a broker in time."""
    admission = door(max_connections_per_ip="2")
    busy = [Caller(idle_since_ms=None) for _ in range(2)]
    stranger, peer = Caller(idle_since_ms=None), Caller(idle_since_ms=None)
    come(admission, *busy)
    assert come(admission, stranger, peer) == [True, True]
    peer.is_broker = True
    assert admission.overdue(10_000 + PROBATION_MS) == [stranger]
    assert not any(caller.closed for caller in busy)


def test_reserved_places_can_not_be_sat_out_f26() -> None:
    admission = door(max_connections_per_ip="1")
    come(admission, Caller(idle_since_ms=None))
    crowd = [Caller(idle_since_ms=None) for _ in range(RESERVED)]
    come(admission, *crowd)
    assert come(admission, Caller(idle_since_ms=None)) == [True]
    assert [caller.closed for caller in crowd] == [True] + [False] * (RESERVED - 1)


def test_a_broker_never_makes_room_f26() -> None:
    admission = door(max_connections_per_ip="1")
    peer = Caller(idle_since_ms=0, is_broker=True)
    come(admission, peer, Caller())
    assert not peer.closed


def test_whoever_found_room_after_all_may_stay_f26() -> None:
    admission = door(max_connections_per_ip="1")
    first, second = Caller(idle_since_ms=None), Caller(idle_since_ms=None)
    come(admission, first, second)
    admission.forget(first)  # type: ignore[arg-type]
    assert admission.overdue(10_000 + PROBATION_MS) == []
    assert come(admission, Caller(idle_since_ms=None)) == [True]
    assert second not in admission.overdue(20_000 + PROBATION_MS)


def test_limits_are_configs_and_change_while_it_runs_f26() -> None:
    configs: dict[str, str] = {}
    admission = Admission(lambda: BrokerLayers(dict(configs)))
    assert admission.limits.total == 10_000 and admission.limits.idle_ms == 600_000
    configs["max.connections"] = "7"
    configs["max.connections.per.ip.overrides"] = "10.0.0.9:0, fe80::1:25"
    assert admission.limits.total == 7
    assert [admission.limits.of_host(host) for host in ("10.0.0.9", "fe80::1", "x")] == [0, 25, 5_000]
    assert come(admission, Caller("10.0.0.9")) == [False], "an address may be shut out altogether"


def test_connections_that_come_too_fast_are_heard_later_f26() -> None:
    admission = door(max_connection_creation_rate="10")
    delays: list[Any] = []
    for _ in range(30):
        come(admission, Caller())
        delays.append(admission.delay_ms(0))
    assert delays[:10] == [0] * 10 and delays[10] > 0 and delays[-1] >= 1_900


def test_the_defaults_are_what_is_documented_f26() -> None:
    assert read_limits(BrokerLayers()).per_host == 5_000
