"""awscli as a person types it: shorthand, JSON from files, tables and text, pages, batches, and its exit codes. And F46 for docs/sqs.md."""

from __future__ import annotations

import fcntl
import json
import os
import shutil
import subprocess
import sys
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any, NamedTuple

import pytest
from manual_reader import Reader, follow
from secured import Secured

from headrace.testing.broker_process import BrokerProcess

pytestmark = [pytest.mark.client, pytest.mark.timeout(1800)]

WANTED = "awscli==1.46.2"
DOCS = Path(__file__).parents[2] / "docs"


@pytest.fixture(scope="session")
def awscli() -> Path:
    """A folder with it and what it needs, from PyPI. Workers take turns at installing."""
    cache = Path(__file__).parents[2] / ".venv" / "awscli"
    cache.mkdir(parents=True, exist_ok=True)
    with (cache / ".lock").open("w") as lock:
        fcntl.flock(lock, fcntl.LOCK_EX)
        installed = cache / ".installed"
        if not installed.exists() or installed.read_text() != WANTED:
            shutil.rmtree(cache / "packages", ignore_errors=True)
            uv = Path(sys.executable).with_name("uv")
            command = [
                str(uv),
                "pip",
                "install",
                "-q",
                "--python",
                sys.executable,
                "--target",
                str(cache / "packages"),
            ]
            subprocess.run([*command, WANTED], check=True, timeout=600)
            installed.write_text(WANTED)
    return cache / "packages"


class Told(NamedTuple):
    code: int
    out: str
    err: str


class Person:
    def __init__(
        self, awscli: Path, broker: BrokerProcess, home: Path, key: dict[str, str] | None = None
    ) -> None:
        self.home = home
        # Version 1 looks for SQS in a place of its own, whatever AWS_ENDPOINT_URL says.
        self._before = ["--endpoint-url", broker.url, "sqs"]
        environment = {
            **{name: value for name, value in os.environ.items() if not name.startswith("AWS_")},
            "PYTHONPATH": str(awscli),
            "HOME": str(home),
            "AWS_ACCESS_KEY_ID": key["id"] if key else "anything",
            "AWS_SECRET_ACCESS_KEY": key["secret"] if key else "anything",
            "AWS_DEFAULT_REGION": "us-east-1",
            "AWS_PAGER": "",
        }
        program = Path(__file__).with_name("awscli_session.py")
        self._process = subprocess.Popen(
            [sys.executable, program], env=environment, cwd=home, text=True, stdin=subprocess.PIPE, stdout=subprocess.PIPE
        )  # fmt: skip

    def run(self, *words: str) -> Told:
        assert self._process.stdin is not None and self._process.stdout is not None
        self._process.stdin.write(json.dumps([*self._before, *words]) + "\n")
        self._process.stdin.flush()
        return Told(**json.loads(self._process.stdout.readline()))

    def type(self, *words: str) -> Any:
        """What it prints, as JSON; None when it prints nothing."""
        told = self.run(*words)
        assert told.code == 0, told.err
        return json.loads(told.out) if told.out.strip() else None

    def leave(self) -> None:
        self._process.communicate(timeout=120)


@pytest.fixture
def person(awscli: Path, broker: BrokerProcess, tmp_path: Path) -> Iterator[Person]:
    somebody = Person(awscli, broker, tmp_path)
    yield somebody
    somebody.leave()


def test_f46_the_commands_of_the_sqs_page_work(awscli: Path, tmp_path: Path) -> None:
    tools = tmp_path / "tools"
    tools.mkdir()
    aws = tools / "aws"
    aws.write_text(f'#!/bin/sh\nPYTHONPATH={awscli} exec {sys.executable} {awscli}/bin/aws "$@"\n')
    aws.chmod(0o755)
    reader = Reader(tmp_path / "home", path=tools)
    try:
        reader.serve()
        follow(reader, DOCS / "sqs.md")
    finally:
        reader.leave()


def test_a_queue_from_its_creation_to_its_end(person: Person, topic: str) -> None:
    dead = person.type("create-queue", "--queue-name", f"{topic}-dead")["QueueUrl"]
    arn = person.type("get-queue-attributes", "--queue-url", dead, "--attribute-names", "QueueArn")["Attributes"]["QueueArn"]  # fmt: skip
    url = person.type(
        "create-queue", "--queue-name", topic, "--attributes", "VisibilityTimeout=60,DelaySeconds=0", "--tags", "team=billing,cost=low",
    )["QueueUrl"]  # fmt: skip
    redrive = {"RedrivePolicy": json.dumps({"deadLetterTargetArn": arn, "maxReceiveCount": "1"})}
    (person.home / "redrive.json").write_text(json.dumps(redrive))
    assert (
        person.type("set-queue-attributes", "--queue-url", url, "--attributes", "file://redrive.json") is None
    )
    shown = person.type("get-queue-attributes", "--queue-url", url, "--attribute-names", "All")["Attributes"]
    assert shown["VisibilityTimeout"] == "60"
    assert json.loads(shown["RedrivePolicy"])["deadLetterTargetArn"] == arn
    assert person.type("list-queue-tags", "--queue-url", url)["Tags"] == {"team": "billing", "cost": "low"}
    person.type("untag-queue", "--queue-url", url, "--tag-keys", "cost")
    assert person.type("list-dead-letter-source-queues", "--queue-url", dead)["queueUrls"] == [url]
    sent = person.type(
        "send-message", "--queue-url", url, "--message-body", "hello wörld", "--message-attributes",
        "colour={DataType=String,StringValue=red},size={DataType=Number,StringValue=7}",
    )  # fmt: skip
    assert len(sent["MD5OfMessageAttributes"]) == 32
    got = person.type(
        "receive-message", "--queue-url", url, "--wait-time-seconds", "5", "--attribute-names", "All", "--message-attribute-names", "All", "--visibility-timeout", "0",
    )["Messages"][0]  # fmt: skip
    assert got["Body"] == "hello wörld" and got["MessageId"] == sent["MessageId"]
    assert got["MessageAttributes"]["size"] == {"StringValue": "7", "DataType": "Number"}
    assert person.type("receive-message", "--queue-url", url) is None, "it failed once, and is a dead letter"
    moving = person.type("start-message-move-task", "--source-arn", arn)
    assert moving["TaskHandle"]
    assert person.type("list-message-move-tasks", "--source-arn", arn)["Results"][0]["SourceArn"] == arn
    back = person.type("receive-message", "--queue-url", url, "--wait-time-seconds", "20")["Messages"][0]
    person.type("change-message-visibility", "--queue-url", url, "--receipt-handle", back["ReceiptHandle"], "--visibility-timeout", "30")  # fmt: skip
    person.type("delete-message", "--queue-url", url, "--receipt-handle", back["ReceiptHandle"])
    person.type("purge-queue", "--queue-url", url)
    assert person.type("get-queue-url", "--queue-name", topic)["QueueUrl"] == url
    person.type("delete-queue", "--queue-url", url)
    gone = person.run("get-queue-url", "--queue-name", topic)
    assert gone.code != 0 and "AWS.SimpleQueueService.NonExistentQueue" in gone.err


def test_batches_forms_and_pages(person: Person, topic: str) -> None:
    url = person.type("create-queue", "--queue-name", f"{topic}.fifo", "--attributes", "FifoQueue=true,ContentBasedDeduplication=true")["QueueUrl"]  # fmt: skip
    entries = [{"Id": f"e{n}", "MessageBody": f"m{n}", "MessageGroupId": "g"} for n in range(3)]
    (person.home / "entries.json").write_text(json.dumps(entries))
    sent = person.type("send-message-batch", "--queue-url", url, "--entries", "file://entries.json")
    assert [row["Id"] for row in sent["Successful"]] == ["e0", "e1", "e2"]
    short = person.type("send-message-batch", "--queue-url", url, "--entries", "Id=s,MessageBody=short,MessageGroupId=g")  # fmt: skip
    assert short["Successful"][0]["Id"] == "s"
    text = person.run("receive-message", "--queue-url", url, "--max-number-of-messages", "10", "--output", "text", "--query", "Messages[].Body")  # fmt: skip
    assert text.out.split() == ["m0", "m1", "m2", "short"]
    table = person.run("get-queue-attributes", "--queue-url", url, "--attribute-names", "FifoQueue", "--output", "table")  # fmt: skip
    assert "FifoQueue" in table.out and "|" in table.out
    for number in range(3):
        person.type("create-queue", "--queue-name", f"{topic}-page-{number}")
    pages = person.type("list-queues", "--queue-name-prefix", f"{topic}-page", "--page-size", "2")
    assert len(pages["QueueUrls"]) == 3, "pages are followed"
    first = person.type("list-queues", "--queue-name-prefix", f"{topic}-page", "--max-items", "2")
    assert len(first["QueueUrls"]) == 2 and first["NextToken"]


@pytest.mark.parametrize(
    ("words", "says"),
    [
        (("create-queue", "--queue-name", "no spaces"), "InvalidParameterValue"),
        (("create-queue", "--queue-name", "x", "--attributes", "VisibilityTimeout=never"), "InvalidAttributeValue"),
        (("create-queue", "--queue-name", "x", "--attributes", "Colour=red"), "InvalidAttributeName"),
        (("send-message", "--queue-url", "http://localhost/000000000000/nobody", "--message-body", "x"), "NonExistentQueue"),
    ],
)  # fmt: skip
def test_what_is_wrong_is_said_by_its_name(person: Person, words: tuple[str, ...], says: str) -> None:
    refused = person.run(*words)
    assert refused.code in (252, 254, 255)
    assert says in refused.err


def test_a31_awscli_signs_with_a_key_of_a_user(
    awscli: Path, fresh_broker: Callable[..., BrokerProcess], tmp_path: Path, topic: str
) -> None:
    sealing = tmp_path / "secrets.key"
    sealing.write_text("07" * 32)
    sealing.chmod(0o600)
    secured = Secured(fresh_broker(arguments=("--secrets-key-file", str(sealing))))
    key = secured.ask("POST", "/keys", {})
    admin = Person(awscli, secured.broker, tmp_path, key)
    stranger = Person(awscli, secured.broker, tmp_path)
    try:
        url = admin.type("create-queue", "--queue-name", topic)["QueueUrl"]
        admin.type("send-message", "--queue-url", url, "--message-body", "x")
        told = stranger.run("list-queues")
        assert told.code != 0 and "SignatureDoesNotMatch" in told.err
        assert (
            admin.type("receive-message", "--queue-url", url, "--wait-time-seconds", "20")["Messages"][0][
                "Body"
            ]
            == "x"
        )
    finally:
        admin.leave()
        stranger.leave()
