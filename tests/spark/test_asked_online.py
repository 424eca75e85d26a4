"""What only the cluster, the stores and Spark can say about a definition before it runs (T19), and what a version has changed (T13)."""

from __future__ import annotations

import json
import os
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner, Result

from headrace.cli.main import main
from headrace.spark.sync_client import SyncClient
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(900)


class Desk:
    def __init__(self, broker: BrokerProcess, home: Path) -> None:
        self.broker, self.home = broker, home

    def pipeline(self, *words: str) -> Result:
        return CliRunner().invoke(
            main, ["pipeline", *words, "-b", self.broker.bootstrap], prog_name="headrace"
        )

    def file(self, text: str, name: str = "p") -> str:
        path = self.home / f"{name}.toml"
        path.write_text(f'name="{name}"\n{text}')
        return str(path)

    def wrong(self, text: str, name: str = "p") -> str:
        ran = self.pipeline("validate", self.file(text, name), "--online")
        assert ran.exit_code == 2, ran.output
        return ran.stderr


@pytest.fixture
def desk(broker: BrokerProcess, tmp_path: Path) -> Desk:
    return Desk(broker, tmp_path)


def test_t19_topics_that_are_not_there(desk: Desk, topic: str, client: SyncClient) -> None:
    target = f"{topic}-out"
    transform = (
        f'kind="transform"\ntopics=["{topic}"]\ntarget="{target}"\nsql="select key, value from source"'
    )
    assert f'"{target}" does not exist: headrace topic create' in desk.wrong(transform)
    client.create_topic(target)
    assert desk.pipeline("validate", desk.file(transform), "--online").exit_code == 0
    table = f'kind="table"\ntopic="{topic}x"\nwarehouse="w"'
    assert f'"{topic}x" does not exist' in desk.wrong(table)


def test_t19_what_it_writes_would_come_back(desk: Desk, topic: str, client: SyncClient) -> None:
    """Through a view of its target, and through a pipeline that is submitted."""
    client.create_topic(f"{topic}-b")
    client.create_topic(
        f"{topic}-view", configs={"headrace.view.source": topic, "headrace.view.where": "key == 'a'"}
    )
    sql = 'sql="select key, value from source"'
    through_view = f'kind="transform"\ntopics=["{topic}-view"]\ntarget="{topic}"\n{sql}'
    assert f'comes back to it as "{topic}-view"' in desk.wrong(through_view)
    there = desk.file(f'kind="transform"\ntopics=["{topic}"]\ntarget="{topic}-b"\n{sql}', f"there-{topic}")
    assert desk.pipeline("submit", there).exit_code == 0
    back = f'kind="transform"\ntopics=["{topic}-b"]\ntarget="{topic}"\n{sql}'
    assert f"({topic} -> {topic}-b)" in desk.wrong(back, "back")
    assert desk.pipeline("remove", f"there-{topic}", "--yes").exit_code == 0


def test_t19_stores_and_clusters(desk: Desk, topic: str, tmp_path: Path) -> None:
    (tmp_path / "file").write_text("no directory")
    assert "can be written to" in desk.wrong(f'kind="table"\ntopic="{topic}"\nwarehouse="file/w"')
    registry = f'kind="table"\ntopic="{topic}"\nwarehouse="w"\nschema_registry="http://127.0.0.1:9"'
    assert "topics." in desk.wrong(registry) or "registry" in desk.wrong(registry)
    port = desk.broker.bootstrap.rsplit(":", 1)[1]
    mirror = f'kind="mirror"\ntopics=["{topic}"]\ntarget_bootstrap="localhost:{port}"'
    assert "is the cluster itself" in desk.wrong(mirror)


@pytest.mark.parametrize(
    ("text", "said"),
    [
        ('sql="select key, vaule as value from source"', "vaule"),
        ('sql="select key, no_such_function(value) as value from source"', "no_such_function"),
        ('sql="select key from source"', "no column value"),
    ],
)
def test_t19_spark_has_read_the_sql(
    desk: Desk, topic: str, client: SyncClient, spark: Any, text: str, said: str
) -> None:
    client.create_topic(f"{topic}-out")
    assert said in desk.wrong(f'kind="transform"\ntopics=["{topic}"]\ntarget="{topic}-out"\n{text}')


def test_t13_what_a_version_has_changed(desk: Desk, topic: str) -> None:
    name = f"kept-{topic}"
    one = f'kind="table"\ntopic="{topic}"\nwarehouse="w"\nevery="10s"\n'
    assert desk.pipeline("submit", desk.file(one, name)).exit_code == 0
    changed = desk.file(one.replace("10s", "60s"), name)
    told = desk.pipeline("diff", name, changed).stdout
    assert '-every="10s"' in told and '+every="60s"' in told
    assert desk.pipeline("submit", changed).exit_code == 0
    row = json.loads(desk.pipeline("diff", name, "--json").stdout)
    assert (row["before"], row["after"], row["same"]) == ("version 1", "version 2", False)
    assert '+every="60s"' in row["diff"]
    assert "the same" in desk.pipeline("diff", name, changed).stdout
    assert desk.pipeline("diff", name, "--version", "9").exit_code != 0
    assert desk.pipeline("remove", name, "--yes").exit_code == 0
    os.unlink(changed)
