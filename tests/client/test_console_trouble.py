"""The console while brokers die: what was begun in the browser is whole behind every door (5.3, 5.4, acceptance 5 and 15)."""

from __future__ import annotations

import os
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import boto3
import pytest
from confluent_kafka import Consumer, TopicPartition

from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
sys.path.insert(0, str(Path(__file__).parent))
from chromium import Chromium
from test_console import NOTES, ask, choose, click, settled, site, write

pytestmark = [
    pytest.mark.client,
    pytest.mark.timeout(900),
    pytest.mark.skipif("HEADRACE_CONSOLE" not in os.environ, reason="takes minutes: make console-test"),
]
LETTERS = 300


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        browser.before_each_page(NOTES)
        yield browser


def patiently(call: Any) -> Any:
    """Until it is answered: brokers that have just begun refuse for a while."""
    deadline = time.monotonic() + 240
    while True:
        try:
            return call()
        except (OSError, AssertionError):
            if time.monotonic() > deadline:
                raise
            time.sleep(0.2)


def bodies(broker: BrokerProcess, queue: str) -> list[str]:
    """Everything that can be received at the SQS door, taken out."""
    client = boto3.client(
        "sqs",
        endpoint_url=broker.url,
        region_name="us-east-1",
        aws_access_key_id="x",
        aws_secret_access_key="x",
    )
    url = client.get_queue_url(QueueName=queue)["QueueUrl"]
    found: list[str] = []
    while messages := client.receive_message(QueueUrl=url, MaxNumberOfMessages=10, WaitTimeSeconds=1).get(
        "Messages"
    ):
        for one in messages:
            found.append(one["Body"])
            client.delete_message(QueueUrl=url, ReceiptHandle=one["ReceiptHandle"])
    return found


def test_w4_a_redrive_whose_broker_is_killed_leaves_each_letter_in_one_place(chromium: Chromium) -> None:
    """Begun in the browser, killed half-way, begun again in the same page without a reload: each letter once, and none lost."""
    with BrokerProcess() as broker:
        ask(broker, "POST", "/api/v1/queues", {"name": "mail-dead"})
        ask(
            broker,
            "POST",
            "/api/v1/queues",
            {"name": "mail", "dead_letter": "mail-dead", "max_deliveries": 5},
        )
        for number in range(LETTERS):
            ask(broker, "POST", "/queues/mail/messages", {"value": f"letter {number}"})
        taken = 0
        while taken < LETTERS:
            for one in ask(broker, "POST", "/queues/mail/receive?max=10")["items"]:
                ask(broker, "POST", f"/queues/mail/messages/{one['receipt']}/reject?detail=full")
                taken += 1
        settled(lambda: ask(broker, "GET", "/api/v1/queues/mail-dead")["ready"] == LETTERS)
        chromium.go(f"{site(broker)}/console/dead")
        chromium.until_text(f"{LETTERS} letters")
        chromium.run("window.sameLife = true")
        chromium.run(click("Send back …"))
        chromium.until_text(f"Move {LETTERS} messages")
        chromium.run(write("At most a second", "50"))
        chromium.until_text("--rate 50/s")
        press_when_counted(chromium, f"Move {LETTERS} messages")
        settled(lambda: 0 < ask(broker, "GET", "/api/v1/queues/mail")["ready"] < LETTERS)
        broker.kill()
        chromium.until_text("The broker does not answer")
        broker.start()
        chromium.until("!document.body.innerText.includes('The broker does not answer')")
        left = patiently(lambda: ask(broker, "GET", "/api/v1/queues/mail-dead")["ready"])
        done = ask(broker, "GET", "/api/v1/queues/mail")["ready"]
        assert left + done == LETTERS and left > 0
        chromium.until(f"document.body.innerText.includes('{left} letters')")
        chromium.run(click("Send back …"))
        press_when_counted(chromium, f"Move {left} messages")
        settled(lambda: ask(broker, "GET", "/api/v1/queues/mail")["ready"] == LETTERS)
        assert chromium.run("window.sameLife") is True
        assert sorted(bodies(broker, "mail")) == sorted(f"letter {number}" for number in range(LETTERS))
        assert bodies(broker, "mail-dead") == []


def press_when_counted(chromium: Chromium, words: str) -> None:
    """The button says what it will do once the dry run has counted it."""
    chromium.until(
        f"(() => {{ const act = [...document.querySelectorAll('dialog button')].find((one) => one.textContent === {words!r} && !one.disabled);"
        " act?.click(); return !!act; })()"
    )


@pytest.fixture
def three(tmp_path: Path) -> Iterator[list[BrokerProcess]]:
    brokers = []
    try:
        for number in (1, 2, 3):
            broker = BrokerProcess(
                tmp_path / f"b{number}",
                environment={
                    "HEADRACE_NODE_ID": str(number),
                    "HEADRACE_COORDINATOR": f"sqlite://{tmp_path}/coordinator.db",
                    "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
                },
                start_seconds=120,
            )
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        yield brokers
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)


def test_a_seek_on_three_brokers_one_of_which_dies(chromium: Chromium, three: list[BrokerProcess]) -> None:
    """5.4 and what happened: the page of a broker that lives names the one that died and who leads instead, and a seek done in it is what Kafka says."""
    first, _, third = three
    patiently(lambda: ask(first, "POST", "/api/v1/topics", {"name": "orders", "partitions": 6}))
    rows = [{"value": {"n": n}, "partition": n % 6} for n in range(60)]
    for row in rows:
        patiently(
            lambda row=row: ask(
                first, "POST", f"/topics/orders/records?partition={row['partition']}", {"value": row["value"]}
            )
        )
    patiently(lambda: ask(first, "POST", "/api/v1/groups/billing/seek", {"topic": "orders", "to": "end"}))
    chromium.go(f"{site(first)}/console/happenings")
    chromium.until_text("Topic orders was created")
    third.kill()
    chromium.until("/Broker 3 (has gone|does not answer)/.test(document.body.innerText)")
    chromium.until("/instead of broker 3|is not in sync at broker 3/.test(document.body.innerText)")
    chromium.go(f"{site(first)}/console/groups/billing")
    chromium.until_text("Not behind", "orders")
    chromium.run(click("Move …"))
    chromium.until_text("Move billing")
    chromium.run(choose("To", "start"))
    chromium.until_text("60 messages would be read again")
    chromium.run(click("Move 6 partitions"))
    chromium.until_text("Back to where it was")
    consumer = Consumer({"bootstrap.servers": first.bootstrap, "group.id": "billing"})
    places = [TopicPartition("orders", number) for number in range(6)]
    assert {one.offset for one in consumer.committed(places, timeout=120)} == {0}
    chromium.run(click("Back to where it was"))
    settled(lambda: {one.offset for one in consumer.committed(places, timeout=120)} == {10})
    consumer.close()
    third.start()
    chromium.go(f"{site(first)}/console/happenings")
    chromium.until("/Broker 3 is there/.test(document.body.innerText)")


def test_what_lies_on_a_broker_that_is_away_is_not_nothing(
    chromium: Chromium, three: list[BrokerProcess]
) -> None:
    """W5 and section 6: a queue and a topic whose broker is away are not shown as empty, and who is away is named, with since when."""
    first, _, third = three
    patiently(
        lambda: ask(
            first, "POST", "/api/v1/topics", {"name": "mail", "partitions": 3, "replication_factor": 1}
        )
    )
    patiently(lambda: ask(first, "POST", "/api/v1/queues", {"name": "mail"}))
    for number in range(9):
        patiently(
            lambda number=number: ask(
                first, "POST", f"/topics/mail/records?partition={number % 3}", {"value": f"letter {number}"}
            )
        )
    settled(lambda: ask(first, "GET", "/api/v1/queues/mail")["ready"] == 9)
    assert ask(first, "GET", "/api/v1/queues/mail")["unknown_partitions"] == 0
    homes = [one["leader"] for one in ask(first, "GET", "/api/v1/topics/mail")["partitions"]]
    assert homes.count(3) == 1, homes
    third.kill()
    settled(lambda: [one["id"] for one in ask(first, "GET", "/api/v1/cluster")["away"]] == [3])
    settled(lambda: ask(first, "GET", "/api/v1/queues/mail")["unknown_partitions"] == 1)
    (gone,) = ask(first, "GET", "/api/v1/cluster")["away"]
    assert gone["partitions"] >= gone["only_there"] >= 1
    found = {one["check"]: one for one in ask(first, "GET", "/api/v1/health")["findings"]}
    assert "held by broker 3" in found["leaders"]["detail"]
    chromium.go(f"{site(first)}/console/queues/mail")
    chromium.until_text("1 partition of 3 does not answer", "6 ready")
    chromium.go(f"{site(first)}/console/topics/mail")
    chromium.until_text("1 partition of 3 has no leader", "until broker 3 is back")
    chromium.go(f"{site(first)}/console/cluster")
    chromium.until_text("2 brokers, 1 away", "can’t be read or written until it is back", "Start it again")
    chromium.until_text("Partitions in trouble", "no leader", "mail", "headrace cluster unregister 3")
    troubled = ask(first, "GET", "/api/v1/cluster/troubled?limit=1")
    assert troubled["total"] >= 2 and [one["state"] for one in troubled["items"]] == ["no-leader"]
    third.start()
    settled(lambda: ask(first, "GET", "/api/v1/queues/mail")["ready"] == 9)
    chromium.go(f"{site(first)}/console/queues/mail")
    chromium.until_text("9 ready")
    settled(lambda: ask(first, "GET", "/api/v1/cluster/troubled")["total"] == 0)
