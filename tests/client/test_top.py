"""`headrace top`: brokers, topics, groups, queues, what is behind and rates, of the whole cluster, on a screen of 80 by 24 that is given back."""

from __future__ import annotations

import contextlib
import fcntl
import os
import pty
import re
import select
import signal
import struct
import subprocess
import sys
import termios
import time
from collections.abc import Iterator
from pathlib import Path

import pytest
from click.testing import CliRunner
from confluent_kafka import Consumer, TopicPartition
from printed import as_promised

from headrace.cli.main import main
from headrace.cli.top import _shares
from headrace.testing import LocalCluster, eventually

pytestmark = pytest.mark.client

KINDS = {"broker", "topic", "group", "queue"}


@pytest.fixture(scope="module")
def busy() -> Iterator[LocalCluster]:
    with LocalCluster(3) as cluster:
        for number in range(12):
            cluster.create_topic(f"topic-{number}", partitions=3)
            cluster.create_queue(f"queue-{number}")
        with cluster.client() as client:
            client.publish_many("topic-0", ["order"] * 100)
            client.send("queue-7", "waiting")
        reader = Consumer({"bootstrap.servers": cluster.bootstrap, "group.id": "billing"})
        reader.commit(
            offsets=[TopicPartition("topic-0", number, 0) for number in range(3)], asynchronous=False
        )
        reader.close()
        eventually(lambda: look(cluster), within=60)
        yield cluster


def look(cluster: LocalCluster) -> dict[str, list[dict[str, object]]]:
    done = CliRunner().invoke(main, ["top", "--json", "-b", cluster.bootstrap], prog_name="headrace")
    assert done.exit_code == 0, done.output
    found: dict[str, list[dict[str, object]]] = {kind: [] for kind in KINDS}
    for row in as_promised(done.stdout)["items"]:
        found.setdefault(row["kind"], []).append(row)
    behind = {str(row["name"]): row["amount"] for row in [*found["group"], *found["queue"]]}
    assert (behind.get("billing"), behind.get("queue-7")) == (100, 1), behind
    return found


def test_every_kind_is_there_with_its_numbers(busy: LocalCluster) -> None:
    found = look(busy)
    assert sorted(str(row["name"]).split()[0] for row in found["broker"]) == ["1", "2", "3"]
    assert sum(int(str(row["amount"])) for row in found["broker"]) > 3 * 12, "partitions that they lead"
    assert {row["name"]: row["amount"] for row in found["topic"]}["topic-0"] == 100
    assert all(row["free_bytes"] for row in found["broker"])


def test_once_and_in_a_pipe_it_is_tables(busy: LocalCluster) -> None:
    done = CliRunner().invoke(main, ["top", "-b", busy.bootstrap, "-n", "3"], prog_name="headrace")
    assert done.stdout.startswith("3 brokers, 24 topics\n\nBROKERS")
    assert [line.split()[0] for line in re.findall(r"\n\n(.+)", done.stdout)][:4] == [
        "BROKERS",
        "TOPICS",
        "GROUPS",
        "QUEUES",
    ]
    assert "\x1b" not in done.stdout
    done = CliRunner().invoke(main, ["top", "-b", busy.bootstrap, "-n", "1"], prog_name="headrace")
    assert len(done.stdout.split("\n\n")[1].splitlines()) == 4, (
        "a broker that is not shown looks like one that is gone"
    )


def test_a_screen_is_filled_not_overrun_and_given_back(busy: LocalCluster, tmp_path: Path) -> None:
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("COLUMNS", "LINES")}
    process = subprocess.Popen(
        [sys.executable, "-m", "headrace", "top", "-b", busy.bootstrap],
        stdin=theirs, stdout=theirs, stderr=theirs, env={**kept, "TERM": "xterm", "NO_COLOR": "1", "HEADRACE_TIMEOUT": "60s"}, cwd=tmp_path,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    deadline = time.monotonic() + 120
    while shown.count(b"\x1b[H") < 3 and time.monotonic() < deadline:
        if select.select([ours], [], [], 1)[0]:
            shown += os.read(ours, 65536)
    process.send_signal(signal.SIGINT)
    with contextlib.suppress(OSError):  # Linux says EIO when the last one has hung up
        while select.select([ours], [], [], 120)[0] and (piece := os.read(ours, 65536)):
            shown += piece
    os.close(ours)
    assert process.wait(120) == 130
    text = shown.decode()
    assert (
        text.index("\x1b[?1049h") < text.index("\x1b[H") < text.rindex("\x1b[J") < text.index("\x1b[?1049l")
    )
    _, *screens = text.split("\x1b[H")
    for screen in screens[:2]:
        lines = (
            screen.partition("\x1b[J")[0].replace("\x1b[K", "").replace("\r\n", "\n").rstrip("\n").split("\n")
        )
        assert 15 < len(lines) < 24 and max(map(len, lines)) <= 80, lines
        for kind in ("BROKERS", "TOPICS", "GROUPS", "QUEUES"):
            assert any(line.startswith(kind) for line in lines), (kind, lines)


def test_who_has_little_leaves_room_for_who_has_much() -> None:
    assert _shares([3, 12, 1, 12], 22) == [3, 5, 1, 5]
    assert _shares([3, 12], None) == [3, 12]
    assert _shares([5, 5, 5], 4) == [2, 0, 0]
