"""F14: where a group is moved to, and how far it is behind, at every door: the command, HTTP, and what Kafka's own client then finds."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import confluent_kafka as ck
import pytest
from click.testing import CliRunner
from confluent_kafka.admin import AdminClient, NewTopic
from webhook_endpoint import until

from headrace.cli.failure import Exit
from headrace.cli.main import main
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client
FIRST_MS = 1_793_000_000_000
COUNT = 10
"""Messages a partition, a second apart."""
COMMITTED = {0: 4, 1: 6}
"""Of three partitions."""


class Doors:
    def __init__(self, broker: BrokerProcess, topic: str) -> None:
        self.topic, self.group = topic, f"g-{topic}"
        self._url = broker.url
        self._places = [ck.TopicPartition(topic, number) for number in range(3)]
        admin = AdminClient({"bootstrap.servers": broker.bootstrap})
        admin.create_topics([NewTopic(topic, 3)])[topic].result(60)
        producer = ck.Producer({"bootstrap.servers": broker.bootstrap})
        for number in range(3 * COUNT):
            at_ms = FIRST_MS + number // 3 * 1000
            producer.produce(topic, b"m", partition=number % 3, timestamp=at_ms)
        assert producer.flush(60) == 0
        self._reader = ck.Consumer({"bootstrap.servers": broker.bootstrap, "group.id": self.group})
        self.back()

    def back(self) -> None:
        """To where the story begins."""
        offsets = [ck.TopicPartition(self.topic, number, offset) for number, offset in COMMITTED.items()]
        self._reader.commit(offsets=offsets, asynchronous=False)

    def committed(self) -> dict[int, int]:
        """As Kafka's client reads it."""
        return {
            place.partition: place.offset
            for place in self._reader.committed(self._places, 60)
            if place.offset >= 0
        }

    def command(self, *words: str) -> Any:
        ran = CliRunner().invoke(main, ["group", *words, "--json"], prog_name="headrace")
        assert ran.exit_code == Exit.OK, ran.output
        return json.loads(ran.stdout)

    def http(self, path: str, body: dict[str, Any] | None = None) -> Any:
        request = urllib.request.Request(
            f"{self._url}/api/v1/groups{path}",
            None if body is None else json.dumps(body).encode(),
            {"Content-Type": "application/json"},
        )
        with urllib.request.urlopen(request, timeout=60) as answered:
            return json.load(answered)

    def typed(self, to: str, *more: str) -> dict[int, tuple[int | None, int]]:
        rows = self.command("seek", self.group, "--to", to, *more)["items"]
        return {row["partition"]: (row["before"], row["after"]) for row in rows}

    def posted(self, to: str, **more: Any) -> dict[int, tuple[int | None, int]]:
        rows = self.http(f"/{self.group}/seek", {"to": to, **more})["partitions"]
        return {row["partition"]: (row["from_offset"], row["to_offset"]) for row in rows}

    def close(self) -> None:
        self._reader.close()


@pytest.fixture
def doors(
    broker: BrokerProcess, topic: str, monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> Iterator[Doors]:
    monkeypatch.setenv("HEADRACE_BOOTSTRAP", broker.bootstrap)
    monkeypatch.setenv("HEADRACE_URL", broker.url)
    monkeypatch.chdir(tmp_path)
    found = Doors(broker, topic)
    yield found
    found.close()


@pytest.mark.parametrize("named", [True, False], ids=["of one topic", "of all"])
def test_f14_seek_has_one_meaning_at_every_door(doors: Doors, named: bool) -> None:
    age_s = int(time.time()) - FIRST_MS // 1000
    wanted = {
        "-2": (8, 8, 8), "+2": (6, 8, 2), "2": (2, 2, 2), "start": (0, 0, 0), "beginning": (0, 0, 0), "earliest": (0, 0, 0),
        "end": (10, 10, 10), "latest": (10, 10, 10), "-99": (0, 0, 0), "+99": (10, 10, 10), "99": (10, 10, 10),
        f"@{FIRST_MS + 5_000}": (5, 5, 5), f"@{FIRST_MS // 1000 + 5}": (5, 5, 5), "@2026-10-26T07:33:25Z": (5, 5, 5),
        "@2026-10-26T07:33:25": (5, 5, 5), "@1970-01-01": (0, 0, 0), "@1969-12-31": (0, 0, 0), "@2100-01-01": (10, 10, 10),
        f"@{age_s + 3600}s": (0, 0, 0),
    }  # fmt: skip
    if age_s > 3600:  # by this machine's clock they are long written
        wanted["@1s"] = (10, 10, 10)
    for to, after in wanted.items():
        plan = {number: (COMMITTED.get(number), offset) for number, offset in enumerate(after)}
        flags = ("--topic", doors.topic) if named else ()
        body = {"topic": doors.topic} if named else {}
        doors.back()
        before = doors.committed()
        plan = {number: (before.get(number), now) for number, (_, now) in plan.items()}
        if to.startswith("+"):
            plan[2] = (plan[2][0], min(COUNT, before.get(2, 0) + int(to)))
        assert doors.typed(to, *flags, "--dry-run") == plan, to
        assert doors.posted(to, **body, dry_run=True) == plan, to
        assert doors.committed() == before, f"{to}: a dry run moved it"
        moved = {number: now for number, (_, now) in plan.items()}
        assert doors.typed(to, *flags, "--yes") == plan, to
        assert doors.committed() == moved, to
        doors.back()
        again = {
            **plan,
            2: (moved[2], moved[2] if not to.startswith("+") else min(COUNT, moved[2] + int(to))),
        }
        assert doors.posted(to, **body) == again, to
        assert doors.committed() == {number: now for number, (_, now) in again.items()}, to


@pytest.mark.parametrize("to", ["middle", "", "@", "@soon", "--2", "+", "++2", "1.5", "@+2", "²"])
def test_f14_what_is_no_place_is_none_at_any_door(doors: Doors, to: str) -> None:
    ran = CliRunner().invoke(main, ["group", "seek", doors.group, f"--to={to}", "--yes"])
    assert ran.exit_code == Exit.USAGE, ran.output
    with pytest.raises(urllib.error.HTTPError, match="400"):
        doors.posted(to)
    assert doors.committed() == COMMITTED


def test_f14_a_group_without_commits_is_not_moved_in_silence(doors: Doors) -> None:
    nobody = f"nobody-{doors.topic}"
    ran = CliRunner().invoke(main, ["group", "seek", nobody, "--to", "end", "--yes"])
    assert ran.exit_code == Exit.NOT_FOUND
    with pytest.raises(urllib.error.HTTPError, match="404"):
        doors.http(f"/{nobody}/seek", {"to": "end"})


def test_every_door_counts_the_same_lag(doors: Doors, broker: BrokerProcess) -> None:
    """As Kafka's own tool does: to the end of the log, an open transaction included; where nothing is committed there is no lag to know."""
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, "transactional.id": f"t-{doors.topic}"})
    producer.init_transactions(60)
    producer.begin_transaction()
    for _ in range(3):
        producer.produce(doors.topic, b"open", partition=0)
    assert producer.flush(60) == 0
    lag = COUNT + 3 - COMMITTED[0] + COUNT - COMMITTED[1]
    (described,) = doors.command("describe", doors.group)["items"]
    assert [row["lag"] for row in described["offsets"]] == [9, 4, None]
    (summed,) = doors.command("lag", doors.group)["items"]
    explained, shown = doors.command("explain", doors.group), doors.http(f"/{doors.group}")
    assert [row["lag"] for row in shown["partitions"]] == [9, 4, None]
    assert {described["lag"], summed["lag"], explained["lag"], shown["lag"]} == {lag}
    causes = {one["cause"]: one["sentence"] for one in explained["findings"]}
    assert f"{COUNT} messages in them" in causes["no_commit"] and "3 records" in causes["open_transaction"]

    def sampled() -> int | None:
        rows = doors.http("?with=lag&limit=1000")["items"]
        return next(row["lag"] for row in rows if row["name"] == doors.group)

    until(lambda: sampled() == lag, 60)
    producer.abort_transaction(60)
    table = CliRunner().invoke(main, ["group", "describe", doors.group]).stdout
    assert table.splitlines()[-1].split()[-2:] == ["-", "-"], table
