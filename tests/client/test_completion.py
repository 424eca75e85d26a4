"""F55: the shell completes every name there is: of topics, groups, queues, subscriptions, webhooks, views, schedules, brokers."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest
from made_groups import make_group
from webhook_endpoint import until

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


def make(broker: BrokerProcess, *words: str) -> None:
    environment = {**os.environ, "HEADRACE_BOOTSTRAP": broker.bootstrap, "HEADRACE_URL": broker.url}
    ran = subprocess.run(
        [sys.executable, "-m", "headrace", *words, "--timeout", "60s"],
        env=environment, capture_output=True, text=True, check=False,
    )  # fmt: skip
    assert ran.returncode == 0, ran.stderr


def completed(broker: BrokerProcess, cache: Path, *words: str) -> list[str]:
    """What the shell offers. It asks for 300 ms and then keeps silent, so a busy machine is asked again."""
    environment = {
        **os.environ,
        "_HEADRACE_COMPLETE": "bash_complete",
        "COMP_WORDS": " ".join(words),
        "COMP_CWORD": str(len(words) - 1),
        "XDG_CACHE_HOME": str(cache),
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
    names = {kind: f"{kind}-{topic}" for kind in ("topic", "queue", "sub", "hook", "view", "cron", "group")}
    make(broker, "topic", "create", names["topic"])
    make(broker, "queue", "create", names["queue"])
    make(broker, "subscription", "create", names["sub"], names["topic"])
    make(broker, "webhook", "add", names["queue"], "https://example.invalid/", "--name", names["hook"])
    make(broker, "schedule", "add", names["cron"], "0 0 1 1 *", names["topic"], "x")
    make(broker, "view", "create", names["view"], "--of", names["topic"], "--where", 'tag == "x"')
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
    ):
        begun = names[kind][: len(kind) + 3]
        offered = completed(broker, tmp_path, "headrace", *line.split(), begun)
        assert names[kind] in offered, (line, offered)
        assert all(name.startswith(begun) for name in offered)
    assert completed(broker, tmp_path, "headrace", "cluster", "drain", "") == ["1"]
