"""Looking for messages and at numbers over REST (W2, W5, W9, section 4 and 5.2 of the console's rules), through the door."""

from __future__ import annotations

import http.client
import json
import time
from collections.abc import Iterator
from typing import Any
from urllib.parse import quote, urlencode

import pytest

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

COUNT = 700
PARTITIONS = 3
FIRST_MS = 1_790_000_000_000


def ask(broker: BrokerProcess, path: str, body: Any = None, method: str = "", **query: Any) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
    target = f"{path}?{urlencode(query, doseq=True)}" if query else path
    data = None if body is None else json.dumps(body).encode()
    connection.request(
        method or ("GET" if body is None else "POST"), target, data, {"content-type": "application/json"}
    )
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    document = json.loads(raw) if raw else {}
    return document if response.status < 300 else {"status": response.status, **document}


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        ask(running, "/api/v1/topics", {"name": "orders", "partitions": PARTITIONS})
        for start in range(0, COUNT, 100):
            records = [
                {"key": f"k{n}", "value": {"n": n, "colour": "Red" if n % 70 == 0 else "blue"}, "timestamp": FIRST_MS + n * 1000}
                for n in range(start, start + 100)
            ]  # fmt: skip
            ask(running, "/topics/orders/records", {"records": records})
        ask(running, "/api/v1/groups/billing/seek", {"topic": "orders", "to": "start"})
        yield running


def numbers(rows: list[dict[str, Any]]) -> list[int]:
    return [json.loads(row["value"])["n"] for row in rows]


def search(broker: BrokerProcess, **query: Any) -> list[dict[str, Any]]:
    """All steps of a search."""
    rows: list[dict[str, Any]] = []
    cursor = None
    while True:
        asked = {**query, **({} if cursor is None else {"cursor": cursor})}
        step = ask(broker, "/topics/orders/search", **asked)
        assert "items" in step, step
        rows += step["items"]
        cursor = step["next_cursor"]
        if cursor is None:
            assert step["left"] == 0
            return rows


@pytest.mark.parametrize("order", ["newest", "oldest"])
@pytest.mark.parametrize("limit", [7, 100, 500])
def test_a_search_shows_everything_once_and_by_time(broker: BrokerProcess, order: str, limit: int) -> None:
    found = numbers(search(broker, order=order, limit=limit))
    assert found == sorted(range(COUNT), reverse=order == "newest")


def test_a_time_range_is_exact(broker: BrokerProcess) -> None:
    span = {"from": FIRST_MS + 100_000, "until": FIRST_MS + 200_000}
    assert sorted(numbers(search(broker, limit=30, **span))) == list(range(100, 200))
    assert search(broker, **{"from": FIRST_MS + COUNT * 1000}) == []


def test_words_and_filters_find_the_same(broker: BrokerProcess) -> None:
    wanted = [n for n in reversed(range(COUNT)) if n % 70 == 0]
    assert numbers(search(broker, contains="red", limit=3)) == wanted
    assert numbers(search(broker, where='value.colour = "Red"', limit=4)) == wanted
    assert ask(broker, "/topics/orders/search", where="value.(")["code"] == "INVALID_FILTER"


def test_one_partition_is_one_partition(broker: BrokerProcess) -> None:
    rows = search(broker, partition=1)
    assert {row["partition"] for row in rows} == {1}
    assert [row["offset"] for row in rows] == sorted((row["offset"] for row in rows), reverse=True)
    assert ask(broker, "/topics/orders/search", partition=9)["status"] == 404


def test_the_histogram_counts_every_message_in_its_time(broker: BrokerProcess) -> None:
    shown = ask(broker, "/topics/orders/histogram", buckets=70)
    assert shown["total"] == sum(shown["counts"]) == COUNT
    assert shown["from_ms"] == FIRST_MS
    expected = [0] * 70
    for n in range(COUNT):
        expected[n * 1000 // shown["step_ms"]] += 1
    assert shown["counts"] == expected
    part = ask(
        broker,
        "/topics/orders/histogram",
        buckets=10,
        **{"from": FIRST_MS + 100_000, "until": FIRST_MS + 200_000},  # type: ignore[arg-type]
    )
    assert part["counts"] == [10] * 10
    ask(broker, "/api/v1/topics", {"name": "empty"})
    assert ask(broker, "/topics/empty/histogram")["total"] == 0


def test_one_record_has_its_batch(broker: BrokerProcess) -> None:
    shown = ask(broker, "/topics/orders/records/0/0")
    assert (shown["partition"], shown["offset"]) == (0, 0) and shown["batch"]["base_offset"] == 0
    assert shown["batch"]["codec"] == "none" and shown["size"] > 0
    assert ask(broker, "/topics/orders/records/0/99999")["status"] == 404
    assert ask(broker, "/topics/orders/records/zero/0")["status"] == 400
    assert ask(broker, "/topics/nothing/records/0/0")["status"] == 404


def test_w2_looking_changes_nothing(broker: BrokerProcess) -> None:
    before = ask(broker, "/api/v1/groups/billing")
    for path in ("search", "histogram", "records/0/0"):
        ask(broker, f"/topics/orders/{path}")
        ask(broker, f"/topics/never-heard-of/{path}")
    assert ask(broker, "/api/v1/groups/billing")["partitions"] == before["partitions"]
    assert "never-heard-of" not in [row["name"] for row in ask(broker, "/api/v1/topics")["items"]]


def until(look: Any) -> Any:
    deadline = time.monotonic() + 120
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.1)
    return found


def test_lists_have_numbers_of_the_shown_ones(broker: BrokerProcess) -> None:
    def row() -> Any:
        shown = ask(broker, "/api/v1/topics", q="ORD", sort="-messages", **{"with": "rates,sizes,readers"})
        (found,) = shown["items"]
        assert shown["total"] == 1 and found["name"] == "orders"
        return found if found.get("messages") == COUNT and found["groups"] >= 1 else None

    found = until(row)
    assert found["kind"] == "topic" and found["bytes"] > 0
    assert "messages" not in ask(broker, "/api/v1/topics", q="ord")["items"][0]
    assert ask(broker, "/api/v1/topics", sort="colour")["status"] == 400


def test_a_topic_that_was_written_before_anybody_looked_at_it_was_written(broker: BrokerProcess) -> None:
    until(
        lambda: (
            ask(broker, "/api/v1/topics", q="orders", **{"with": "sizes"})["items"][0]["messages"] == COUNT
        )
    )
    ask(broker, "/topics/written-once/records", {"records": [{"value": 1}]})

    def row() -> Any:
        (found,) = ask(broker, "/api/v1/topics", q="written-once", **{"with": "rates,sizes"})["items"]
        return found if found["messages"] else None

    found = until(row)
    assert found["last_write_ms"] and found["unknown_partitions"] == 0


def test_the_cluster_says_how_hard_each_broker_works(broker: BrokerProcess) -> None:
    """What a page about the cluster has: CPU, how late the loop is, syncs, version, since when, and its coordinator."""

    def shown() -> Any:
        ask(broker, "/topics/orders-synced/records", {"records": [{"value": 1}]})
        (found,) = ask(broker, "/api/v1/cluster")["brokers"]
        return found if found["sync_p99_ms"] else None

    found = until(shown)
    assert 0 <= found["cpu"] <= 4 and found["loop_lag_ms"] >= 0 and found["sync_p99_ms"] > 0
    assert found["version"] == ask(broker, "/api/v1/version")["version"]
    assert 0 < time.time() * 1000 - found["began_ms"] < 3_600_000
    assert (found["coordinator"], found["coordinator_silence_ms"]) == ("embedded", 0)
    assert found["partitions"] >= found["partitions_led"] > 0
    assert ask(broker, "/api/v1/cluster/troubled") == {"items": [], "next_cursor": None, "total": 0}


def test_queues_are_sorted_and_counted_by_the_broker(broker: BrokerProcess) -> None:
    """W9: the fullest first, on whichever page it would be by its name."""
    for name, messages in (("sorted-a", 1), ("sorted-b", 3), ("sorted-c", 2)):
        ask(broker, "/api/v1/queues", {"name": name})
        for number in range(messages):
            ask(broker, f"/queues/{name}/messages", {"value": number})

    def by(sort: str, **more: Any) -> Any:
        return ask(broker, "/api/v1/queues", q="sorted", sort=sort, **more)

    fullest = ["sorted-b", "sorted-c", "sorted-a"]
    until(lambda: [row["name"] for row in by("-ready")["items"]] == fullest or None)
    first = by("-ready", limit=1, **{"with": "rates"})
    assert first["total"] == 3 and first["items"][0]["done_per_s"] == 0 and first["items"][0]["in_per_s"] >= 0
    after = by("-ready", limit=1, cursor=first["next_cursor"])
    assert [row["name"] for row in after["items"]] == ["sorted-c"]
    assert by("-age")["items"][0]["name"] == "sorted-a", "the oldest first"
    assert by("colour")["status"] == 400
    ask(broker, "/queues/sorted-b/receive?max=3", {})
    until(lambda: by("-in_flight")["items"][0]["name"] == "sorted-b" or None)


def test_readers_of_a_topic_are_named_with_what_they_have_not_read(broker: BrokerProcess) -> None:
    rows = until(lambda: ask(broker, "/api/v1/topics/orders/readers")["items"])
    (row,) = [row for row in rows if row["name"] == "billing"]
    assert (row["kind"], row["name"], row["lag"], row["members"]) == ("group", "billing", COUNT, 0)


class Stream:
    """Server-sent events as they come."""

    def __init__(self, broker: BrokerProcess, path: str) -> None:
        self._connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
        self._connection.request("GET", path)
        self.response = self._connection.getresponse()

    def next(self, kind: str) -> Any:
        event = ""
        while True:
            raw = self.response.readline()
            assert raw, "the stream has ended"
            line = raw.decode().rstrip("\n")
            if line.startswith("event: "):
                event = line[7:]
            elif line.startswith("data: ") and event == kind:
                return json.loads(line[6:])

    def close(self) -> None:
        self._connection.close()


def test_a_tick_a_second_with_what_has_changed(broker: BrokerProcess) -> None:
    until(lambda: ask(broker, "/api/v1/topics/orders/readers")["items"])  # it was gone through once
    until(
        lambda: (
            ask(broker, "/api/v1/topics", q="orders", **{"with": "sizes"})["items"][0]["messages"] == COUNT
        )
    )
    stream = Stream(broker, "/api/v1/events?topics=home&topics=topic%3Aorders&topics=group%3Abilling")
    first = stream.next("tick")
    assert first["home"]["topics"] >= 1 and first["topic:orders"]["messages"] == COUNT
    assert first["group:billing"]["lag"] == COUNT
    following = stream.next("tick")
    assert following["at_ms"] > first["at_ms"]
    # A topic in which nothing happens is not told again.
    assert following.get("topic:orders", {}).get("messages") is None
    stream.close()
    assert ask(broker, "/api/v1/events", topics="nonsense")["status"] == 400


def test_w9_a_broker_has_fifty_streams_at_most_and_closed_ones_cost_nothing(broker: BrokerProcess) -> None:
    def opened() -> Stream | None:
        """The broker may not have noticed yet that an earlier test has gone."""
        stream = Stream(broker, "/api/v1/events?topics=home")
        if stream.response.status == 200:
            return stream
        stream.close()
        return None

    streams = [until(opened) for _ in range(50)]
    try:
        for stream in streams:
            stream.next("tick")
        refused = ask(broker, "/api/v1/events")
        assert refused["status"] == 429 and refused["code"] == "TOO_MANY_STREAMS"
    finally:
        for stream in streams:
            stream.close()

    def again() -> bool:
        fresh = Stream(broker, "/api/v1/events?topics=home")
        fresh.close()
        return fresh.response.status == 200

    until(again)


def test_the_past_is_a_gap_and_not_a_zero(broker: BrokerProcess) -> None:
    def shown() -> Any:
        found = ask(broker, "/api/v1/history", series=["broker.in", "topic:orders.in", "topic:nothing.in"])
        return found if any(value is not None for value in found["series"]["topic:orders.in"]) else None

    found = until(shown)
    assert found["step_ms"] == 1000 and set(found["series"]["topic:nothing.in"]) == {None}
    assert found["series"]["broker.in"][0] is None  # nobody was there a quarter of an hour ago
    coarse = ask(broker, "/api/v1/history", series="broker.in", step="15s")
    assert coarse["step_ms"] == 15_000 and len(coarse["series"]["broker.in"]) == 60
    assert ask(broker, "/api/v1/history")["status"] == 400
    assert ask(broker, "/api/v1/history", series="broker.in", step="7s")["status"] == 400


def test_acceptance_7_every_message_of_a_tail_is_shown_or_counted(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "busy", "partitions": 2})
    stream = Stream(broker, "/topics/busy/tail?rate=20")
    stream.next("begin")
    sent = 0
    for size in (5, 400, 1, 250):
        ask(broker, "/topics/busy/records", {"records": [{"value": n} for n in range(size)]})
        sent += size
    shown = left_out = 0
    while shown + left_out < sent:
        news = stream.next("records")
        assert len(news["items"]) <= 20
        shown += len(news["items"])
        left_out += news["skipped"]
    assert shown + left_out == sent and left_out > 0
    stream.close()


def test_a_name_in_a_url_is_a_name(broker: BrokerProcess) -> None:
    """A group may be called anything; looking at it must not break the page."""
    name = "<img src=x> & äö/.."
    ask(broker, f"/api/v1/groups/{quote(name, safe='')}/seek", {"topic": "orders", "to": "end"})
    rows = until(
        lambda: [row for row in ask(broker, "/api/v1/topics/orders/readers")["items"] if row["name"] == name]
    )
    assert rows[0]["lag"] == 0


# -- groups, dead letters, locks -------------------------------------------------------------------------------------------


def test_a_seek_is_shown_done_and_undone(broker: BrokerProcess) -> None:
    """Acceptance 10: by time it is where Kafka says; and undoing it leads back exactly."""
    ask(broker, "/api/v1/groups/traveller/seek", {"topic": "orders", "to": "-7"})
    before = ask(broker, "/api/v1/groups/traveller")["partitions"]
    to = {"topic": "orders", "to": f"@{FIRST_MS + 300_000}"}
    plan = ask(broker, "/api/v1/groups/traveller/seek", {**to, "dry_run": True})
    assert ask(broker, "/api/v1/groups/traveller")["partitions"] == before
    done = ask(broker, "/api/v1/groups/traveller/seek", to)
    assert done["partitions"] == plan["partitions"]
    for row in done["partitions"]:
        (record,) = ask(
            broker,
            "/topics/orders/search",
            order="oldest",
            limit=1,
            partition=row["partition"],
            **{"from": FIRST_MS + 300_000},  # type: ignore[arg-type]
        )["items"]
        assert record["offset"] == row["to_offset"]
    back = [
        {"topic": row["topic"], "partition": row["partition"], "offset": row["from_offset"]}
        for row in done["partitions"]
    ]
    ask(broker, "/api/v1/groups/traveller/seek", {"offsets": back})
    assert ask(broker, "/api/v1/groups/traveller")["partitions"] == before
    assert ask(broker, "/api/v1/groups/traveller/seek", {"offsets": back, "to": "end"})["status"] == 400
    assert ask(broker, "/api/v1/groups/traveller/seek", {"topic": "orders"})["status"] == 400
    every = ask(broker, "/api/v1/groups/traveller/seek", {"to": "end", "dry_run": True})
    assert {row["topic"] for row in every["partitions"]} == {"orders"}


def test_lag_has_an_age_and_a_reason(broker: BrokerProcess) -> None:
    shown = ask(broker, "/api/v1/groups/billing")
    assert shown["lag"] == COUNT and shown["oldest_unread_ms"] == FIRST_MS
    explained = ask(broker, "/api/v1/groups/billing/explain")
    assert explained["findings"][0]["cause"] == "nobody_reads" and explained["lag"] == COUNT
    ask(broker, "/api/v1/groups/done/seek", {"topic": "orders", "to": "end"})
    assert ask(broker, "/api/v1/groups/done/explain")["sentence"] == "It is not behind."
    assert ask(broker, "/api/v1/groups/nobody/explain")["status"] == 404

    def listed() -> Any:
        rows = ask(broker, "/api/v1/groups", sort="-lag", **{"with": "lag"})["items"]
        return rows if rows[0]["lag"] else None

    assert until(listed)[0]["lag"] == COUNT


def test_dead_letters_are_counted_by_what_went_wrong(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/queues", {"name": "mail-dead"})
    ask(broker, "/api/v1/queues", {"name": "mail", "dead_letter": "mail-dead", "max_deliveries": 5})
    for number in range(6):
        ask(broker, "/queues/mail/messages", {"value": f"letter {number}"})
    for number in range(5):
        (one,) = ask(broker, "/queues/mail/receive", {}, max=1)["items"]
        why = f"mailbox {number} is full" if number % 2 == 0 else f"timeout after {number} s"
        ask(broker, f"/queues/mail/messages/{one['receipt']}/reject", {}, detail=why)

    def letters() -> Any:
        (row,) = ask(broker, "/api/v1/dead-letters", queue="mail-dead")["items"]
        return row if row["messages"] == 5 else None

    row = until(letters)
    assert (row["queue"], row["of"], row["looked_at"]) == ("mail-dead", ["mail"], 5)
    kinds = {(kind["reason"], kind["source"], kind["error"]): kind["count"] for kind in row["kinds"]}
    assert kinds == {
        ("rejected", "mail", "mailbox # is full"): 3,
        ("rejected", "mail", "timeout after # s"): 2,
    }
    # The filter that the page makes of a row finds what the row counts.
    where = 'headers["headrace-dead-reason"] = "rejected" and contains(headers["headrace-dead-detail"], "timeout after")'
    plan = ask(broker, "/api/v1/queues/mail-dead/moves", {"filter": where, "dry_run": True})
    assert (plan["status"], plan["to_move"]) == ("dry_run", 2)


def test_locks_name_what_is_held_and_for_how_long(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/queues", {"name": "held"})
    for number in range(3):
        ask(broker, "/queues/held/messages", {"value": number})
    assert ask(broker, "/api/v1/queues/held/locks")["items"] == []
    taken = ask(broker, "/queues/held/receive", {}, max=2, visibility="1000s")["items"]
    rows = ask(broker, "/api/v1/queues/held/locks")["items"]
    assert sorted(row["offset"] for row in rows) == sorted(one["offset"] for one in taken)
    assert all(row["deliveries"] == 1 and 0 < row["ends_in_ms"] <= 1_000_000 for row in rows)
    assert ask(broker, "/api/v1/queues/nothing/locks")["status"] == 404


def test_the_flow_names_who_reads_what_and_what_stands_still(broker: BrokerProcess) -> None:
    ask(broker, "/api/v1/topics", {"name": "springs"})
    ask(broker, "/topics/springs/records", {"records": [{"value": n} for n in range(20)]})
    ask(broker, "/api/v1/groups/mill/seek", {"topic": "springs", "to": "start"})

    def link() -> Any:
        shown = ask(broker, "/api/v1/flow", limit=200)
        found = [one for one in shown["links"] if one["to"] == {"kind": "group", "name": "mill"}]
        return found[0] if found and found[0]["behind"] == 20 else None

    found = until(link)
    assert found["from"] == {"kind": "topic", "name": "springs"} and found["state"] == "standing"
    few = ask(broker, "/api/v1/flow", limit=1)
    assert (
        len([node for node in few["nodes"] if node["kind"] == "topic"]) == 1 and few["hidden"]["topics"] > 0
    )
