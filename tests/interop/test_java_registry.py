"""Java's registry client against the registry of a broker (specs/tables.md 3): Confluent's own, in the bundle that Maven Central has it in."""

from __future__ import annotations

import json
import subprocess
from pathlib import Path

import pytest
from confluent_kafka import Producer
from confluent_kafka.schema_registry import SchemaRegistryClient
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.serialization import MessageField, SerializationContext

from headrace import Client
from headrace.testing import LocalBroker

HERE = Path(__file__).parent / "registry"
KEPT = HERE.parent.parent.parent / ".interop"
WITH_NOTE = {
    "type": "record",
    "name": "Order",
    "fields": [{"name": "id", "type": "long"}, {"name": "note", "type": "string", "default": ""}],
}


def class_path() -> str:
    jars = KEPT / "registry-client"
    if not jars.exists():
        copy = ["mvn", "-q", "-B", "dependency:copy-dependencies", "-DincludeScope=runtime"]
        subprocess.run([*copy, f"-DoutputDirectory={jars}"], cwd=HERE, check=True)
    return f"{jars}/*"


@pytest.mark.timeout(600)
def test_java_and_python_share_a_registry() -> None:
    """Python writes, Java registers, writes and reads both, Python reads what Java wrote."""
    path = class_path()
    with LocalBroker() as broker:
        topic = broker.create_topic("orders")
        registry = SchemaRegistryClient({"url": f"{broker.url}/schemas"})
        value = SerializationContext(topic, MessageField.VALUE)
        # Under another subject: the topic's own is Java's to make.
        naming = {"subject.name.strategy": lambda context, name: "of-python"}
        written = AvroSerializer(registry, json.dumps(WITH_NOTE), conf=naming)(
            {"id": 7, "note": "from Python"}, value
        )
        producer = Producer({"bootstrap.servers": broker.bootstrap})
        producer.produce(topic, written)
        assert producer.flush(60) == 0

        command = ["java", "-cp", path, str(HERE / "Registry.java")]
        places = [broker.bootstrap, f"{broker.url}/schemas", topic]
        done = subprocess.run([*command, *places], capture_output=True, text=True, timeout=400)
        assert "REGISTRY OK" in done.stdout, done.stdout + done.stderr

        read = AvroDeserializer(registry)
        with Client(broker.bootstrap) as client:
            orders = [read(message.value, value) for message in client.subscribe(topic, follow=False)]
    assert [order["note"] for order in orders] == ["from Python", *["from Java"] * 3]
