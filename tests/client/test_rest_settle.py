"""REST: many receipts in one request: each stands for itself (D1)."""

from __future__ import annotations

import http.client
import json
from typing import Any

import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


def _ask(broker: BrokerProcess, method: str, path: str, body: Any = None) -> tuple[int, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
    try:
        data = None if body is None else json.dumps(body)
        connection.request(method, path, data, {"content-type": "application/json"})
        answer = connection.getresponse()
        raw = answer.read()
        return answer.status, json.loads(raw) if raw else None
    finally:
        connection.close()


def _receive(broker: BrokerProcess, queue: str, visibility: str = "60s") -> dict[str, str]:
    """Value -> receipt."""
    _, body = _ask(broker, "POST", f"/queues/{queue}/receive?max=100&visibility={visibility}")
    return {item["value"]: item["receipt"] for item in body["items"]}


@pytest.fixture
def queue(broker: BrokerProcess, topic: str) -> str:
    assert _ask(broker, "POST", "/api/v1/queues", {"name": topic, "partitions": 3})[0] == 201
    for number in range(6):
        assert _ask(broker, "POST", f"/queues/{topic}/messages", {"value": str(number), "key": str(number)})[
            0
        ] in (200, 201)
    return topic


def test_acks_nacks_and_extensions_of_several_partitions(broker: BrokerProcess, queue: str) -> None:
    held = _receive(broker, queue)
    assert sorted(held) == list("012345")
    given = {
        "ack": [held[one] for one in "012"],
        "nack": [held[one] for one in "34"],
        "extend": [held["5"]],
        "delay": "0s",
        "visibility": "600s",
    }
    assert _ask(broker, "POST", f"/queues/{queue}/settle", given) == (200, {"refused": []})
    again = _receive(broker, queue)
    assert sorted(again) == ["3", "4"], "acknowledged and held ones are not handed out"
    given = {"ack": [held["0"], held["3"], "rubbish", again["4"]]}
    status, body = _ask(broker, "POST", f"/queues/{queue}/settle", given)
    assert status == 200
    refused = {row["receipt"]: row["code"] for row in body["refused"]}
    assert refused.keys() == {held["3"], "rubbish"} and all(refused.values()), "done once more is done"
    assert _ask(broker, "POST", f"/queues/{queue}/settle", {"ack": [again["3"]]})[1] == {"refused": []}
    assert _receive(broker, queue) == {}


def test_f41_rejected_messages_are_dead_letters_with_a_reason(broker: BrokerProcess, topic: str) -> None:
    """The engine had it, the desk had it, no door had it."""
    dead = f"{topic}-dead"
    assert _ask(broker, "POST", "/api/v1/queues", {"name": dead})[0] == 201
    config = {"name": topic, "dead_letter": dead, "max_deliveries": 100}
    assert _ask(broker, "POST", "/api/v1/queues", config)[0] == 201
    for number in range(3):
        assert _ask(broker, "POST", f"/queues/{topic}/messages", {"value": str(number)})[0] in (200, 201)
    held = _receive(broker, topic)
    assert sorted(held) == list("012")
    path = f"/queues/{topic}/messages/{held['0']}/reject"
    assert _ask(broker, "POST", f"{path}?detail={'x' * 1001}")[0] == 400
    assert _ask(broker, "POST", f"{path}?detail=no+such+customer") == (204, None)
    given = {"reject": [held["1"]], "ack": [held["2"]], "detail": "torn"}
    assert _ask(broker, "POST", f"/queues/{topic}/settle", given) == (200, {"refused": []})
    letters: dict[str, str] = {}
    while len(letters) < 2:
        _, body = _ask(broker, "POST", f"/queues/{dead}/receive?max=10&wait=10s")
        letters |= {item["value"]: item["headers"]["headrace-dead-detail"] for item in body["items"]}
    assert letters == {"0": "no such customer", "1": "torn"}
    assert _receive(broker, topic) == {}


def test_what_is_no_request(broker: BrokerProcess, queue: str) -> None:
    path = f"/queues/{queue}/settle"
    wrongs: list[dict[str, Any]] = [
        {},
        {"ack": ["x"] * 1001},
        {"extend": ["x"]},
        {"ack": "x"},
        {"unknown": []},
    ]
    for wrong in wrongs:
        assert _ask(broker, "POST", path, wrong)[0] == 400, wrong
    assert _ask(broker, "POST", "/queues/nobody-has-it/settle", {"ack": ["x"]})[0] == 404
