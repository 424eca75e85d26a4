"""Acts of an operator on what others hold, and why a queue stands still: over REST and on the command line, seen through the doors of queues (5.5, 5.6)."""

from __future__ import annotations

import json
from typing import Any

import pytest
from click.testing import CliRunner
from rest_api import Api, wait_until

from headrace.cli.main import main
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


@pytest.fixture
def api(broker: BrokerProcess) -> Api:
    return Api(broker)


def held(api: Api, name: str, count: int) -> list[Any]:
    """A queue of whose messages somebody holds all for half an hour; their receipts."""
    api("POST", "/api/v1/queues", {"name": f"{name}-dead"})
    api("POST", "/api/v1/queues", {"name": name, "dead_letter": f"{name}-dead", "max_deliveries": 9})
    for number in range(count):
        api("POST", f"/queues/{name}/messages", {"value": {"job": number}})
    received: list[Any] = []
    while len(received) < count:
        received += api("POST", f"/queues/{name}/receive?max={count}&visibility=30m&wait=1s")["items"]
    return received


def locks(api: Api, name: str) -> dict[int, Any]:
    return {one["offset"]: one for one in api("GET", f"/api/v1/queues/{name}/locks")["items"]}


def settle(api: Api, name: str, act: str, *names: str, **more: Any) -> Any:
    return api("POST", f"/api/v1/queues/{name}/locks/settle", {"act": act, "locks": list(names), **more})


def test_an_operator_lets_go_of_what_others_hold(api: Api) -> None:
    received = held(api, "held", 4)
    known = locks(api, "held")
    assert len(known) == 4
    first, second, third, fourth = (known[one["offset"]]["lock"] for one in received)
    assert settle(api, "held", "release", first) == {"settled": 1, "refused": []}
    (again,) = api("POST", "/queues/held/receive?max=9&visibility=30m")["items"]
    assert (again["offset"], again["delivery"]) == (received[0]["offset"], 2)
    assert settle(api, "held", "ack", second)["settled"] == 1
    assert settle(api, "held", "reject", third, detail="its worker is gone")["settled"] == 1
    letter = wait_until(lambda: api("GET", "/api/v1/queues/held-dead/letters")["items"])[0]
    assert letter["error"] == "its worker is gone"
    assert settle(api, "held", "extend", fourth, visibility="6h")["settled"] == 1
    left = locks(api, "held")
    assert set(left) == {received[0]["offset"], received[3]["offset"]}
    assert left[received[3]["offset"]]["visibility_ms"] == 6 * 3_600_000
    # What was named is one delivery: the next one of the same message is left alone.
    for act in ("ack", "release", "reject"):
        (refused,) = settle(api, "held", act, first)["refused"]
        assert refused["receipt"] == first and refused["detail"]
    assert set(locks(api, "held")) == set(left)


def test_the_name_of_a_lock_is_no_receipt_and_a_receipt_no_name_of_a_lock(api: Api) -> None:
    """Who may only receive could acknowledge with it what others hold."""
    (one,) = held(api, "apart", 1)
    (lock,) = locks(api, "apart").values()
    assert len(api("POST", "/queues/apart/settle", {"ack": [lock["lock"]]})["refused"]) == 1
    assert len(settle(api, "apart", "ack", one["receipt"])["refused"]) == 1
    api("POST", "/api/v1/queues", {"name": "other"})
    assert len(settle(api, "other", "ack", lock["lock"])["refused"]) == 1
    assert set(locks(api, "apart")) == {one["offset"]}
    api("POST", "/api/v1/queues/apart/locks/settle", {"act": "extend", "locks": [lock["lock"]]}, status=400)
    api("POST", "/api/v1/queues/apart/locks/settle", {"act": "burn", "locks": [lock["lock"]]}, status=400)
    api("POST", "/api/v1/queues/nowhere/locks/settle", {"act": "ack", "locks": ["x"]}, status=404)


def test_the_command_line_does_the_same(api: Api) -> None:
    received = held(api, "by-hand", 3)
    place = f"0:{received[0]['offset']}"
    run = CliRunner()
    done = run.invoke(
        main, ["queue", "settle", "by-hand", place, "--release", "--url", api.url, "-o", "json"]
    )
    assert done.exit_code == 0, done.output
    assert [row["status"] for row in json.loads(done.output)["items"]] == ["done"]
    wait_until(lambda: api("GET", "/api/v1/queues/by-hand")["ready"] == 1)
    assert run.invoke(main, ["queue", "settle", "by-hand", "0:999", "--url", api.url]).exit_code == 3
    assert run.invoke(main, ["queue", "settle", "by-hand", "--url", api.url]).exit_code == 2
    done = run.invoke(main, ["queue", "settle", "by-hand", "--all", "--ack", "--url", api.url])
    assert done.exit_code == 0, done.output
    wait_until(lambda: api("GET", "/api/v1/queues/by-hand")["in_flight"] == 0)
    assert api("GET", "/api/v1/queues/by-hand")["ready"] == 1


def causes(api: Api, name: str) -> list[str]:
    return [one["cause"] for one in api("GET", f"/api/v1/queues/{name}/explain")["findings"]]


def test_a_queue_says_why_it_stands_still(api: Api) -> None:
    held(api, "still", 2)
    wait_until(lambda: causes(api, "still") == ["all_held"])
    done = CliRunner().invoke(main, ["queue", "explain", "still", "--url", api.url])
    assert done.exit_code == 0 and "in somebody's hands" in done.output, done.output
    api("POST", "/api/v1/queues/still/pause")
    wait_until(lambda: causes(api, "still")[:1] == ["paused"])
    api("POST", "/api/v1/queues", {"name": "later"})
    api("POST", "/queues/later/messages", {"value": "x", "delay": "3h"})
    wait_until(lambda: causes(api, "later") == ["only_later"])
    api("POST", "/api/v1/queues", {"name": "empty"})
    assert api("GET", "/api/v1/queues/empty/explain")["sentence"] == "Nothing waits in it."
    api("GET", "/api/v1/queues/nowhere/explain", status=404)


def test_a_queue_names_the_message_that_holds_others_up_and_the_one_that_fails(api: Api) -> None:
    api("POST", "/api/v1/queues", {"name": "ledger.fifo", "fifo": True})
    for _ in range(3):
        api("POST", "/queues/ledger.fifo/messages", {"value": "entry", "group": "account-1"})
    api("POST", "/queues/ledger.fifo/receive?visibility=30m")
    found = wait_until(lambda: api("GET", "/api/v1/queues/ledger.fifo/explain")["findings"])
    assert found[0]["cause"] == "blocked" and "account-1: 2 behind ledger.fifo/0/0" in found[0]["evidence"]
    api("POST", "/api/v1/queues", {"name": "poison"})
    api("POST", "/queues/poison/messages", {"value": "no json"})
    for _ in range(3):
        (one,) = api("POST", "/queues/poison/receive?visibility=30m&wait=5s")["items"]
        if one["delivery"] < 3:
            api("POST", f"/queues/poison/messages/{one['receipt']}/nack")
    found = wait_until(lambda: api("GET", "/api/v1/queues/poison/explain")["findings"])
    assert found[0]["cause"] == "failing" and "poison/0/0 delivered 3" in found[0]["evidence"]
    assert found[0]["next_step"].endswith("let go of it by hand.")


def test_a_queue_names_the_webhook_that_does_not_take(api: Api) -> None:
    api("POST", "/api/v1/queues", {"name": "calls"})
    api("POST", "/queues/calls/messages", {"value": "hello"})
    api("POST", "/api/v1/webhooks", {"name": "partner", "queue": "calls", "url": "https://hooks.invalid/x"})
    found = wait_until(lambda: api("GET", "/api/v1/queues/calls/explain")["findings"])
    assert found[0]["cause"] == "webhook" and "partner" in found[0]["sentence"], found
