"""F55: the shell completes every name there is: of topics, groups, queues, subscriptions, webhooks, views, schedules, brokers,
users, tokens, contexts, messages that wait, redrives."""

from __future__ import annotations

import os
import re
import shlex
import subprocess
import sys
from pathlib import Path

import pytest
from made_groups import make_group
from terminal import look_at
from webhook_endpoint import until

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


def make(broker: BrokerProcess, home: Path, *commands: str) -> None:
    environment = {
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "HEADRACE_URL": broker.url,
        "HEADRACE_TIMEOUT": "60s",
        "XDG_CONFIG_HOME": str(home),
    }
    for command, shown in zip(
        commands, look_at(list(map(shlex.split, commands)), environment, home), strict=True
    ):
        assert shown.code == 0, (command, shown.lines)


def completed(broker: BrokerProcess, cache: Path, *words: str) -> list[str]:
    """What the shell offers. It asks for 300 ms and then keeps silent, so a busy machine is asked again."""
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "XDG_CACHE_HOME": str(cache),
        "XDG_CONFIG_HOME": str(cache),
        "HEADRACE_BOOTSTRAP": broker.bootstrap,
        "HEADRACE_URL": broker.url,
    }
    found: list[str] = []

    def offered() -> bool:
        ran = subprocess.run(
            [sys.executable, "-m", "headrace"], env=environment, capture_output=True, text=True, check=False
        )
        assert not ran.stderr, ran.stderr
        found[:] = [line.partition(",")[2] for line in ran.stdout.splitlines() if line]
        return bool(found)

    until(offered, 120)
    return found


def test_f55_every_name_is_completed(broker: BrokerProcess, topic: str, tmp_path: Path) -> None:
    kinds = ("topic", "queue", "sub", "hook", "view", "cron", "group", "user", "context")
    names = {kind: f"{kind}-{topic}" for kind in kinds}
    make(
        broker,
        tmp_path,
        f"topic create {names['topic']}",
        f"queue create dead-{topic}",
        f"queue create {names['queue']} --dlq dead-{topic} --max-receives 1 --visibility 0s",
        f"subscription create {names['sub']} {names['topic']}",
        f"webhook add {names['queue']} https://example.invalid/ --name {names['hook']}",
        f"schedule add {names['cron']} '0 0 1 1 *' {names['topic']} x",
        f"view create {names['view']} --of {names['topic']} --where 'tag == \"x\"'",
        f"user create {names['user']} --generate",
        f"token create --user {names['user']}",
        f"queue send {names['queue']} later --delay 1d",
        f"queue send {names['queue']} {' '.join(map(str, range(300)))}",
        *[f"queue receive {names['queue']} -n 1000"] * 2,  # now they are dead
        f"dlq redrive dead-{topic} --to {names['queue']} --rate 1/s --no-wait",
        f"context add {names['context']} -b {broker.bootstrap} --url {broker.url}",
    )
    make_group(broker, names["group"], names["topic"])
    for line, kind in (
        ("topic describe", "topic"),
        ("group describe", "group"),
        ("queue receive", "queue"),
        ("queue receive", "sub"),
        ("dlq redrive", "queue"),
        ("subscription delete", "sub"),
        ("webhook pause", "hook"),
        ("view describe", "view"),
        ("schedule cancel", "cron"),
        ("user disable", "user"),
        ("acl list", "user"),
        ("acl add alice read group", "group"),
        ("acl add alice read topic", "topic"),
        ("context use", "context"),
        ("topic list --context", "context"),
    ):
        begun = names[kind][: len(kind) + 3]
        offered = completed(broker, tmp_path, "headrace", *line.split(), begun)
        assert names[kind] in offered, (line, offered)
        assert all(name.startswith(begun) for name in offered)
    assert completed(broker, tmp_path, "headrace", "cluster", "drain", "") == ["1"]
    for line in (
        "token delete",
        "dlq cancel",
        f"schedule move {names['queue']}",
        f"schedule cancel --queue {names['queue']}",
    ):
        offered = completed(broker, tmp_path, "headrace", *line.split(), "")
        assert all(re.fullmatch("[0-9a-f-]{16,}", each) for each in offered), (line, offered)
