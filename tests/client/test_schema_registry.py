"""The schema registry through the door: confluent-kafka's own client and serialisers, unmodified, and three brokers that know the same."""

from __future__ import annotations

import importlib
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any
from urllib.request import urlopen

import pytest
from confluent_kafka import Consumer, KafkaException, Producer
from confluent_kafka.schema_registry import Schema, SchemaReference, SchemaRegistryClient, SchemaRegistryError
from confluent_kafka.schema_registry.avro import AvroDeserializer, AvroSerializer
from confluent_kafka.schema_registry.json_schema import JSONDeserializer, JSONSerializer
from confluent_kafka.schema_registry.protobuf import ProtobufDeserializer, ProtobufSerializer
from confluent_kafka.serialization import MessageField, SerializationContext
from grpc_tools import protoc

from headrace.testing import LocalBroker, LocalCluster
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

pytestmark = pytest.mark.client

ORDER = {"type": "record", "name": "Order", "fields": [{"name": "id", "type": "long"}]}
WITH_NOTE = {**ORDER, "fields": [*ORDER["fields"], {"name": "note", "type": "string", "default": ""}]}
WITHOUT_DEFAULT = {**ORDER, "fields": [*ORDER["fields"], {"name": "more", "type": "string"}]}
PROTO = """
syntax = "proto3";
package shop;
import "shop_address.proto";
message Order { int64 id = 1; repeated Address to = 2; message Inner { string note = 1; } }
"""
ADDRESS = 'syntax = "proto3"; package shop; message Address { string street = 1; }'


@pytest.fixture(scope="module")
def local() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        yield running


@pytest.fixture
def registry(local: LocalBroker) -> SchemaRegistryClient:
    return client_of(local.url)


def client_of(url: str, path: str = "/schemas") -> SchemaRegistryClient:
    return SchemaRegistryClient({"url": url + path, "max.retries": 0})


def avro(source: Any) -> Schema:
    return Schema(json.dumps(source), "AVRO")


def value_of(topic: str) -> SerializationContext:
    return SerializationContext(topic, MessageField.VALUE)


def test_versions_ids_and_deletion(local: LocalBroker, registry: SchemaRegistryClient) -> None:
    subject = "versions-value"
    first = registry.register_schema(subject, avro(ORDER))
    assert registry.register_schema(subject, Schema(json.dumps(ORDER, indent=4), "AVRO")) == first
    second = registry.register_schema(subject, avro(WITH_NOTE))
    assert registry.get_versions(subject) == [1, 2]
    assert json.loads(registry.get_schema(second).schema_str) == WITH_NOTE
    latest = registry.get_latest_version(subject)
    assert (latest.version, latest.schema_id) == (2, second)
    assert registry.lookup_schema(subject, avro(ORDER)).version == 1
    assert registry.register_schema("versions-other", avro(ORDER)) == first, "one schema has one id"
    assert sorted(registry.get_subjects_by_schema_id(first)) == ["versions-other", subject]
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema(subject, avro(WITHOUT_DEFAULT))
    assert refused.value.http_status_code == 409
    assert "READER_FIELD_MISSING_DEFAULT_VALUE" in str(refused.value)

    with pytest.raises(SchemaRegistryError) as early:
        registry.delete_subject(subject, permanent=True)
    assert early.value.http_status_code == 404  # what the client asks for in one call it must ask for in two
    assert registry.delete_version(subject, 1) == 1
    assert registry.get_versions(subject) == [2]
    assert registry.get_versions(subject, deleted=True) == [1, 2]
    assert registry.delete_subject(subject) == [2]
    assert subject not in registry.get_subjects()
    fresh = client_of(local.url)  # nothing in its cache
    assert fresh.get_schema(second).schema_str, "who has a record can still read it"
    with pytest.raises(SchemaRegistryError) as gone:
        fresh.get_latest_version(subject)
    assert gone.value.error_code == 40401
    assert registry._rest_client.delete(f"subjects/{subject}?permanent=true") == [1, 2]
    again = registry._rest_client.post(f"subjects/{subject}/versions", body={"schema": json.dumps(WITH_NOTE)})
    assert again["id"] > second, "an id never means something else"


def test_compatibility_levels(registry: SchemaRegistryClient) -> None:
    subject = "levels-value"
    registry.register_schema(subject, avro(WITH_NOTE))
    with pytest.raises(SchemaRegistryError) as unset:
        registry.get_compatibility(subject)
    assert unset.value.error_code == 40408
    assert registry.get_compatibility() == "BACKWARD"
    assert registry.test_compatibility(subject, avro(ORDER))
    registry.set_compatibility(subject, "FORWARD_TRANSITIVE")
    assert registry.get_compatibility(subject) == "FORWARD_TRANSITIVE"
    wider = {**ORDER, "fields": [{"name": "id", "type": "string"}]}
    assert not registry.test_compatibility(subject, avro(wider))
    registry.set_compatibility(subject, "NONE")
    assert registry.test_compatibility(subject, avro(wider))
    with pytest.raises(SchemaRegistryError) as unknown:
        registry.set_compatibility(subject, "SIDEWAYS")
    assert unknown.value.error_code == 42203
    registry.delete_config(subject)
    assert not registry.test_compatibility(subject, avro(wider))
    with pytest.raises(SchemaRegistryError) as bad:
        registry.register_schema("levels-bad", Schema("{", "AVRO"))
    assert (bad.value.http_status_code, bad.value.error_code) == (422, 42201)


def test_references_keep_what_they_rest_on(registry: SchemaRegistryClient) -> None:
    address = {"type": "record", "name": "shop.Address", "fields": [{"name": "street", "type": "string"}]}
    order = {**ORDER, "fields": [{"name": "to", "type": "shop.Address"}]}
    registry.register_schema("ref-address", avro(address))
    schema = Schema(json.dumps(order), "AVRO", [SchemaReference("shop.Address", "ref-address", 1)])
    identifier = registry.register_schema("ref-order", schema)
    assert registry.get_schema(identifier).references == schema.references
    assert registry.get_referenced_by("ref-address", 1) == [identifier]
    with pytest.raises(SchemaRegistryError) as held:
        registry.delete_version("ref-address", 1)
    assert held.value.error_code == 42206
    with pytest.raises(SchemaRegistryError) as missing:
        registry.register_schema("ref-order", Schema(json.dumps(order), "AVRO"))
    assert missing.value.error_code == 42201


def test_modes_contexts_and_import(registry: SchemaRegistryClient) -> None:
    registry.update_mode("modes-value", "READONLY")
    with pytest.raises(SchemaRegistryError) as refused:
        registry.register_schema("modes-value", avro(ORDER))
    assert refused.value.error_code == 42205
    registry.delete_mode("modes-value")
    registry.register_schema("modes-value", avro(ORDER))

    inside = ":.dev:orders-value"
    registry.update_mode(inside, "IMPORT")
    body = {"schema": json.dumps(ORDER), "id": 7_000, "version": 3}
    assert registry._rest_client.post("subjects/%3A.dev%3Aorders-value/versions", body=body) == {"id": 7_000}
    assert registry.get_versions(inside) == [3]
    assert ".dev" in registry.get_contexts()
    assert inside not in registry.get_subjects()
    assert registry.get_subjects(subject_prefix=":.dev:") == [inside]
    with pytest.raises(SchemaRegistryError):
        registry.get_schema(7_000)
    assert registry.get_schema(7_000, subject_name=inside).schema_str


def test_normalizing_makes_one_of_two(registry: SchemaRegistryClient) -> None:
    one, other = '{"type":"object","title":"t"}', '{"title":"t","type":"object"}'
    subject = "normal-value"
    assert registry.register_schema(subject, Schema(one, "JSON"), normalize_schemas=True) == (
        registry.register_schema(subject, Schema(other, "JSON"), normalize_schemas=True)
    )
    assert registry.get_versions(subject) == [1]


def test_avro_values_go_round(local: LocalBroker, registry: SchemaRegistryClient) -> None:
    topic = local.create_topic("avro-round")
    serialize = AvroSerializer(registry, json.dumps(WITH_NOTE))
    value = serialize({"id": 7, "note": "hello"}, value_of(topic))
    assert read_back(local, topic, value, AvroDeserializer(client_of(local.url))) == {
        "id": 7,
        "note": "hello",
    }
    assert registry.get_versions(f"{topic}-value") == [1]


def test_json_values_go_round(local: LocalBroker, registry: SchemaRegistryClient) -> None:
    topic = local.create_topic("json-round")
    schema = {
        "title": "Order",
        "type": "object",
        "properties": {"id": {"type": "integer"}},
        "required": ["id"],
    }
    serialize = JSONSerializer(json.dumps(schema), registry)
    value = serialize({"id": 7}, value_of(topic))
    reader = JSONDeserializer(None, schema_registry_client=client_of(local.url))
    assert read_back(local, topic, value, reader) == {"id": 7}


def test_protobuf_values_go_round(local: LocalBroker, registry: SchemaRegistryClient, tmp_path: Path) -> None:
    topic = local.create_topic("proto-round")
    order = compiled(tmp_path)
    serialize = ProtobufSerializer(order.Order, registry)
    message = order.Order(id=7, to=[{"street": "Mill Lane"}])
    value = serialize(message, value_of(topic))
    reader = ProtobufDeserializer(order.Order, {}, schema_registry_client=client_of(local.url))
    assert read_back(local, topic, value, reader) == message
    latest = registry.get_latest_version(f"{topic}-value")
    assert "message Order {" in latest.schema.schema_str, "people are shown a .proto file"
    assert [reference.name for reference in latest.schema.references or []] == ["shop_address.proto"]
    # What was written by hand is the same schema, and readers in Python can use it.
    text = Schema(PROTO, "PROTOBUF", latest.schema.references)
    assert registry.lookup_schema(f"{topic}-value", text).schema_id == latest.schema_id
    changed = Schema(PROTO.replace("int64 id", "string id"), "PROTOBUF", latest.schema.references)
    assert not registry.test_compatibility(f"{topic}-value", changed)


def compiled(directory: Path) -> Any:
    (directory / "shop_order.proto").write_text(PROTO)
    (directory / "shop_address.proto").write_text(ADDRESS)
    assert (
        protoc.main(
            [
                "protoc",
                f"-I{directory}",
                f"--python_out={directory}",
                "shop_order.proto",
                "shop_address.proto",
            ]
        )
        == 0
    )
    sys.path.insert(0, str(directory))
    try:
        return importlib.import_module("shop_order_pb2")
    finally:
        sys.path.remove(str(directory))


def read_back(local: LocalBroker, topic: str, value: bytes, reader: Any) -> Any:
    assert value[0] == 0
    send(local, topic, value)
    consumer = Consumer(
        {"bootstrap.servers": local.bootstrap, "group.id": topic, "auto.offset.reset": "earliest"}
    )
    try:
        consumer.subscribe([topic])
        for _ in range(120):
            message = consumer.poll(1)
            if message is not None and message.error() is None:
                return reader(message.value(), value_of(topic))
        raise AssertionError("no message came")
    finally:
        consumer.close()


def send(local: LocalBroker, topic: str, value: bytes | None, **options: Any) -> None:
    problems: list[Any] = []
    producer = Producer({"bootstrap.servers": local.bootstrap, "linger.ms": 0})
    producer.produce(topic, value, on_delivery=lambda error, _: problems.append(error), **options)
    assert producer.flush(60) == 0
    if problems[0] is not None:
        raise KafkaException(problems[0])


def test_a_topic_refuses_what_its_subject_does_not_have(
    local: LocalBroker, registry: SchemaRegistryClient
) -> None:
    topic = local.create_topic("validated", **{"headrace.value.schema.validation": "true"})  # type: ignore[arg-type]
    with pytest.raises(KafkaException) as plain:
        send(local, topic, b"plain text")
    assert plain.value.args[0].name() == "INVALID_RECORD"
    with pytest.raises(KafkaException):
        send(local, topic, b"\0\0\0\0\x63...")
    value = AvroSerializer(registry, json.dumps(ORDER))({"id": 1}, value_of(topic))
    send(local, topic, value)
    send(local, topic, None, key="tombstone")
    assert len(local.records(topic)) == 2
    elsewhere = registry.register_schema("elsewhere-value", avro({**ORDER, "name": "Else"}))
    with pytest.raises(KafkaException):
        send(local, topic, b"\0" + elsewhere.to_bytes(4, "big"))
    local.ask("PATCH", f"/api/v1/topics/{topic}", {"configs": {"headrace.value.schema.validation": "false"}})
    send(local, topic, b"plain text")


def test_every_broker_knows_at_once() -> None:
    """F34: what one has registered, the others answer, take as taken, and let through."""
    with LocalCluster(3) as cluster:
        clients = [client_of(url) for url in cluster.urls]
        cluster.create_topic("known", partitions=3, **{"headrace.value.schema.validation": "true"})
        for turn in range(12):
            writer, reader = clients[turn % 3], clients[(turn + 1) % 3]
            schema = avro({**ORDER, "name": f"Order{turn}"})
            subject = f"known-{turn}"
            identifier = writer.register_schema(subject, schema)
            fresh = client_of(cluster.urls[(turn + 1) % 3])
            assert fresh.get_schema(identifier).schema_str
            assert reader.register_schema(subject, schema) == identifier
            assert reader.get_versions(subject) == [1]
        writer = clients[0]
        writer.set_compatibility("known-value", "NONE")
        producer = Producer({"bootstrap.servers": cluster.bootstrap, "linger.ms": 0})
        problems: list[Any] = []
        for turn in range(9):
            identifier = clients[turn % 3].register_schema(
                "known-value", avro({**ORDER, "name": f"Known{turn}"})
            )
            value = b"\0" + identifier.to_bytes(4, "big") + b"\2"
            producer.produce(
                "known", value, partition=(turn + 1) % 3, on_delivery=lambda e, _: problems.append(e)
            )
            assert producer.flush(60) == 0
        assert problems == [None] * 9
        ids = [client.register_schema("same-value", avro(ORDER)) for client in clients]
        assert len(set(ids)) == 1


def test_a_port_of_its_own_and_a_restart(tmp_path: Path) -> None:
    (port,) = free_ports(1)
    environment = {"HEADRACE_SCHEMA_REGISTRY_PORT": str(port)}
    with BrokerProcess(tmp_path, environment=environment) as broker:
        own = client_of(f"http://127.0.0.1:{port}", "")
        identifier = own.register_schema("kept-value", avro(ORDER))
        assert client_of(broker.url).get_schema(identifier).schema_str
        metrics = urlopen(f"{broker.url}/metrics").read().decode()
        assert (
            "mq_schemas 1" in metrics and 'mq_schema_registrations_total{outcome="registered"} 1' in metrics
        )
        broker.kill()
        broker.start()
        assert client_of(f"http://127.0.0.1:{port}", "").get_versions("kept-value") == [1]
