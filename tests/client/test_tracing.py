"""W3C trace context given at one door comes out at the others, and the SDK's spans reach a collector: real clients, real OTLP."""

from __future__ import annotations

import asyncio
import itertools
import json
import os
import subprocess
import sys
import threading
from collections.abc import Iterator
from typing import Any
from urllib.request import Request, urlopen

import boto3
import confluent_kafka as ck
import pytest
from botocore.config import Config
from opentelemetry import trace
from opentelemetry.sdk.trace import TracerProvider
from otlp_collector import Collector
from webhook_endpoint import ALLOW, Api, Endpoint, Reply, Server, until

from headrace import Client, HeadraceError
from headrace.net.otlp import SpanExport
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

pytestmark = pytest.mark.client

QUIET = {"log_level": 0}
TRACE = "0af7651916cd43dd8448eb211c80319c"
PARENT = f"00-{TRACE}-b7ad6b7169203331-01"
OTHER = "00-4bf92f3577b34da6a3ce929d0e0e4736-00f067aa0ba902b7-00"
STATE = "congo=t61rcWkgMzE"
_numbers = itertools.count()


@pytest.fixture(scope="module")
def collector() -> Iterator[Collector]:
    made = Collector()
    yield made
    made.close()


@pytest.fixture(scope="module")
def tracing() -> Iterator[BrokerProcess]:
    with BrokerProcess(environment=ALLOW) as running:
        yield running


@pytest.fixture(scope="module")
def provider(collector: Collector) -> Iterator[TracerProvider]:
    made = SpanExport("shop", collector.url)
    yield made.provider
    made.end()


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def endpoint(server: Server) -> Endpoint:
    return server.endpoint()


@pytest.fixture
def api(tracing: BrokerProcess) -> Api:
    return Api(tracing)


@pytest.fixture
def name() -> str:
    return f"traced{next(_numbers)}"


@pytest.fixture
def sqs(tracing: BrokerProcess) -> Any:
    return boto3.client(
        "sqs", endpoint_url=tracing.url, region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="y",
        config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip


def post(broker: BrokerProcess, path: str, body: Any, **headers: str) -> Any:
    raw = body if isinstance(body, bytes) else json.dumps(body).encode()
    kind = "text/plain" if isinstance(body, bytes) else "application/json"
    named = {"content-type": kind, **headers}
    with urlopen(Request(broker.url + path, raw, named, method="POST"), timeout=60) as answer:
        return json.loads(answer.read() or b"null")


def consumed(broker: BrokerProcess, topic: str, count: int) -> list[dict[str, bytes]]:
    """The headers of records, as confluent-kafka has them."""
    consumer = ck.Consumer(
        {"bootstrap.servers": broker.bootstrap, "group.id": f"g-{topic}", "auto.offset.reset": "earliest", **QUIET}
    )  # fmt: skip
    consumer.subscribe([topic])
    found: list[dict[str, bytes]] = []
    try:
        while len(found) < count:
            message = consumer.poll(1.0)
            if message is not None and message.error() is None:
                found.append(dict(message.headers() or []))
    finally:
        consumer.close()
    return found


def produce(broker: BrokerProcess, topic: str, *headers: list[tuple[str, bytes]]) -> None:
    producer = ck.Producer({"bootstrap.servers": broker.bootstrap, **QUIET})
    for one in headers:
        producer.produce(topic, b"v", headers=one)
    assert producer.flush(60) == 0


# -- doors -------------------------------------------------------------------------------------------------------------


def test_a_trace_of_a_rest_request_is_in_the_record_and_at_every_door(
    tracing: BrokerProcess, api: Api, sqs: Any, endpoint: Endpoint, name: str
) -> None:
    api.add(name, endpoint, form="raw")
    post(tracing, f"/queues/{name}/messages", {"value": "hooked"}, traceparent=PARENT, tracestate=STATE)
    until(lambda: len(endpoint.got) == 1)
    (got,) = endpoint.got
    assert (got.headers["traceparent"], got.headers["tracestate"]) == (PARENT, STATE)
    api.ask("DELETE", f"/api/v1/webhooks/{name}")
    post(tracing, f"/topics/{name}/records", b"raw", traceparent=PARENT, tracestate=STATE)
    own = {"value": 1, "headers": {"traceparent": OTHER}}
    post(tracing, f"/topics/{name}/records", {"records": [{"value": 2}, own]}, traceparent=PARENT)
    post(
        tracing, f"/queues/{name}/batch", {"records": [{"value": 3}]}, traceparent=PARENT, tracestate="not a state"
    )  # fmt: skip
    both = {"traceparent": PARENT.encode(), "tracestate": STATE.encode()}
    alone = {"traceparent": PARENT.encode()}
    expected = [both, both, alone, {"traceparent": OTHER.encode()}, alone]
    found = consumed(tracing, name, 5)
    assert sorted(map(str, found)) == sorted(map(str, expected))
    browsed = api.ask("GET", f"/topics/{name}/records?offset=start")["items"]
    assert sorted(one["headers"]["traceparent"] for one in browsed) == sorted([*[PARENT] * 4, OTHER])
    received = post(tracing, f"/queues/{name}/receive?max=1&wait=10s", {})["items"]
    assert received[0]["headers"]["traceparent"] in (PARENT, OTHER)
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageAttributeNames=["traceparent"], WaitTimeSeconds=10
    )["Messages"]  # fmt: skip
    assert message["MessageAttributes"]["traceparent"]["StringValue"] in (PARENT, OTHER)


def test_a_trace_of_a_kafka_record_and_of_an_sqs_attribute_reach_the_other_and_a_webhook(
    tracing: BrokerProcess, api: Api, sqs: Any, endpoint: Endpoint, name: str
) -> None:
    url = sqs.create_queue(QueueName=name)["QueueUrl"]
    attributes = {"traceparent": {"DataType": "String", "StringValue": PARENT}}
    xray = {
        "AWSTraceHeader": {"DataType": "String", "StringValue": "Root=1-5759e988-bd862e3fe1be46a994272793"}
    }
    sqs.send_message(
        QueueUrl=url, MessageBody="b", MessageAttributes=attributes, MessageSystemAttributes=xray
    )  # fmt: skip
    (headers,) = consumed(tracing, name, 1)
    assert headers["traceparent"] == PARENT.encode()
    (message,) = sqs.receive_message(
        QueueUrl=url, MessageAttributeNames=["All"], MessageSystemAttributeNames=["AWSTraceHeader"], WaitTimeSeconds=10
    )["Messages"]  # fmt: skip
    assert message["Attributes"]["AWSTraceHeader"] == xray["AWSTraceHeader"]["StringValue"]
    assert set(message["MessageAttributes"]) == {"traceparent"}
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    produce(
        tracing,
        name,
        [("traceparent", OTHER.encode()), ("tracestate", STATE.encode())],
        [("traceparent", b"00-nonsense\r\nx-evil: 1")],
        [],
    )
    api.add(name, endpoint, create=False, form="cloudevents")
    until(lambda: len(endpoint.taken) == 3)
    sent = {got.headers["ce-sequence"]: got.headers for got in endpoint.got}
    assert (sent["1"]["traceparent"], sent["1"]["tracestate"]) == (OTHER, STATE)
    assert (sent["1"]["ce-traceparent"], sent["1"]["ce-tracestate"]) == (OTHER, STATE)
    for number in "23":
        assert not {"traceparent", "ce-traceparent", "x-evil"} & set(sent[number])
    api.ask("DELETE", f"/api/v1/webhooks/{name}")


def test_a_batch_of_one_trace_says_which_and_a_mixed_one_does_not(
    tracing: BrokerProcess, api: Api, endpoint: Endpoint, name: str
) -> None:
    api.ask("POST", "/api/v1/queues", {"name": name})
    same = {"value": "same", "headers": {"traceparent": PARENT}}
    post(tracing, f"/queues/{name}/batch", {"records": [same, same]})
    added = {"queue": name, "url": endpoint.url, "batch_size": 10, "batch_wait_ms": 60_000}
    api.ask("POST", "/api/v1/webhooks", {**added, "batch_size": 2}, status=201)
    until(lambda: len(endpoint.taken) == 1)
    mixed = [{"value": "m", "headers": {"traceparent": OTHER}}, same]
    post(tracing, f"/queues/{name}/batch", {"records": mixed})
    until(lambda: len(endpoint.taken) == 2)
    first, second = endpoint.got
    assert len(json.loads(first.body)["data"]) == len(json.loads(second.body)["data"]) == 2
    assert first.headers["traceparent"] == PARENT and "traceparent" not in second.headers
    shown = {one["headers"]["traceparent"] for one in json.loads(second.body)["data"]}
    assert shown == {PARENT, OTHER}
    api.ask("DELETE", f"/api/v1/webhooks/{name}")


@pytest.mark.parametrize(
    "bad", ["00-x", "", PARENT + ", " + PARENT, "x" * 20_000, PARENT.upper()], ids=lambda bad: f"{len(bad)}"
)  # fmt: skip
def test_a_malformed_traceparent_is_dropped_and_no_error(
    tracing: BrokerProcess, name: str, bad: str
) -> None:  # fmt: skip
    post(tracing, f"/topics/{name}/records", {"value": 1}, traceparent=bad, tracestate=STATE)
    assert consumed(tracing, name, 1) == [{}]


def test_dead_letters_redrives_and_delays_keep_the_trace(tracing: BrokerProcess, api: Api, name: str) -> None:
    dead = f"{name}-dead"
    api.ask("POST", "/api/v1/queues", {"name": dead})
    api.ask("POST", "/api/v1/queues", {"name": name, "dead_letter": dead, "max_deliveries": 3})
    sent = {"value": "v", "delay": "50ms"}
    post(tracing, f"/queues/{name}/messages", sent, traceparent=PARENT, tracestate=STATE)

    def take(queue: str) -> Any:
        (item,) = post(tracing, f"/queues/{queue}/receive?wait=60s", {})["items"]
        assert (item["headers"]["traceparent"], item["headers"]["tracestate"]) == (PARENT, STATE)
        return item

    item = take(name)
    post(tracing, f"/queues/{name}/messages/{item['receipt']}/reject", {})
    until(lambda: bool(api.queue(dead)["ready"]))
    api.ask("POST", f"/api/v1/queues/{dead}/moves", {"act": "redrive", "to": name})
    take(name)


# -- the SDK -----------------------------------------------------------------------------------------------------------


def test_publish_and_subscribe_are_one_trace(
    tracing: BrokerProcess, collector: Collector, provider: TracerProvider, name: str
) -> None:
    tracer = provider.get_tracer("test")
    with Client(tracing.bootstrap, config=QUIET, tracing=provider) as client:
        with tracer.start_as_current_span(f"order {name}"):
            client.publish(name, "secret body", key="secret key", headers={"h": "1"}).result(60)
            client.publish_many(name, ["two"])
        client.publish(name, "mine", headers={"traceparent": OTHER})
        client.flush()
        seen: list[Any] = []
        for message in client.subscribe(name, group=f"g-{name}", follow=False):
            seen.append((dict(message.headers), trace.get_current_span().get_span_context()))
            with tracer.start_as_current_span(f"work {name}"):
                pass
        assert not trace.get_current_span().get_span_context().is_valid
    provider.force_flush()
    (order,) = collector.wait_for(f"order {name}")
    sends = collector.wait_for(f"send {name}", 2)
    processes = collector.wait_for(f"process {name}", 2)
    assert len(processes) == 2, "the third is of a trace that nobody samples"
    assert {(span.parent_id, span.trace_id, span.kind) for span in sends} == {
        (order.span_id, order.trace_id, "PRODUCER")
    }
    assert seen[0][0]["h"] == b"1"
    for (headers, current), span, process in zip(seen, sends, processes, strict=False):
        assert headers["traceparent"].decode()[:-2] == f"00-{span.trace_id}-{span.span_id}-"
        assert f"{current.span_id:016x}" == process.span_id
        assert (process.parent_id, process.kind, process.links) == (span.span_id, "CONSUMER", (span.span_id,))
    assert seen[2][0]["traceparent"].decode() == OTHER
    assert len(sends) == 2, "who brings a context of their own has a span of their own"
    first = sends[0].attributes
    assert first["messaging.system"] == "kafka" and first["messaging.operation.type"] == "send"
    assert first["messaging.destination.name"] == name and first["messaging.kafka.offset"] == 0
    assert first["server.port"] == int(tracing.bootstrap.rpartition(":")[2])
    about = processes[0].attributes
    assert (about["messaging.consumer.group.name"], about["messaging.kafka.offset"]) == (f"g-{name}", 0)
    works = collector.wait_for(f"work {name}", 2)
    assert {work.parent_id for work in works} <= {process.span_id for process in processes}
    assert not any("secret" in span.text for span in collector.spans)
    assert {span.service for span in sends} == {"shop"}


def test_async_iteration_and_next_have_spans_too(
    tracing: BrokerProcess, collector: Collector, provider: TracerProvider, name: str
) -> None:
    def current() -> str:
        return f"{trace.get_current_span().get_span_context().span_id:016x}"

    async def read(client: Client) -> list[str]:
        found = []
        async with client.subscribe(name, follow=False) as subscription:
            async for _ in subscription:
                found.append(current())
                if len(found) == 2:
                    break
        assert current() == "0" * 16
        return found

    with Client(tracing.bootstrap, config=QUIET, tracing=provider) as client:
        client.publish_many(name, ["1", "2", "3"])
        client.flush()
        seen = asyncio.run(read(client))
        with client.subscribe(name, follow=False) as subscription:
            next(subscription)
            seen.append(current())
            next(subscription)
            seen.append(current())
        assert current() == "0" * 16
        with pytest.raises(KeyError), client.subscribe(name, follow=False) as subscription:
            for _ in subscription:
                seen.append(current())
                raise KeyError("a secret")
    provider.force_flush()
    processes = {span.span_id: span for span in collector.wait_for(f"process {name}", 5)}
    assert set(seen) == set(processes) and len(seen) == 5
    assert [processes[one].is_error for one in seen] == [False] * 4 + [True]
    assert processes[seen[4]].attributes["error.type"] == "KeyError"


def test_send_and_a_worker_are_one_trace(
    tracing: BrokerProcess, collector: Collector, provider: TracerProvider, name: str
) -> None:
    tracer = provider.get_tracer("test")
    tries = []
    with Client(tracing.bootstrap, config=QUIET, tracing=provider, url=tracing.url) as client:

        @client.worker(name)
        def work(job: str) -> None:
            with tracer.start_as_current_span(f"inside {name}"):
                tries.append(job)
            if len(tries) == 1:
                raise RuntimeError("a secret")
            client.stop()

        with tracer.start_as_current_span(f"order {name}"):
            client.send(name, "secret job", headers={"h": "1"})
        running = threading.Thread(target=client.run)
        running.start()
        running.join(240)
    assert len(tries) == 2
    provider.force_flush()
    (order,) = collector.wait_for(f"order {name}")
    (send,) = collector.wait_for(f"send {name}")
    first, second = collector.wait_for(f"process {name}", 2)
    assert (send.parent_id, send.kind, send.attributes["messaging.system"]) == (
        order.span_id, "PRODUCER", "headrace",
    )  # fmt: skip
    assert {first.parent_id, second.parent_id} == {send.span_id}
    assert first.is_error and first.attributes["error.type"] == "RuntimeError" and not second.is_error
    assert (first.attributes["headrace.delivery"], second.attributes["headrace.delivery"]) == (1, 2)
    assert first.attributes["messaging.message.id"] == send.attributes["messaging.message.id"]
    insides = collector.wait_for(f"inside {name}", 2)
    assert {span.parent_id for span in insides} == {first.span_id, second.span_id}
    assert not any("secret" in span.text for span in collector.spans)


PROGRAM = """
import os, sys
from headrace import Client
choice = {"default": None, "on": True, "off": False}[sys.argv[3]]
if sys.argv[4] == "hidden":
    sys.modules["opentelemetry"] = None
with Client(sys.argv[1], config={"log_level": 0}, tracing=choice) as client:
    client.publish(sys.argv[2], "v").result(60)
    print([name for name, _ in next(iter(client.subscribe(sys.argv[2], start="-1", follow=False))).headers])
print("imported" if sys.modules.get("opentelemetry.trace") else "not imported")
"""


def ran(broker: BrokerProcess, topic: str, choice: str, *, hidden: str = "", **variables: str) -> str:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, broker.bootstrap, topic, choice, hidden],
        env={**os.environ, **variables}, capture_output=True, text=True, timeout=240,
    )  # fmt: skip
    return done.stdout + done.stderr


def test_a_program_that_says_nothing_of_tracing_imports_nothing_and_one_that_does_exports(
    tracing: BrokerProcess, collector: Collector, name: str
) -> None:
    variables = {"OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_SERVICE_NAME": f"service {name}"}
    assert ran(tracing, name, "default", **variables).split() == ["[]", "not", "imported"]
    assert ran(tracing, name, "off", **variables).split() == ["[]", "not", "imported"]
    assert ran(tracing, name, "on", **variables).splitlines() == ["['traceparent']", "imported"]
    (send,) = collector.wait_for(f"send {name}")
    (process,) = collector.wait_for(f"process {name}")
    assert send.service == process.service == f"service {name}" and process.parent_id == send.span_id
    said = ran(tracing, name, "on", hidden="hidden")
    assert HeadraceError.__name__ in said and "pip install 'headrace[otel]'" in said


# -- the broker --------------------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def exporter(collector: Collector) -> Iterator[BrokerProcess]:
    """A broker that exports its own spans."""
    variables = {**ALLOW, "OTEL_EXPORTER_OTLP_ENDPOINT": collector.url, "OTEL_BSP_SCHEDULE_DELAY": "200"}
    with BrokerProcess(environment=variables) as running:
        yield running


def test_a_broker_exports_spans_of_rest_sqs_and_webhooks_and_goes_on_with_the_trace(
    exporter: BrokerProcess, collector: Collector, endpoint: Endpoint, name: str
) -> None:
    api = Api(exporter)
    api.add(name, endpoint)
    post(
        exporter, f"/queues/{name}/messages", {"value": "secret body", "key": "secret key"}, traceparent=PARENT,
        tracestate=STATE, authorization="Bearer secret-token",
    )  # fmt: skip
    until(lambda: len(endpoint.got) == 1)
    (process,) = collector.wait_for(f"process {name}")
    (request,) = collector.wait_for("POST", server__port=int(endpoint.url.split(":")[2].split("/")[0]))
    (sent,) = collector.wait_for("POST /queues/{queue}/messages", messaging__destination__name=name)
    span_id = PARENT[36:52]
    assert (sent.service, sent.kind, sent.trace_id, sent.parent_id) == ("headrace", "SERVER", TRACE, span_id)
    assert sent.attributes["http.response.status_code"] == 201
    assert sent.attributes["messaging.operation.type"] == "send"
    assert (process.kind, process.trace_id, process.parent_id, process.links) == (
        "CONSUMER", TRACE, span_id, (span_id,),
    )  # fmt: skip
    assert (request.kind, request.parent_id) == ("CLIENT", process.span_id)
    assert request.attributes["http.response.status_code"] == 200
    # The endpoint goes on with the request that it got.
    assert endpoint.got[0].headers["traceparent"] == f"00-{TRACE}-{request.span_id}-01"
    assert endpoint.got[0].headers["tracestate"] == STATE
    assert json.loads(endpoint.got[0].body)["data"]["headers"]["traceparent"] == PARENT, "as it was sent"
    api.ask("DELETE", f"/api/v1/webhooks/{name}")

    sqs = boto3.client(
        "sqs", endpoint_url=exporter.url, region_name="eu-west-1", aws_access_key_id="x", aws_secret_access_key="y",
    )  # fmt: skip
    url = sqs.get_queue_url(QueueName=name)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="secret body")
    (message,) = sqs.receive_message(QueueUrl=url, WaitTimeSeconds=20)["Messages"]
    sqs.delete_message(QueueUrl=url, ReceiptHandle=message["ReceiptHandle"])
    for action, operation in (
        ("SendMessage", "send"),
        ("ReceiveMessage", "receive"),
        ("DeleteMessage", "settle"),
    ):
        (span,) = collector.wait_for(f"{action} {name}")
        about = span.attributes
        assert (span.kind, about["messaging.system"], about["rpc.method"]) == ("SERVER", "aws_sqs", action)
        assert (about["messaging.operation.type"], about["messaging.destination.name"]) == (operation, name)
        assert message["ReceiptHandle"] not in span.text
    api.ask("GET", "/topics/no-such-topic/records", status=404)
    (missing,) = collector.wait_for(
        "GET /topics/{topic}/records", messaging__destination__name="no-such-topic"
    )
    assert missing.attributes["http.response.status_code"] == 404 and not missing.is_error
    of_broker = [span for span in collector.spans if span.service == "headrace"]
    assert not any("secret" in span.text for span in of_broker)
    urlopen(f"{exporter.url}/metrics", timeout=60).close()
    api.ask("GET", "/api/v1/topics")
    names = {span.name for span in of_broker}
    assert not {"GET /metrics", "GET /api/v1/topics"} & names


def test_a_failing_endpoint_is_an_error_in_its_spans(
    exporter: BrokerProcess, collector: Collector, endpoint: Endpoint, name: str
) -> None:
    api = Api(exporter)
    endpoint.behave = lambda got, number: Reply(503 if number == 0 else 200)
    api.add(name, endpoint, batch_size=2)
    post(exporter, f"/queues/{name}/messages", {"value": 1}, traceparent=PARENT)
    until(lambda: len(endpoint.taken) == 1)
    first, second = collector.wait_for(f"process {name}", 2)
    assert (first.is_error, first.attributes["error.type"]) == (True, "503") and not second.is_error
    assert (first.attributes["headrace.delivery"], second.attributes["headrace.delivery"]) == (1, 2)
    assert endpoint.got[0].headers["traceparent"] != endpoint.got[1].headers["traceparent"]
    api.ask("DELETE", f"/api/v1/webhooks/{name}")


def test_a_collector_that_is_away_is_in_nobodys_way(fresh_broker: Any, name: str) -> None:
    (port,) = free_ports(1)
    broker = fresh_broker(arguments=("--otlp-endpoint", f"http://127.0.0.1:{port}"))
    post(broker, f"/topics/{name}/records", {"value": 1}, traceparent=PARENT)
    assert consumed(broker, name, 1) == [{"traceparent": PARENT.encode()}]
    assert broker.stop(120) == 0


def test_a_broker_without_tracing_imports_nothing_of_it(tmp_path: Any) -> None:
    """Start and memory stay as they are."""
    program = (
        "import sys, headrace.cli.serve, headrace.node.node, headrace.push.couriers, headrace.client.client;"
        "print([name for name in sys.modules if name.partition('.')[0] in ('opentelemetry', 'google', 'requests')])"
    )
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=240)
    assert done.stdout.strip() == "[]", done.stderr
