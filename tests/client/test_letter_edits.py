"""Dead letters edited, discarded and exported, through REST and the command line, checked through the doors of queues (console 5.3, R60)."""

from __future__ import annotations

import csv
import io
import json
import urllib.error
import urllib.parse
import urllib.request
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


def letters(api: Api, name: str, *, fifo: bool = False) -> str:
    """Five orders that died, three in the wrong currency; one is no JSON at all."""
    tail = ".fifo" if fifo else ""
    dead, queue = f"{name}-dead{tail}", f"{name}{tail}"
    api("POST", "/api/v1/queues", {"name": dead, "fifo": fifo})
    api("POST", "/api/v1/queues", {"name": queue, "fifo": fifo, "dead_letter": dead, "max_deliveries": 9})
    values: list[Any] = [{"order": n, "currency": "EURO" if n < 3 else "USD"} for n in range(4)]
    for value in (*values, "no json"):
        api("POST", f"/queues/{queue}/messages", {"value": value, **({"group": "g"} if fifo else {})})
    for _ in range(5):
        (one,) = api("POST", f"/queues/{queue}/receive?max=1")["items"]
        api("POST", f"/queues/{queue}/messages/{one['receipt']}/reject?detail=bad+currency")
    wait_until(lambda: api("GET", f"/api/v1/queues/{dead}")["ready"] == 5)
    return dead


SET = 'value.currency = "EUR"'


@pytest.mark.parametrize("fifo", [False, True])
def test_an_edit_is_shown_then_done_and_the_original_can_still_be_read(api: Api, fifo: bool) -> None:
    dead = letters(api, f"edit-{fifo}".lower(), fifo=fifo)
    before = {one["message_id"]: one for one in api.peek(dead)}
    plan = api("POST", f"/api/v1/queues/{dead}/moves", {"act": "edit", "set": [SET], "dry_run": True})
    assert (plan["to_move"], plan["skipped"], len(plan["samples"])) == (4, 1, 3)
    sample = plan["samples"][0]
    assert json.loads(sample["before"]["value"])["currency"] == "EURO"
    assert json.loads(sample["after"]["value"])["currency"] == "EUR"
    assert {one["message_id"]: one for one in api.peek(dead)} == before  # nothing has happened yet

    done = api.moved(dead, act="edit", set=[SET], filter='value.currency = "EURO"')
    assert (done["status"], done["moved"], done["skipped"]) == ("completed", 3, 0), done
    after = {one["message_id"]: one for one in api.peek(dead)}
    assert after.keys() == before.keys()  # the same letters, each once
    for key, one in after.items():
        if one["value"] == before[key]["value"]:
            assert "headrace-edited-by" not in one["headers"]
            continue
        headers = one["headers"]
        assert json.loads(one["value"]) == {**json.loads(before[key]["value"]), "currency": "EUR"}
        assert headers["headrace-dead-detail"] == "bad currency"
        assert headers["headrace-edited-by"] == done["by"] == "anonymous@127.0.0.1"
        topic, partition, offset = headers["headrace-edited-from"].split("/")
        original = api("GET", f"/topics/{topic}/records/{partition}/{offset}")
        assert original["value"] == before[key]["value"]


def test_a_redrive_edits_on_the_way(api: Api) -> None:
    dead = letters(api, "way")
    done = api.moved(dead, set=[SET, 'headers["fixed"] = "yes"'], filter='value.currency = "EURO"')
    assert (done["moved"], done["act"]) == (3, "redrive")
    back = api.peek("way")
    assert sorted(json.loads(one["value"])["order"] for one in back) == [0, 1, 2]
    for one in back:
        assert json.loads(one["value"])["currency"] == "EUR"
        assert one["headers"]["fixed"] == "yes"
        assert not [name for name in one["headers"] if name.startswith("headrace-dead-")]
    assert len(api.peek(dead)) == 2


def test_what_is_discarded_is_done(api: Api) -> None:
    dead = letters(api, "gone")
    assert api.moved(dead, act="discard", filter='value.currency = "EURO"', max=2)["moved"] == 2
    assert api.moved(dead, act="discard", filter='value.currency = "EURO"')["moved"] == 1
    assert len(api.peek(dead)) == 2
    shown = api("GET", f"/api/v1/queues/{dead}")
    assert (shown["ready"], shown["in_flight"]) == (2, 0)


@pytest.mark.parametrize(
    "body",
    [
        {"act": "edit"},
        {"act": "edit", "set": ["value.currency = EUR"]},
        {"act": "edit", "set": [SET], "to": "refused"},
        {"act": "discard", "set": [SET]},
        {"act": "burn"},
        {"set": SET},
        {"set": ['headers["headrace-dead-reason"] = "x"']},
    ],
)
def test_what_makes_no_sense_is_refused_and_nothing_happens(api: Api, body: dict[str, Any]) -> None:
    if "refused-dead" not in [one["name"] for one in api("GET", "/api/v1/queues?limit=1000")["items"]]:
        letters(api, "refused")
    before = api.peek("refused-dead")
    refused = api("POST", "/api/v1/queues/refused-dead/moves", body, status=400)
    assert refused["detail"]
    assert api.peek("refused-dead") == before


def test_the_command_line_does_the_same(
    api: Api, broker: BrokerProcess, monkeypatch: pytest.MonkeyPatch, tmp_path: Any
) -> None:
    """Acceptance 17: what the console shows as a command, pasted."""
    monkeypatch.setenv("HEADRACE_URL", broker.url)
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.chdir(tmp_path)
    dead = letters(api, "cli-letters")

    def run(*arguments: str) -> str:
        ran = CliRunner().invoke(main, [*arguments], prog_name="headrace")
        assert ran.exit_code == 0, (arguments, ran.output, ran.stderr)
        return ran.stdout

    plan = json.loads(run("dlq", "edit", dead, "--set", SET, "--dry-run", "--json"))
    assert (plan["to_move"], plan["skipped"]) == (4, 1)
    edited = json.loads(
        run("dlq", "edit", dead, "--set", SET, "--filter", 'value.currency = "EURO"', "--json")
    )
    assert (edited["status"], edited["moved"]) == ("completed", 3)
    lines = [json.loads(line) for line in run("dlq", "export", dead).splitlines()]
    assert sorted(one["value"] for one in lines) == sorted(one["value"] for one in api.peek(dead))
    run("dlq", "export", dead, "--as", "csv", "--filter", 'value.currency = "EUR"', "--to", "out.csv")
    rows = list(csv.DictReader(io.StringIO((tmp_path / "out.csv").read_text())))
    assert [json.loads(row["value"])["currency"] for row in rows] == ["EUR"] * 3
    discarded = json.loads(
        run("dlq", "discard", dead, "--filter", 'value.currency = "USD"', "--yes", "--json")
    )
    assert discarded["moved"] == 1
    assert len(api.peek(dead)) == 4


def test_w20_w21_an_export_is_a_file_and_holds_no_formula(api: Api) -> None:
    api("POST", "/api/v1/topics", {"name": "sheet", "partitions": 2})
    records = [{"key": f"k{n}", "value": "=1+1" if n == 7 else f"v{n}"} for n in range(1_200)]
    for start in range(0, 1_200, 300):
        api("POST", "/topics/sheet/records", {"records": records[start : start + 300]})
    with urllib.request.urlopen(f"{api.url}/topics/sheet/export?format=csv", timeout=120) as response:
        headers, text = response.headers, response.read().decode()
    assert headers["content-disposition"] == 'attachment; filename="sheet.csv"'
    assert headers["content-type"] == "application/octet-stream"
    assert headers["content-security-policy"] == "sandbox"
    rows = {row["key"]: row["value"] for row in csv.DictReader(io.StringIO(text))}
    assert rows == {one["key"]: one["value"].replace("=1+1", "'=1+1") for one in records}
    found = urllib.parse.quote("v119")
    with urllib.request.urlopen(f"{api.url}/topics/sheet/export?contains={found}", timeout=120) as response:
        lines = [json.loads(line) for line in response.read().splitlines()]
    assert sorted(one["value"] for one in lines) == ["v119", *(f"v119{n}" for n in range(10))]
