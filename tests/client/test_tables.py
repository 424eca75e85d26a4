"""F53: every command that prints a table keeps within 80 columns, whatever the things in it are called.

The commands are those of the tree: one that comes later is looked at here, or the list below says why not."""

from __future__ import annotations

import re
import subprocess
import sys
import unicodedata
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import click
import pytest
from confluent_kafka import Consumer, TopicPartition
from printed import as_promised
from terminal import COLUMNS, look_at
from webhook_endpoint import ALLOW, Reply, Server, until

from headrace.cli.leaf import Leaf
from headrace.cli.main import main
from headrace.cli.output import Shape
from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(600)]

LONG = "a-name-that-somebody-took-much-time-to-think-of"
TOPIC = f"orders-{LONG}-and-then-some-more-of-it-because-topics-may-have-249"
GROUP = "請求書を作るグループ・とても長い名前が付いています・éèü・" * 3
QUEUE = f"jobs-{LONG}"
FIFO = f"{QUEUE}.fifo"
TENANT = f"tenant-{LONG}"[:40]
ELSEWHERE = {
    "sql": "needs Spark; its rows go through the same Output.items",
    "cluster drain": "needs a second broker; TOPIC, PARTITION and ids through the same Output.items",
    "cluster rebalance": "as drain",
    "cluster elect": "as drain: a broker alone has nobody to elect",
    "acl suggest": "prints commands to be copied whole, not a table",
    "security audit": "a broker in mode open has nothing to tell; its rows go through the same Output.items",
}
LINES = ["cluster status", "queue describe", "security status", "cert show", "bench produce"]
"""Of those that speak of one thing, the ones that show its parts below each other."""
PROSE = (
    TOPIC,
    GROUP,
    "view-",
    "  where ",
    "RECEIPT",
    "Acknowledge with:",
    "Files, weakest first:",
    "state: ",
)
"""A title or a sentence wraps as sentences do, and what is there to be copied is never cut."""


def tables(group: click.Group = main, path: tuple[str, ...] = ()) -> Iterator[str]:
    ctx = click.Context(group)
    for name in group.list_commands(ctx):
        command = group.get_command(ctx, name)
        if isinstance(command, click.Group):
            yield from tables(command, (*path, name))
        elif isinstance(command, Leaf) and command.shape is Shape.ITEMS:
            yield " ".join((*path, name))


def cells(line: str) -> int:
    """As a terminal counts."""
    return sum(
        0 if unicodedata.combining(char) else 2 if unicodedata.east_asian_width(char) in "WF" else 1
        for char in line
    )


class Terminal:
    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.seen: dict[str, list[str]] = {}
        self._home = home
        self._environment = {
            "HEADRACE_BOOTSTRAP": broker.bootstrap,
            "HEADRACE_URL": broker.url,
            "HEADRACE_TIMEOUT": "60s",
            "HOME": str(home),
            "XDG_CONFIG_HOME": str(home / "config"),
            "XDG_DATA_HOME": str(home / "data"),
        }

    def ask(self, *commands: list[str]) -> list[Any]:
        """As programs do."""
        shown = look_at([[*words, "--json"] for words in commands], self._environment, self._home)
        return [as_promised(one.lines[0])["items"] for one in shown]

    def type(self, *commands: list[str]) -> None:
        shown = look_at(commands, self._environment, self._home)
        for words, (code, lines) in zip(commands, shown, strict=True):
            assert code == 0 or words[0] == "doctor", (words, lines)
            verb = next((v for n in (3, 2) if (v := " ".join(words[:n])) in EVERY), words[0])
            self.seen.setdefault(verb, []).extend(lines)


EVERY = {*tables(), *LINES}


@pytest.fixture
def world(tmp_path: Path) -> Iterator[tuple[BrokerProcess, Terminal]]:
    key = tmp_path / "secrets.key"
    key.write_text("5f" * 32)
    key.chmod(0o600)
    with BrokerProcess(environment=ALLOW, arguments=("--secrets-key-file", str(key))) as broker:
        yield broker, Terminal(broker, tmp_path)


def test_f53_every_table_fits(world: tuple[BrokerProcess, Terminal], tmp_path: Path) -> None:
    broker, terminal = world
    server = Server()
    endpoint = server.endpoint()
    endpoint.behave = lambda got, number: Reply(500, body=b"there is no such thing here " * 20)
    definition = tmp_path / "p.toml"
    definition.write_text(
        f'kind = "archive"\nname = "pipe-{LONG}"\ntopics = ["{TOPIC}"]\npath = "a"\nstate = "state"\n'
    )
    (tmp_path / "order.avsc").write_text('{"type": "record", "name": "Order", "fields": []}')
    create = ["queue", "create", QUEUE, "--dlq", f"dead-{LONG}", "--max-receives", "1", "--visibility", "0s"]
    terminal.type(
        ["topic", "create", TOPIC, f"other-{LONG}", "-p", "2"],
        ["topic", "produce", TOPIC, "word " * 60, "語" * 100],
        ["queue", "create", f"dead-{LONG}"],
        create,
        ["queue", "send", QUEUE, "語 word " * 60],
        ["queue", "send", QUEUE, "later", "--delay", "1d"],
        ["queue", "receive", QUEUE],
        ["queue", "receive", QUEUE],  # by now it is a dead letter
        ["queue", "create", f"held-{LONG}"],
        ["queue", "send", f"held-{LONG}", "held " * 60],
        ["queue", "peek", f"held-{LONG}"],
        ["queue", "receive", f"held-{LONG}"],
        ["subscription", "create", f"sub-{LONG}", TOPIC],
        ["view", "create", f"view-{LONG}", "--of", TOPIC, "--where", f'tag == "{LONG * 3}"'],
        ["schedule", "add", f"cron-{LONG}", "0 0 1 1 *", TOPIC, "word " * 60],
        ["queue", "create", f"pushed-{LONG}"],
        ["webhook", "add", f"pushed-{LONG}", endpoint.url, "--name", f"hook-{LONG}"],
        ["queue", "send", f"pushed-{LONG}", "x"],
        ["user", "create", f"user-{LONG}", "--generate"],
        ["acl", "add", f"user-{LONG}", "read,write,describe", "topic", TOPIC],
        ["acl", "copy", f"copy-{LONG}", f"user-{LONG}"],
        ["token", "create", "--label", f"token-{LONG}", "--user", f"user-{LONG}"],
        ["key", "create", "--label", f"key-{LONG}", "--user", f"user-{LONG}"],
        ["context", "add", f"context-{LONG}", "-b", f"broker-1.{LONG}.example:9092,broker-2.{LONG}.example:9092"],
        ["pipeline", "submit", str(definition)],
        ["cert", "ca", "--out", "ca.pem", "--subject", LONG],
        ["queue", "create", FIFO, "--fifo"],
        ["queue", "send", FIFO, "word " * 60, "second", "--group", f"customer-{LONG}-{LONG}"],
        ["queue", "receive", FIFO],
        ["schema", "register", f"{TOPIC}-value", "order.avsc"],
        ["tenant", "create", TENANT, "--produce", "10MB", "--consume", "20MB", "--requests", "50"],
    )  # fmt: skip
    reader = Consumer({"bootstrap.servers": broker.bootstrap, "group.id": GROUP, "client.id": LONG})
    reader.commit(offsets=[TopicPartition(TOPIC, 0, 0)], asynchronous=False)
    until(lambda: len(endpoint.got) > 1, 120)
    supervisor = subprocess.Popen(
        [sys.executable, str(Path(__file__).parent / "supervisor_process.py"), broker.bootstrap, str(tmp_path / "work")],
        stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL,
    )  # fmt: skip
    try:

        def has_failed() -> bool:
            (runs,) = terminal.ask(["pipeline", "history", f"pipe-{LONG}"])
            return any(run["error"] for run in runs)

        until((tmp_path / "state").is_dir, 240)
        (tmp_path / "state" / "end").write_text(f"1 {'it did not work out ' * 20}")
        until(has_failed, 240)
        terminal.seen.clear()
        _look(terminal)
    finally:
        supervisor.terminate()
        supervisor.wait()
        reader.close()
        endpoint.end.set()
        server.http.shutdown()
        server.http.server_close()
    _take_away(terminal)
    assert not EVERY - terminal.seen.keys() - ELSEWHERE.keys(), "nobody looked at these"
    assert not [verb for verb in EVERY & terminal.seen.keys() if not any(terminal.seen[verb])], (
        "nothing to look at"
    )
    too_long = [
        (verb, line)
        for verb in sorted(EVERY & terminal.seen.keys())
        for line in terminal.seen[verb]
        if cells(line) > COLUMNS and not line.startswith(PROSE)
    ]
    assert not too_long
    cut = [
        line
        for lines in terminal.seen.values()
        for line in lines
        if re.search(r"\d{4}-\d\d-\d\dT[\d:.]*…", line)
    ]
    assert not cut, "half a time tells nobody anything"


def _look(terminal: Terminal) -> None:
    terminal.type(
        ["topic", "create", f"third-{LONG}"], ["topic", "list"], ["topic", "describe", TOPIC], ["topic", "search", TOPIC],
        ["view", "list"], ["view", "describe", f"view-{LONG}"], ["group", "list"], ["group", "describe", GROUP],
        ["group", "lag", GROUP], ["group", "seek", GROUP, "--to", "end", "--dry-run"],
        ["queue", "list"], ["queue", "describe", QUEUE], ["queue", "locks", f"held-{LONG}"], ["queue", "peek", QUEUE],
        ["queue", "explain", f"held-{LONG}"], ["queue", "settle", f"held-{LONG}", "--all", "--extend", "60s"],
        ["queue", "send", f"held-{LONG}", "one", "two"], ["queue", "receive", f"held-{LONG}"],
        ["dlq", "list"], ["dlq", "peek", f"dead-{LONG}"], ["dlq", "redrive", f"dead-{LONG}"], ["dlq", "status", f"dead-{LONG}"],
        ["schedule", "list"], ["schedule", "list", QUEUE], ["subscription", "list"],
        ["webhook", "list"], ["webhook", "deliveries", f"hook-{LONG}"],
        ["user", "list"], ["acl", "add", f"user-{LONG}", "read", "group", GROUP], ["acl", "list"],
        ["acl", "grant", f"user-{LONG}", "reader", "--prefix", LONG], ["acl", "revoke", f"user-{LONG}", "reader", "--prefix", LONG],
        ["cluster", "happenings"],
        ["acl", "copy", f"copy-{LONG}", f"user-{LONG}"], ["token", "list"], ["key", "list"],
        ["quota", "set", "--user", f"user-{LONG}", "--produce", "1MB"], ["quota", "list"], ["topic", "writers", TOPIC],
        ["cluster", "config", "get"], ["cluster", "nodes"], ["cluster", "partitions"], ["cluster", "status"], ["security", "status"],
        ["pipeline", "list"], ["pipeline", "history", f"pipe-{LONG}"], ["pipeline", "checkpoint", f"pipe-{LONG}"],
        ["top", "--once"], ["doctor"], ["context", "list"],
        ["config", "show"], ["config", "show", "--origin"], ["cheat"],
        ["cluster", "config", "set", "log.retention.ms=86400000"], ["cluster", "config", "set", "--unset", "log.retention.ms"],
        ["group", "copy-offsets", GROUP, f"copy-{GROUP}", "--yes"], ["topic", "trace", TOPIC, "0", "0"], ["topic", "trim", TOPIC, "--before", "end", "--dry-run"],
        ["queue", "groups", FIFO], ["queue", "stats"], ["schema", "list"], ["tenant", "list"],
        ["cert", "show", "ca.pem"], ["bench", "produce", "-t", f"bench-{LONG}", "-n", "10", "--no-progress"],
    )  # fmt: skip


def _take_away(terminal: Terminal) -> None:
    found = terminal.ask(["queue", "receive", f"held-{LONG}"], ["token", "list"], ["key", "list"])
    receipt, token, key = (items[0] for items in found)
    terminal.type(
        ["queue", "ack", f"held-{LONG}", receipt["receipt"]], ["token", "delete", token["id"]], ["key", "delete", key["id"]],
        ["acl", "remove", f"user-{LONG}", "read", "topic", TOPIC], ["user", "delete", f"user-{LONG}", "--yes"],
        ["subscription", "delete", f"sub-{LONG}", "--yes"], ["webhook", "remove", f"hook-{LONG}", "--yes"],
        ["topic", "trim", TOPIC, "--before", "end", "--yes"], ["group", "delete-offsets", f"copy-{GROUP}", "-t", TOPIC, "--yes"],
        ["quota", "delete", "--user", f"user-{LONG}"], ["schema", "delete", f"{TOPIC}-value", "--yes"], ["tenant", "delete", TENANT, "--yes"],
        ["view", "delete", f"view-{LONG}", "--yes"], ["group", "delete", GROUP, "--yes"], ["context", "rm", f"context-{LONG}"],
        ["topic", "delete", f"other-{LONG}", "--yes"], ["queue", "delete", QUEUE, "--yes"],
    )  # fmt: skip
