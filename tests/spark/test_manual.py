"""F46: docs/pipelines.md, followed to the letter by somebody with an empty home directory: every command, every program and a run of every definition."""

from __future__ import annotations

import json
import re
import tomllib
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from manual_reader import Reader, follow
from spark_reader import SparkReader, steps

from headrace.spark.pipelines.examples import EXAMPLES
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.timeout(900)
PAGE = Path(__file__).parents[2] / "docs" / "pipelines.md"
SERVICE = "## As a service\n"
KEYS = '"s3.access-key-id" = "k"\n"s3.secret-access-key" = "s"\n'
"""The page has them in the environment, which the workers of this Spark were born without."""


def test_f46_from_nothing_to_a_supervised_table(java: None, tmp_path: Path) -> None:
    page = tmp_path / "service.md"
    page.write_text(PAGE.read_text().partition(SERVICE)[2].partition("\n## ")[0])
    reader = Reader(tmp_path / "home")
    try:
        follow(reader, page)
    finally:
        reader.leave()
    assert (tmp_path / "home" / "warehouse" / "catalog.db").exists()


@pytest.fixture
def store() -> Iterator[str]:
    """An object store with the page's bucket."""
    import boto3
    from moto.server import ThreadedMotoServer

    server = ThreadedMotoServer(ip_address="127.0.0.1", port=0)
    server.start()
    host, port = server.get_host_and_port()
    keys = {"aws_access_key_id": "k", "aws_secret_access_key": "s", "region_name": "us-east-1"}
    boto3.client("s3", endpoint_url=f"http://{host}:{port}", **keys).create_bucket(Bucket="lake")
    yield f"http://{host}:{port}"
    server.stop()


@pytest.fixture
def reader(
    spark: Any, broker: BrokerProcess, store: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> Iterator[SparkReader]:
    home = tmp_path / "home"
    elsewhere = {"other:9092": broker.bootstrap, "http://minio:9000": store, "/data/": f"{home}/"}
    somebody = SparkReader(home, elsewhere, monkeypatch)
    somebody.serve()
    yield somebody
    somebody.leave()


def test_f46_every_command_definition_and_program_of_the_page(reader: SparkReader) -> None:
    begun, _, rest = PAGE.read_text().partition(SERVICE)
    service, _, kinds = rest.partition("\n## ")
    produced = re.findall(r"^headrace topic produce .*", service, re.M)  # the rest of it: above
    for step in steps(begun):
        reader.type(step.text)
    for command in produced:
        reader.type(command)
    ended: dict[str, dict[str, Any]] = {}
    for language, text in steps(kinds):
        if language == "sh":
            reader.type(text)
        elif language == "json":
            reader.save("orders.schema.json", text)
        elif language == "toml":
            row = _run(reader, text)
            ended[row["name"]] = row
        elif named := re.match(r"# (\w+\.py)\n", text):
            reader.save(named[1], text)
        else:
            reader.execute(text)
    assert {row["kind"] for row in ended.values()} == set(EXAMPLES), "each kind has a definition"
    assert {row["state"] for row in ended.values()} == {"finished"}
    records = {name: row["records"] for name, row in ended.items()}
    assert records["orders-by-column"] == records["orders-in-the-lake"] == records["orders-mirror"] == 4
    assert records["orders-replay"] == 2 and records["orders-redrive"] == 1
    assert _values(reader, "orders-paid", 2) == {12.5, 7}
    assert _values(reader, "orders-known", 3) == {12.5, 3, 7}
    # Beside the tables, what an archive is made into: the page has it in its text.
    reader.type("headrace pipeline init table orders-table")
    reader.type("headrace pipeline convert orders-table.toml --archive archive/orders")


def _run(reader: SparkReader, text: str) -> dict[str, Any]:
    """As the page says: into a file, and run that."""
    definition = tomllib.loads(text)
    if definition["kind"] == "redrive":
        text = text.replace('url = ""', 'url = "http://localhost:9324"')  # the default port is not ours here
    if definition["warehouse" if "warehouse" in definition else "kind"].startswith("s3:"):
        text += KEYS
    file = reader.save(f"{definition['name']}.toml", text)
    row: dict[str, Any] = json.loads(reader.type(f"headrace pipeline run {file.name} --once --json"))
    return row


def _values(reader: SparkReader, topic: str, count: int) -> set[float]:
    shown = reader.type(f"headrace topic consume {topic} -n {count} --json")
    return {json.loads(json.loads(line)["value"])["amount"] for line in shown.splitlines()}
