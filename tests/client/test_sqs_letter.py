"""SQS to the letter: sizes as AWS counts them, the Query protocol by GET, FIFO rules, regions and texts (F32, F33, F38, F39)."""

from __future__ import annotations

import http.client
import itertools
import json
from typing import Any, NamedTuple
from urllib.parse import quote, urlencode
from xml.etree import ElementTree

import boto3
import pytest
from botocore.config import Config
from botocore.exceptions import ClientError

from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client

Sqs = Any
MIB = 1_048_576
SPACE = {"s": "http://queue.amazonaws.com/doc/2012-11-05/"}
SIGNED = {
    "Authorization": "AWS4-HMAC-SHA256 Credential=AK/20261116/us-east-1/sqs/aws4_request, SignedHeaders=host, Signature=0"
}
_numbers = itertools.count()


def connect(broker: BrokerProcess, region: str = "us-east-1") -> Sqs:
    return boto3.client(
        "sqs", endpoint_url=broker.url, region_name=region, aws_access_key_id="x", aws_secret_access_key="y",
        config=Config(retries={"max_attempts": 0}),
    )  # fmt: skip


@pytest.fixture
def sqs(broker: BrokerProcess) -> Sqs:
    return connect(broker)


@pytest.fixture
def name() -> str:
    return f"letter-{next(_numbers)}"


@pytest.fixture
def queue(sqs: Sqs, name: str) -> str:
    url: str = sqs.create_queue(QueueName=name)["QueueUrl"]
    return url


def refused(code: str, call: Any, **parameters: Any) -> str:
    """The text of the refusal."""
    with pytest.raises(ClientError) as caught:
        call(**parameters)
    assert caught.value.response["Error"]["Code"] == code, caught.value
    text: str = caught.value.response["Error"]["Message"]
    return text


class Got(NamedTuple):
    status: int
    headers: dict[str, str]
    body: bytes

    def find(self, name: str) -> str | None:
        return ElementTree.fromstring(self.body).findtext(f".//s:{name}", None, SPACE)


def ask(broker: BrokerProcess, method: str, path: str, headers: dict[str, str], body: bytes = b"") -> Got:
    """Exactly these headers, and Host and length."""
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
    try:
        connection.putrequest(method, path, skip_accept_encoding=True)
        for header, value in headers.items():
            connection.putheader(header, value)
        if body:
            connection.putheader("content-length", str(len(body)))
        connection.endheaders()
        try:
            if body:
                connection.send(body)
        except (BrokenPipeError, ConnectionResetError):
            pass  # refused at its head: the answer is there
        response = connection.getresponse()
        return Got(response.status, {k.lower(): v for k, v in response.headers.items()}, response.read())
    finally:
        connection.close()


def asked_by_get(
    broker: BrokerProcess, path: str, headers: dict[str, str], method: str = "GET", **fields: str
) -> Got:
    return ask(broker, method, f"{path}?{urlencode({**fields, 'Version': '2012-11-05'})}", headers)


# -- F33: sizes ----------------------------------------------------------------------------------------------------------


def test_f33_sizes_are_those_of_the_text_and_not_of_its_escapes(sqs: Sqs, queue: str) -> None:
    """boto3 writes é as six bytes of JSON; AWS counts two."""
    for body in ("é" * 350_000, "é" * (MIB // 2), "\n" * MIB, "😀" * (MIB // 4)):
        sqs.send_message(QueueUrl=queue, MessageBody=body)
        (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
        assert message["Body"] == body
        sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    text = refused(
        "InvalidParameterValue", sqs.send_message, QueueUrl=queue, MessageBody="é" * (MIB // 2) + "x"
    )
    assert text.endswith("Message must be shorter than 1048576 bytes.")


def test_f33_attributes_count_and_a_batch_counts_as_one(sqs: Sqs, queue: str) -> None:
    attributes = {"abc": {"DataType": "String", "StringValue": "é" * 10}}  # 3 + 6 + 20
    sqs.send_message(QueueUrl=queue, MessageBody="x" * (MIB - 29), MessageAttributes=attributes)
    refused(
        "InvalidParameterValue", sqs.send_message, QueueUrl=queue, MessageBody="x" * (MIB - 28), MessageAttributes=attributes
    )  # fmt: skip
    entries = [{"Id": str(i), "MessageBody": "é" * (MIB // 8)} for i in range(4)]
    assert len(sqs.send_message_batch(QueueUrl=queue, Entries=entries)["Successful"]) == 4
    entries[0]["MessageBody"] += "é"
    code = "AWS.SimpleQueueService.BatchRequestTooLong"
    text = refused(code, sqs.send_message_batch, QueueUrl=queue, Entries=entries)
    assert text == "Batch requests cannot be longer than 1048576 bytes. You have sent 1048578 bytes."


def test_f33_every_escaping_has_room(sqs: Sqs, broker: BrokerProcess, name: str, queue: str) -> None:
    """The longest ways to write a message of a megabyte: each character as \\uXXXX, each byte as %XX."""
    target = {"X-Amz-Target": "AmazonSQS.SendMessage"}
    body = f'{{"QueueUrl": "{name}", "MessageBody": "'.encode() + b"\\u0041" * MIB + b'"}'
    assert ask(broker, "POST", "/", target, body).status == 200
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    body = b"Action=SendMessage&MessageBody=" + b"%41" * MIB
    assert ask(broker, "POST", f"/000000000000/{name}", form, body).status == 200
    for _ in range(2):
        (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
        assert message["Body"] == "A" * MIB


def test_f33_what_is_too_long_for_any_reading_is_an_error_of_sqs(
    sqs: Sqs, broker: BrokerProcess, name: str, queue: str
) -> None:
    """It was a 413 in problem+json, which no SDK reads."""
    refused("InvalidParameterValue", sqs.send_message, QueueUrl=queue, MessageBody="x" * 9 * MIB)
    entries = [{"Id": str(i), "MessageBody": "x" * MIB} for i in range(10)]
    refused(
        "AWS.SimpleQueueService.BatchRequestTooLong", sqs.send_message_batch, QueueUrl=queue, Entries=entries
    )
    form = {"Content-Type": "application/x-www-form-urlencoded; charset=utf-8"}
    got = ask(broker, "POST", f"/0/{name}", form, b"Action=SendMessage&MessageBody=" + b"x" * 9 * MIB)
    assert (got.status, got.headers["content-type"], got.find("Code")) == (
        400,
        "text/xml",
        "InvalidParameterValue",
    )
    chunked = {"X-Amz-Target": "AmazonSQS.SendMessage", "Transfer-Encoding": "chunked"}
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
    connection.request("POST", "/", iter([b"x" * MIB] * 9), chunked, encode_chunked=True)
    answer = connection.getresponse()
    assert (answer.status, json.loads(answer.read())["__type"]) == (
        400,
        "com.amazonaws.sqs#InvalidParameterValue",
    )
    connection.close()


def test_forms_are_read_as_they_are_written(sqs: Sqs, broker: BrokerProcess, name: str, queue: str) -> None:
    """Escapes of a form, backslashes among them, which our own reading of escapes must leave alone."""
    form = {"Content-Type": "application/x-www-form-urlencoded"}
    for body in ("a\\x41b", "100%", "\\", "+ &=é\\u00e9\\", "\\%41\n"):
        for written in (quote(body, safe=""), quote(body, safe="\\").replace("%20", "+")):
            assert (
                ask(
                    broker, "POST", f"/0/{name}", form, f"Action=SendMessage&MessageBody={written}".encode()
                ).status
                == 200
            )
            (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
            assert message["Body"] == body
            sqs.delete_message(QueueUrl=queue, ReceiptHandle=message["ReceiptHandle"])
    for malformed in ("%4", "%zz", "%", "%ff"):
        got = ask(broker, "POST", f"/0/{name}", form, f"Action=SendMessage&MessageBody={malformed}".encode())
        assert (got.status, got.find("Code")) == (400, "InvalidParameterValue")


# -- F32: GET --------------------------------------------------------------------------------------------------------------


def test_f32_get_speaks_query_for_programs(sqs: Sqs, broker: BrokerProcess, name: str, queue: str) -> None:
    path = f"/000000000000/{name}"
    for proof in (SIGNED, {"x-headrace-client": "script"}):
        sent = asked_by_get(broker, path, proof, Action="SendMessage", MessageBody="by & GET = é")
        assert sent.status == 200 and sent.headers["content-type"] == "text/xml"
        got = asked_by_get(broker, "/", proof, Action="ReceiveMessage", QueueUrl=queue, WaitTimeSeconds="20")
        assert got.find("Body") == "by & GET = é" and got.find("MessageId") == sent.find("MessageId")
        handle = got.find("ReceiptHandle") or ""
        assert asked_by_get(broker, path, proof, Action="DeleteMessage", ReceiptHandle=handle).status == 200
    fields = {"Action": "GetQueueAttributes", "AttributeName.1": "ApproximateNumberOfMessagesNotVisible"}
    looked = asked_by_get(broker, path, {}, **fields)
    assert looked.status == 200 and looked.find("Value") == "0"
    assert asked_by_get(broker, "/", {}, Action="GetQueueUrl", QueueName=name).find("QueueUrl") == queue
    assert asked_by_get(broker, "/", SIGNED, Action="Dance").find("Code") == "InvalidAction"


def test_f32_no_web_page_changes_anything_by_get(
    sqs: Sqs, broker: BrokerProcess, name: str, queue: str
) -> None:
    """Decision 0024: an `<img>` sends no header of its own; a URL with a password in it brings one, of another scheme."""
    sqs.send_message(QueueUrl=queue, MessageBody="precious")
    path = f"/000000000000/{name}"
    image: dict[str, str] = {"Accept": "image/*"}
    with_password = {**image, "Authorization": "Basic QVdTNC1ITUFDLVNIQTI1Njp4"}
    for headers in (image, with_password):
        for action in ("PurgeQueue", "DeleteQueue", "ReceiveMessage", "CancelMessageMoveTask"):
            got = asked_by_get(broker, path, headers, Action=action)
            assert (got.status, got.find("Code")) == (403, "AccessDenied"), action
            assert "x-headrace-client" in (got.find("Message") or "")
    for headers in (image, SIGNED):
        assert asked_by_get(broker, path, headers, method="HEAD", Action="ReceiveMessage").status == 403
    presigned = {"X-Amz-Algorithm": "AWS4-HMAC-SHA256", "X-Amz-Signature": "0"}
    assert asked_by_get(broker, path, image, Action="PurgeQueue", **presigned).status == 403
    assert (
        asked_by_get(broker, "/", {**SIGNED, "Origin": "https://evil.example"}, Action="ListQueues").status
        == 403
    )
    assert ask(broker, "GET", "/", {}).status == 200  # links, and no queue was touched
    (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]
    assert message["Body"] == "precious"


# -- F38: FIFO, attributes, texts ------------------------------------------------------------------------------------------


def shown(sqs: Sqs, url: str) -> dict[str, str]:
    found: dict[str, str] = sqs.get_queue_attributes(QueueUrl=url, AttributeNames=["All"])["Attributes"]
    return found


def redrive(sqs: Sqs, dead: str, count: Any = 3) -> str:
    return json.dumps({"maxReceiveCount": count, "deadLetterTargetArn": shown(sqs, dead)["QueueArn"]})


def test_f38_booleans_in_any_case_and_fifo_attributes_in_all(sqs: Sqs, name: str, queue: str) -> None:
    """Terraform polls until every attribute it set is shown as AWS would show it."""
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "True"})["QueueUrl"]
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "false"}
    fifo |= {"DeduplicationScope": "queue", "FifoThroughputLimit": "perQueue"}
    assert fifo.items() <= shown(sqs, url).items()
    assert not fifo.keys() & shown(sqs, queue).keys()
    assert (
        sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "TRUE", **fifo})["QueueUrl"]
        == url
    )
    sqs.set_queue_attributes(
        QueueUrl=url, Attributes={"ContentBasedDeduplication": "True", "FifoQueue": "True"}
    )
    assert shown(sqs, url)["ContentBasedDeduplication"] == "true"
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    text = refused("InvalidParameterValue", sqs.create_queue, QueueName=f"{name}x.fifo")
    assert text == "Can only include alphanumeric characters, hyphens, or underscores. 1 to 80 in length"
    text = refused(
        "InvalidParameterValue", sqs.create_queue, QueueName=f"{name}x", Attributes={"FifoQueue": "true"}
    )
    assert "must end with .fifo suffix" in text
    for attributes in ({"FifoQueue": "yes"}, {"SqsManagedSseEnabled": "1"}):
        refused("InvalidAttributeValue", sqs.create_queue, QueueName=f"{name}y", Attributes=attributes)


def test_f38_a_throughput_per_group_needs_deduplication_per_group(sqs: Sqs, name: str) -> None:
    limit, scope = {"FifoThroughputLimit": "perMessageGroupId"}, {"DeduplicationScope": "messageGroup"}
    fifo = {"QueueName": f"{name}.fifo", "Attributes": {"FifoQueue": "true", **limit}}
    refused("InvalidAttributeValue", sqs.create_queue, **fifo)
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    refused("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=url, Attributes=limit)
    sqs.set_queue_attributes(QueueUrl=url, Attributes={**limit, **scope})
    refused(
        "InvalidAttributeValue",
        sqs.set_queue_attributes,
        QueueUrl=url,
        Attributes={"DeduplicationScope": "queue"},
    )
    assert (limit | scope).items() <= shown(sqs, url).items()


def test_f38_a_dead_letter_queue_is_of_its_sources_type(sqs: Sqs, name: str, queue: str) -> None:
    fifo = sqs.create_queue(QueueName=f"{name}.fifo", Attributes={"FifoQueue": "true"})["QueueUrl"]
    for url, dead in ((queue, fifo), (fifo, queue)):
        policy = {"RedrivePolicy": redrive(sqs, dead)}
        text = refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=url, Attributes=policy)
        assert text.endswith("Reason: Dead-letter queue must be same type of queue as the source.")
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": redrive(sqs, dead, "5")})
    arn = shown(sqs, dead)["QueueArn"]
    assert shown(sqs, queue)["RedrivePolicy"] == f'{{"deadLetterTargetArn":"{arn}","maxReceiveCount":5}}'
    for wrong, reason in (
        (redrive(sqs, dead, 0), "Invalid value for maxReceiveCount: 0"),
        (redrive(sqs, dead).replace(f"{name}-dead", f"{name}-none"), "Dead letter target does not exist."),
        ("5", "Redrive policy is not a valid JSON map"),
    ):
        code = "InvalidParameterValue"
        text = refused(code, sqs.set_queue_attributes, QueueUrl=queue, Attributes={"RedrivePolicy": wrong})
        assert reason in text
    sqs.delete_queue(QueueUrl=dead)
    sqs.set_queue_attributes(
        QueueUrl=queue, Attributes={"VisibilityTimeout": "5"}
    )  # nothing about its dead letters


def test_f38_a_redrive_allow_policy_is_heard(sqs: Sqs, name: str, queue: str) -> None:
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    other = sqs.create_queue(QueueName=f"{name}-other")["QueueUrl"]

    def allow(**policy: Any) -> None:
        sqs.set_queue_attributes(QueueUrl=dead, Attributes={"RedriveAllowPolicy": json.dumps(policy)})

    policy = {"RedrivePolicy": redrive(sqs, dead)}
    allow(redrivePermission="denyAll")
    refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=queue, Attributes=policy)
    allow(redrivePermission="byQueue", sourceQueueArns=[shown(sqs, queue)["QueueArn"]])
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=policy)
    refused("InvalidParameterValue", sqs.set_queue_attributes, QueueUrl=other, Attributes=policy)
    allow(redrivePermission="allowAll")
    sqs.set_queue_attributes(QueueUrl=other, Attributes=policy)
    for wrong in ({"redrivePermission": "some"}, {"redrivePermission": "byQueue"}):
        attributes = {"RedriveAllowPolicy": json.dumps(wrong)}
        refused("InvalidAttributeValue", sqs.set_queue_attributes, QueueUrl=dead, Attributes=attributes)


def test_f38_a_batch_without_a_group_is_refused_whole(sqs: Sqs, name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    entries = [{"Id": "a", "MessageBody": "a", "MessageGroupId": "g"}, {"Id": "b", "MessageBody": "b"}]
    text = refused("MissingParameter", sqs.send_message_batch, QueueUrl=url, Entries=entries)
    assert text == "The request must contain the parameter MessageGroupId."
    assert "Messages" not in sqs.receive_message(QueueUrl=url)


def test_f38_the_trace_header_of_http_is_a_system_attribute(sqs: Sqs, queue: str) -> None:
    def trace(request: Any, **_: Any) -> None:
        request.headers["X-Amzn-Trace-Id"] = "Root=1-5759e988-bd862e3fe1be46a994272793"

    sqs.meta.events.register("before-sign.sqs.*", trace)
    sqs.send_message(QueueUrl=queue, MessageBody="1")
    own = {"AWSTraceHeader": {"DataType": "String", "StringValue": "Root=own"}}
    sqs.send_message_batch(
        QueueUrl=queue,
        Entries=[
            {"Id": "2", "MessageBody": "2"},
            {"Id": "3", "MessageBody": "3", "MessageSystemAttributes": own},
        ],
    )
    traces: dict[str, str] = {}
    while len(traces) < 3:
        answer = sqs.receive_message(
            QueueUrl=queue, MaxNumberOfMessages=10, WaitTimeSeconds=20, AttributeNames=["AWSTraceHeader"]
        )
        traces |= {m["Body"]: m["Attributes"]["AWSTraceHeader"] for m in answer.get("Messages", [])}
    root = "Root=1-5759e988-bd862e3fe1be46a994272793"
    assert traces == {"1": root, "2": root, "3": "Root=own"}


def test_f38_texts(sqs: Sqs, queue: str, name: str) -> None:
    for text, action, parameters in (
        ("Value 21 for parameter WaitTimeSeconds is invalid. Reason: Must be >= 0 and <= 20, if provided.", "receive_message", {"WaitTimeSeconds": 21}),
        ("Value -1 for parameter DelaySeconds is invalid. Reason: DelaySeconds must be >= 0 and", "send_message", {"MessageBody": "x", "DelaySeconds": -1}),
        ("There should be at least one SendMessageBatchRequestEntry in the request.", "send_message_batch", {"Entries": []}),
        ("There should be at least one DeleteMessageBatchRequestEntry in the request.", "delete_message_batch", {"Entries": []}),
        ("There should be at least one ChangeMessageVisibilityBatchRequestEntry in the request.", "change_message_visibility_batch", {"Entries": []}),
        ("Unknown Attribute Colour.", "get_queue_attributes", {"AttributeNames": ["Colour"]}),
        ("Invalid value for the parameter Policy.", "set_queue_attributes", {"Attributes": {"Policy": "[]"}}),
    ):  # fmt: skip
        with pytest.raises(ClientError) as caught:
            getattr(sqs, action)(QueueUrl=queue, **parameters)
        assert caught.value.response["Error"]["Message"].startswith(text)
    sqs.purge_queue(QueueUrl=queue)
    text = refused("AWS.SimpleQueueService.PurgeQueueInProgress", sqs.purge_queue, QueueUrl=queue)
    assert text == f"Only one PurgeQueue operation on {name} is allowed every 60 seconds."


# -- F12: dead letters -----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("suffix", ["", ".fifo"])
def test_f12_a_dead_letter_is_still_its_message(sqs: Sqs, name: str, suffix: str) -> None:
    """Its id, its time, its count; and when the receive answers empty, it is in the other queue, without a wait."""
    fifo = {"FifoQueue": "true", "ContentBasedDeduplication": "true"} if suffix else {}
    dead = sqs.create_queue(QueueName=f"{name}-dead{suffix}", Attributes=fifo)["QueueUrl"]
    policy = {"RedrivePolicy": redrive(sqs, dead, 2), "VisibilityTimeout": "0"}
    url = sqs.create_queue(QueueName=f"{name}{suffix}", Attributes={**fifo, **policy})["QueueUrl"]
    options = {"AttributeNames": ["All"], "MessageAttributeNames": ["All"]}
    for turn in range(10):
        group = {"MessageGroupId": "g"} if suffix else {}
        attributes = {"a": {"DataType": "Number", "StringValue": "1"}}
        sent = sqs.send_message(QueueUrl=url, MessageBody=f"{turn}", MessageAttributes=attributes, **group)
        seen = [sqs.receive_message(QueueUrl=url, **options)["Messages"][0] for _ in range(2)]
        assert "Messages" not in sqs.receive_message(QueueUrl=url), "it was received twice"
        (letter,) = sqs.receive_message(QueueUrl=dead, VisibilityTimeout=0, **options)["Messages"]
        assert letter["MessageId"] == sent["MessageId"] and letter["Body"] == f"{turn}"
        assert letter["MessageAttributes"] == attributes
        system = letter["Attributes"]
        assert system["SentTimestamp"] == seen[0]["Attributes"]["SentTimestamp"]
        assert system["DeadLetterQueueSourceArn"] == shown(sqs, url)["QueueArn"]
        assert system["ApproximateReceiveCount"] == "3"
        (again,) = sqs.receive_message(QueueUrl=dead, **options)["Messages"]
        assert again["Attributes"]["ApproximateReceiveCount"] == "4"
        sqs.delete_message(QueueUrl=dead, ReceiptHandle=again["ReceiptHandle"])


def test_f12_a_redriven_message_is_a_new_one(sqs: Sqs, name: str, queue: str) -> None:
    """As in AWS: a new id, and it counts from one again; its second death is no different from the first."""
    dead = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    policy = {"RedrivePolicy": redrive(sqs, dead, 1), "VisibilityTimeout": "0"}
    sqs.set_queue_attributes(QueueUrl=queue, Attributes=policy)
    message_id = sqs.send_message(QueueUrl=queue, MessageBody="x")["MessageId"]
    for is_redriven in (False, True):
        (message,) = sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20, AttributeNames=["All"])[
            "Messages"
        ]
        assert message["Attributes"]["ApproximateReceiveCount"] == "1"
        assert (message["MessageId"] != message_id) == is_redriven
        message_id = message["MessageId"]
        assert "Messages" not in sqs.receive_message(QueueUrl=queue)
        (letter,) = sqs.receive_message(QueueUrl=dead, VisibilityTimeout=0, AttributeNames=["All"])[
            "Messages"
        ]
        assert letter["MessageId"] == message_id and letter["Attributes"]["ApproximateReceiveCount"] == "2"
        sqs.start_message_move_task(SourceArn=shown(sqs, dead)["QueueArn"])


# -- F39: receipts of the past -----------------------------------------------------------------------------------------------


def test_a_move_is_never_shown_as_stopped_while_its_broker_lives(sqs: Sqs, name: str, queue: str) -> None:
    """Between its last message and the moment at which its end is written down it used to be."""
    dead: str = sqs.create_queue(QueueName=f"{name}-dead")["QueueUrl"]
    sqs.set_queue_attributes(QueueUrl=queue, Attributes={"RedrivePolicy": redrive(sqs, dead, 1)})
    arn, shown_so_far = shown(sqs, dead)["QueueArn"], set()
    for _ in range(10):
        sqs.start_message_move_task(SourceArn=arn)
        while True:
            latest = sqs.list_message_move_tasks(SourceArn=arn)["Results"][0]["Status"]
            shown_so_far.add(latest)
            if latest != "RUNNING":
                break
    assert "COMPLETED" in shown_so_far and not shown_so_far - {"RUNNING", "COMPLETED"}


def test_f39_an_old_receipt_may_keep_a_message_and_not_give_it_away(sqs: Sqs, queue: str) -> None:
    """AWS lets it do both. What would take the message from whoever works on it now is refused (R56)."""
    sqs.send_message(QueueUrl=queue, MessageBody="x")
    (first,) = sqs.receive_message(QueueUrl=queue, VisibilityTimeout=0, WaitTimeSeconds=20)["Messages"]
    change = sqs.change_message_visibility
    code = "AWS.SimpleQueueService.MessageNotInflight"
    text = refused(code, change, QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=9)
    assert text.endswith("Message does not exist or is not available for visibility timeout change.")
    (second,) = sqs.receive_message(QueueUrl=queue, VisibilityTimeout=600, WaitTimeSeconds=20)["Messages"]
    for seconds in (0, 60):
        refused(code, change, QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=seconds)
    change(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"], VisibilityTimeout=1200)
    entries = [{"Id": "a", "ReceiptHandle": first["ReceiptHandle"], "VisibilityTimeout": 1300}]
    assert sqs.change_message_visibility_batch(QueueUrl=queue, Entries=entries)["Successful"] == [{"Id": "a"}]
    sqs.delete_message(QueueUrl=queue, ReceiptHandle=first["ReceiptHandle"])
    assert shown(sqs, queue)["ApproximateNumberOfMessagesNotVisible"] == "1", "it deleted nothing"
    change(QueueUrl=queue, ReceiptHandle=second["ReceiptHandle"], VisibilityTimeout=0)
    assert len(sqs.receive_message(QueueUrl=queue, WaitTimeSeconds=20)["Messages"]) == 1


def test_f39_in_a_fifo_queue_an_old_receipt_does_nothing(sqs: Sqs, name: str) -> None:
    attributes = {"FifoQueue": "true", "ContentBasedDeduplication": "true"}
    url = sqs.create_queue(QueueName=f"{name}.fifo", Attributes=attributes)["QueueUrl"]
    sqs.send_message(QueueUrl=url, MessageBody="x", MessageGroupId="g")
    (first,) = sqs.receive_message(QueueUrl=url, VisibilityTimeout=0, WaitTimeSeconds=20)["Messages"]
    sqs.receive_message(QueueUrl=url, VisibilityTimeout=600, WaitTimeSeconds=20)["Messages"]
    old = {"QueueUrl": url, "ReceiptHandle": first["ReceiptHandle"]}
    code = "AWS.SimpleQueueService.MessageNotInflight"
    refused(code, sqs.change_message_visibility, **old, VisibilityTimeout=1200)
    text = refused("InvalidParameterValue", sqs.delete_message, **old)
    assert text.endswith("Reason: The receipt handle has expired.")
