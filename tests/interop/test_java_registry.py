"""Java's registry client and Confluent's serialiser for Avro against the registry of a broker (specs/tables.md 3), in the bundles that Maven Central has them in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path
from typing import Any

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headrace import Client
from headrace.testing import LocalBroker

HERE = Path(__file__).parent
KEPT = HERE.parent.parent / ".interop"
WITH_NOTE = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
}


BUNDLE = "org.apache.pinot:pinot-confluent-avro:1.5.0:jar:shaded"
"""A plug-in of Pinot that carries io.confluent whole, with Avro and Kafka's client. By itself: what its pom.xml goes on to ask for is only in Confluent's repository."""


def class_path(program: str) -> str:
    folder = HERE / Path(program).parent
    jars = KEPT / ("registry-client" if folder.name == "registry" else folder.name)
    if not jars.exists():
        copy = ["dependency:copy-dependencies", "-DincludeScope=runtime"]
        if not (folder / "pom.xml").exists():
            copy = ["dependency:copy", f"-Dartifact={BUNDLE}"]
        subprocess.run(["mvn", "-q", "-B", *copy, f"-DoutputDirectory={jars}"], cwd=folder, check=True)
    return f"{jars}/*"


def written_by_python(broker: LocalBroker, topic: str, registry: SchemaRegistryClient) -> None:
    # Under another subject: the topic's own is Java's to make.
    naming = {"subject.name.strategy": lambda context, name: "of-python"}
    serialize = AvroSerializer(registry, json.dumps(WITH_NOTE), conf=naming)
    value = serialize({"id": 7, "note": "from Python"}, SerializationContext(topic, MessageField.VALUE))
    producer = Producer({"bootstrap.servers": broker.bootstrap})
    producer.produce(topic, value)
    assert producer.flush(60) == 0


def read_by_python(broker: LocalBroker, topic: str, registry: SchemaRegistryClient) -> list[dict[str, Any]]:
    read = AvroDeserializer(registry)
    value = SerializationContext(topic, MessageField.VALUE)
    with Client(broker.bootstrap) as client:
        return [read(message.value, value) for message in client.subscribe(topic, follow=False)]


@pytest.mark.timeout(600)
@pytest.mark.parametrize(
    ("program", "notes"),
    [
        ("registry/Registry", ["from Python", *["from Java"] * 3]),
        ("serialisers/Serialisers", ["from Python", None, "from Java", "", "by record"]),
    ],
)
def test_java_and_python_share_a_registry(program: str, notes: list[str | None]) -> None:
    """Python writes, Java registers, writes and reads both, Python reads what Java wrote."""
    path = class_path(program)
    with LocalBroker() as broker:
        topic = broker.create_topic("orders")
        registry = SchemaRegistryClient({"url": f"{broker.url}/schemas"})
        written_by_python(broker, topic, registry)
        command = ["java", "-cp", path, str(HERE / f"{program}.java")]
        places = [broker.bootstrap, f"{broker.url}/schemas", topic]
        done = subprocess.run([*command, *places], capture_output=True, text=True, timeout=400)
        assert f"{Path(program).name.upper()} OK" in done.stdout, done.stdout + done.stderr
        orders = read_by_python(broker, topic, registry)
    assert [order.get("note") for order in orders] == notes
