"""`headrace schema`, `topic consume --decode`: as a person types them."""

from __future__ import annotations

import json
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from click.testing import CliRunner
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer
from confluent_kafka.serialization import MessageField, SerializationContext
from printed import as_promised

from headrace.cli.main import main
from headrace.testing import LocalBroker

pytestmark = pytest.mark.client

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
PROTO = 'syntax = "proto3"; package shop; message Order { int64 id = 1; message Line { string code = 1; } }'


@pytest.fixture(scope="module")
def local() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


def run(local: LocalBroker, *words: str, http: bool = True) -> Any:
    place = ("--url", local.url) if http else ("-b", local.bootstrap)
    return CliRunner().invoke(main, [*words, *place], prog_name="headrace")


def shown(result: Any) -> Any:
    assert result.exit_code == 0, result.stderr
    return as_promised(result.stdout)


def test_register_look_check_and_delete(local: LocalBroker, tmp_path: Path) -> None:
    file = tmp_path / "order.avsc"
    file.write_text(json.dumps(ORDER))
    first = shown(run(local, "schema", "register", "cli-value", str(file), "--json"))
    assert (first["version"], first["type"]) == (1, "AVRO")
    assert json.loads(run(local, "schema", "get", "cli-value").stdout) == ORDER
    assert shown(run(local, "schema", "get", "--id", str(first["id"]), "--json"))["text"] == first["text"]

    file.write_text(json.dumps({**ORDER, "fields": [{"name": "id", "type": "string"}]}))
    checked = run(local, "schema", "check", "cli-value", str(file), "--json")
    assert checked.exit_code == 6
    assert not json.loads(checked.stdout)["is_compatible"]
    assert "TYPE_MISMATCH" in json.loads(checked.stdout)["problems"][0]
    refused = run(local, "schema", "register", "cli-value", str(file))
    assert refused.exit_code == 6 and "TYPE_MISMATCH" in refused.stderr
    assert shown(run(local, "schema", "compat", "cli-value", "--set", "none", "--json"))["level"] == "NONE"
    assert shown(run(local, "schema", "register", "cli-value", str(file), "--json"))["version"] == 2
    assert shown(run(local, "schema", "compat", "cli-value", "--unset", "--json"))["level"] == "BACKWARD"

    listed = shown(run(local, "schema", "list", "--json"))["items"]
    assert [(row["subject"], row["versions"]) for row in listed] == [("cli-value", [1, 2])]
    assert run(local, "schema", "delete", "cli-value").exit_code == 2, "nobody is here to ask"
    planned = shown(run(local, "schema", "delete", "cli-value", "--dry-run", "--json"))
    assert [row["version"] for row in planned["items"]] == [1, 2]
    shown(run(local, "schema", "delete", "cli-value", "1", "--yes", "--json"))
    assert run(local, "schema", "get", "cli-value", "1").exit_code == 3
    shown(run(local, "schema", "delete", "cli-value", "--permanent", "--yes", "--json"))
    assert run(local, "schema", "get", "cli-value").exit_code == 3


def test_values_are_shown_as_what_they_say(local: LocalBroker, tmp_path: Path) -> None:
    topic = local.create_topic("decoded")
    registry = SchemaRegistryClient({"url": f"{local.url}/schemas"})
    value = AvroSerializer(registry, json.dumps(ORDER))(
        {"id": 7}, SerializationContext(topic, MessageField.VALUE)
    )
    file = tmp_path / "order.proto"
    file.write_text(PROTO)
    proto = shown(run(local, "schema", "register", "decoded-proto", str(file), "--json"))
    nested = b"\0" + proto["id"].to_bytes(4, "big") + bytes((4, 0, 0)) + b"\x0a\x03abc"
    with local.client() as client:
        for payload in (value, nested, b"plain", b"\0\0\0\0\x63unknown", value[:5]):
            client.publish(topic, payload)
        client.flush()
    result = run(local, "topic", "consume", topic, "--decode", "--json", http=False)
    rows = [json.loads(line)["value"] for line in result.stdout.splitlines()]
    assert rows[:3] == [{"id": 7}, {"code": "abc"}, "plain"]
    assert len(rows) == 5
    assert "1 value could not be read" in result.stderr
    only = run(local, "topic", "consume", topic, "--decode", "--where", "value.id > 5", http=False)
    assert only.stdout == '{"id":7}\n'


def test_values_go_out_as_a_schema_says(local: LocalBroker, tmp_path: Path) -> None:
    """And are read back by confluent-kafka's own, and by --decode."""
    topic = local.create_topic("encoded")
    shop = 'syntax = "proto3"; package shop; message Order { int64 id = 1; repeated string notes = 2; }'
    closed = {"type": "object", "properties": {"id": {"type": "integer"}}, "additionalProperties": False}
    order = {
        **ORDER,
        "fields": [*ORDER["fields"], {"name": "note", "type": ["null", "string"], "default": None}],
    }
    for kind, suffix, text in (
        ("avro", "avsc", json.dumps(order)),
        ("proto", "proto", shop),
        ("json", "json", json.dumps(closed)),
    ):
        file = tmp_path / f"order.{suffix}"
        file.write_text(text)
        shown(run(local, "schema", "register", f"encoded-{kind}", str(file), "--json"))
    for kind, value in (
        ("avro", {"id": 7, "note": "red"}),
        ("proto", {"id": "7", "notes": ["a"]}),
        ("json", {"id": 7}),
    ):
        done = run(
            local, "topic", "produce", topic, json.dumps(value), "--schema", f"encoded-{kind}", http=False
        )
        assert done.exit_code == 0, done.stderr
    read = run(local, "topic", "consume", topic, "--decode", "--json", http=False)
    rows = [json.loads(line)["value"] for line in read.stdout.splitlines()]
    assert rows == [{"id": 7, "note": "red"}, {"id": "7", "notes": ["a"]}, {"id": 7}]
    registry = SchemaRegistryClient({"url": f"{local.url}/schemas"})
    with local.client() as client:
        values = [message.value for message in client.subscribe(topic, follow=False)]
    where = SerializationContext(topic, MessageField.VALUE)
    assert AvroDeserializer(registry)(values[0], where) == {"id": 7, "note": "red"}
    assert JSONDeserializer(json.dumps(closed), schema_registry_client=registry)(values[2], where) == {
        "id": 7
    }

    lines = tmp_path / "lines.jsonl"
    lines.write_text('{"id": 8}\n{"id": "eight"}\n{"id": 9}\n')
    words = ("topic", "produce", topic, "--file", str(lines), "--schema", "encoded-avro")
    bad = run(local, *words, http=False)
    assert bad.exit_code == 2 and "message 2 is not what encoded-avro version 1 says" in bad.stderr
    nobody = run(local, "topic", "produce", topic, "{}", "--schema", "nothing-value", http=False)
    assert nobody.exit_code == 3
