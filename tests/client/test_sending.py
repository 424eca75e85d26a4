"""The SDK sends to queues: one or many, at a time, by the calendar; the clock is the test's."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta

import pytest

from headrace import Client, HeadraceError
from headrace.testing import LocalBroker

pytestmark = pytest.mark.client


def test_many_in_few_requests_in_order_and_with_ids_of_their_own(headrace: LocalBroker) -> None:
    queue = headrace.create_queue("many.fifo", fifo=True)
    with headrace.client() as client:
        ids = client.send_many(queue, [{"number": number} for number in range(1200)], group="line")
    assert len(set(ids)) == 1200
    found = headrace.messages(queue)
    assert found[:2] == ['{"number":0}', '{"number":1}']
    with headrace.client() as client:
        assert client.send_many(headrace.create_queue("none"), []) == []
        large = client.send_many(headrace.create_queue("large"), [b"x" * 400_000] * 5)
    assert len(set(large)) == 5


def test_at_a_time(headrace: LocalBroker) -> None:
    queue = headrace.create_queue("later")
    with headrace.client() as client:
        client.send(queue, "birthday", at=datetime.now(UTC) + timedelta(days=2))
        client.send_many(queue, ["cake", "candles"], at=datetime.now(UTC) + timedelta(days=1))
    describe = f"/api/v1/queues/{queue}"
    assert [headrace.ask("GET", describe)[name] for name in ("ready", "delayed")] == [0, 3]
    headrace.clock.advance(days=1, minutes=1)
    assert [headrace.ask("GET", describe)[name] for name in ("ready", "delayed")] == [2, 1]
    headrace.clock.advance(days=1)
    assert headrace.ask("GET", describe)["ready"] == 3


def test_by_the_calendar(headrace: LocalBroker) -> None:
    queue, topic = headrace.create_queue("chores"), headrace.create_topic("ticks")
    with headrace.client() as client:
        first = client.schedule("water", "* * * * *", queue, "water the plants")
        assert timedelta(0) < first - datetime.now(UTC) <= timedelta(minutes=1, seconds=1)
        client.schedule("tick", "* * * * *", topic, {"n": 1}, key="k", headers={"h": "v"})
        headrace.clock.advance(minutes=2)
        assert set(headrace.messages(queue)) == {"water the plants"}
        assert set(headrace.records(topic)) == {'{"n":1}'}
        client.unschedule("water")
        with pytest.raises(HeadraceError, match="no schedule"):
            client.unschedule("water")
        with pytest.raises(HeadraceError, match="text or JSON"):
            client.schedule("bytes", "* * * * *", topic, b"\xff")
        with pytest.raises(HeadraceError):
            client.schedule("when", "some day", topic, "x")


def test_nobody_there_is_told(headrace: LocalBroker) -> None:
    with Client(headrace.bootstrap, timeout=5) as client:
        headrace.faults.refuse("http")
        with pytest.raises(HeadraceError):
            client.send_many("gone", ["x"])
        headrace.faults.heal()
