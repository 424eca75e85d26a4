"""A23: when a token or an access key was last used is shown by the broker where it was at once, and by every other before long; and it outlives both."""

from __future__ import annotations

import json
from collections.abc import Iterator
from typing import Any

import boto3
import pytest
from click.testing import CliRunner
from secured import ADMIN, PASSWORD, Secured
from webhook_endpoint import until

from headrace.cli.main import main
from headrace.cli.user_view import scram_records
from headrace.testing.local_broker import LocalCluster

pytestmark = pytest.mark.client

HOUR_MS = 3_600_000


class World(Secured):
    def __init__(self, cluster: LocalCluster) -> None:
        self.cluster = cluster
        self.broker = cluster  # type: ignore[assignment]


@pytest.fixture
def world(tmp_path: Any) -> Iterator[World]:
    key = tmp_path / "secrets.key"
    key.write_text("0a" * 32 + "\n")
    key.chmod(0o600)
    with LocalCluster(2, num_partitions=1, secrets_key_file=str(key)) as cluster:
        made = World(cluster)
        made.ask(
            "POST", "/users", {"name": ADMIN, "scram": scram_records(PASSWORD, 4096), "super": True}, user=""
        )
        made.set_mode("enforced", user="")
        yield made


def listed(world: World, noun: str, url: str) -> Any:
    environment = {"HEADRACE_URL": url, "HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD": PASSWORD}
    done = CliRunner().invoke(main, [noun, "list", "-o", "json"], env=environment)
    assert done.exit_code == 0, done.output
    (item,) = json.loads(done.output)["items"]
    return item["last_used_ms"]


def test_a23_when_it_was_last_used_is_known_to_the_hour_everywhere(world: World) -> None:
    first, second = world.cluster.urls
    token = world.ask("POST", "/tokens", {"name": "ci"})["token"]
    key = world.ask("POST", "/keys", {"name": "ci"})
    assert listed(world, "token", first) is None and listed(world, "key", first) is None
    shown = CliRunner().invoke(
        main, ["token", "list"], env={"HEADRACE_URL": first, "HEADRACE_USER": ADMIN, "HEADRACE_PASSWORD": PASSWORD}
    )  # fmt: skip
    assert "never" in shown.output, shown.output

    def use() -> None:
        assert world.http("GET", "/api/v1/topics", token=token)[0] == 200

    # Once: when the clock has moved, a signature of now is too old.
    boto3.client(
        "sqs", endpoint_url=first, region_name="us-east-1", aws_access_key_id=key["id"], aws_secret_access_key=key["secret"]
    ).list_queues()  # fmt: skip
    use()
    at_ms = listed(world, "token", first)
    assert at_ms is not None and listed(world, "key", first) is not None
    assert listed(world, "token", second) is None, "the other has not heard of it yet"
    world.cluster.clock.advance(minutes=6)
    until(lambda: listed(world, "token", second) == at_ms)
    assert listed(world, "key", second) == listed(world, "key", first)

    revision = world.ask("GET", "")["revision"]
    use()
    world.cluster.clock.advance(minutes=6)
    assert world.ask("GET", "")["revision"] == revision, "within the hour nothing is written"
    assert listed(world, "token", first) > at_ms and listed(world, "token", second) == at_ms

    world.cluster.clock.advance(hours=1)
    use()
    later_ms = listed(world, "token", first)
    world.cluster.clock.advance(minutes=6)
    until(lambda: listed(world, "token", second) == later_ms)
    world.ask("DELETE", f"/tokens/{world.ask('GET', '/tokens')['items'][0]['id']}")
    world.cluster.clock.advance(minutes=6)
    assert world.ask("GET", "/tokens")["items"] == [], "what was deleted does not come back"
