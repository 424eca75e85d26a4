"""`@client.worker`: functions that are called for a queue's messages, at a real broker."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from typing import Any

import pytest

from headrace import Client, HeadraceError, QueueMessage, Reject
from headrace.testing.broker_process import BrokerProcess

pytestmark = pytest.mark.client


@dataclass
class Job:
    number: int


def until(condition: Callable[[], Any], seconds: float = 120.0) -> None:
    deadline = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < deadline, "it did not happen in time"
        time.sleep(0.02)


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None) -> Any:
    request = urllib.request.Request(
        f"http://127.0.0.1:{broker.http_port}{path}",
        None if body is None else json.dumps(body).encode(),
        {"content-type": "application/json"},
        method=method,
    )
    with urllib.request.urlopen(request, timeout=60) as answer:
        raw = answer.read()
    return json.loads(raw) if raw else None


def make_queue(broker: BrokerProcess, name: str, **settings: Any) -> None:
    ask(broker, "POST", "/api/v1/queues", {"name": name, **settings})


@contextmanager
def running(client: Client) -> Iterator[None]:
    thread = threading.Thread(target=client.run)
    thread.start()
    try:
        yield
    finally:
        client.stop()
        thread.join(60)
        assert not thread.is_alive(), "a stop that does not end"


def left(broker: BrokerProcess, queue: str) -> int:
    found = ask(broker, "GET", f"/api/v1/queues/{queue}")
    return int(found["ready"]) + int(found["in_flight"]) + int(found["delayed"])


def test_functions_get_what_their_parameter_says(broker: BrokerProcess, topic: str) -> None:
    seen: list[Any] = []
    client = Client(broker.bootstrap)
    kinds: dict[str, Callable[[Any], Any]] = {}

    def typed(job: Job) -> None:
        seen.append(job)

    def text(job: str) -> None:
        seen.append(job)

    def plain(job) -> None:  # type: ignore[no-untyped-def]
        seen.append((type(job), job.json(), job.delivery, job.headers))

    async def later(job: bytes) -> None:
        seen.append(job)

    for work in (typed, text, plain, later):
        queue = f"{topic}-{work.__name__}"
        make_queue(broker, queue)
        kinds[queue] = work
        client.worker(queue)(work)
    with client, running(client):
        for queue in kinds:
            client.send(queue, Job(7), headers={"trace": "t1"})
        until(lambda: len(seen) == 4)
        until(lambda: not any(left(broker, queue) for queue in kinds))
    assert Job(7) in seen and '{"number":7}' in seen and b'{"number":7}' in seen
    assert (QueueMessage, {"number": 7}, 1, {"trace": b"t1"}) in seen


def test_as_many_at_a_time_as_asked_and_none_twice(broker: BrokerProcess, topic: str) -> None:
    """Work takes longer than the visibility: what is in hand is kept."""
    make_queue(broker, topic)
    meet = threading.Barrier(3, timeout=60)
    seen: list[int] = []
    client = Client(broker.bootstrap)

    @client.worker(topic, concurrency=3, visibility=1.0)
    def work(job: Job) -> None:
        meet.wait()
        time.sleep(2.5)
        seen.append(job.number)

    with client, running(client):
        for number in range(3):
            client.send(topic, Job(number))
        until(lambda: len(seen) == 3)
        until(lambda: not left(broker, topic))
    assert sorted(seen) == [0, 1, 2]


def test_what_fails_comes_again_and_what_is_rejected_does_not(broker: BrokerProcess, topic: str) -> None:
    make_queue(broker, f"{topic}-dead")
    make_queue(broker, topic, dead_letter=f"{topic}-dead", max_deliveries=5)
    tries: list[tuple[int, int]] = []
    client = Client(broker.bootstrap)

    def work(message: QueueMessage) -> None:
        number = message.decode(Job).number
        tries.append((number, message.delivery))
        if number == 0 and message.delivery < 3:
            raise ValueError("not yet")
        if number == 1:
            raise Reject("nobody can do this")

    client.worker(topic)(work)
    with client, running(client):
        for number in range(3):
            client.send(topic, Job(number))
        until(lambda: not left(broker, topic))
    assert [entry for entry in tries if entry[0] == 0] == [(0, 1), (0, 2), (0, 3)]
    assert [entry for entry in tries if entry[0] == 1] == [(1, 1)]
    letters = ask(broker, "GET", f"/api/v1/queues/{topic}-dead/letters")["items"]
    assert len(letters) == 1 and "nobody can do this" in json.dumps(letters)


def test_a_payload_of_another_type_is_a_dead_letter(broker: BrokerProcess, topic: str) -> None:
    make_queue(broker, f"{topic}-dead")
    make_queue(broker, topic, dead_letter=f"{topic}-dead", max_deliveries=5)
    client = Client(broker.bootstrap)

    @client.worker(topic)
    def work(job: Job) -> None:
        raise AssertionError("it is no Job")

    with client, running(client):
        client.send(topic, {"number": "seven"})
        until(lambda: left(broker, f"{topic}-dead") == 1)


def test_sigterm_finishes_what_was_begun(broker: BrokerProcess, topic: str) -> None:
    make_queue(broker, topic)
    program = f"""
import sys, time
from headrace import Client
client = Client({broker.bootstrap!r})

@client.worker({topic!r})
def work(job: str):
    print("begun", job, flush=True)
    sys.stdin.readline()
    print("done", job, flush=True)

client.run()
print("ended", flush=True)
"""
    with Client(broker.bootstrap) as client:
        client.send(topic, "one")
        client.send(topic, "two")
    with subprocess.Popen(
        [sys.executable, "-c", program], stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as worker:
        assert worker.stdin is not None and worker.stdout is not None
        assert worker.stdout.readline() == "begun one\n"
        os.kill(worker.pid, signal.SIGTERM)
        worker.stdin.write("\n")
        worker.stdin.flush()
        assert worker.stdout.read() == "done one\nended\n"
        assert worker.wait(60) == 0
    assert left(broker, topic) == 1, "the other one is for somebody else"


def test_what_comes_while_it_stops_is_given_back(broker: BrokerProcess, topic: str) -> None:
    """The receive waits for messages when the stop is told; what it then brings is not begun."""
    make_queue(broker, topic)
    begun: list[str] = []
    client = Client(broker.bootstrap)

    @client.worker(topic)
    def work(job: str) -> None:
        begun.append(job)

    with client:
        with running(client):
            client.send(topic, "one")
            until(lambda: begun == ["one"] and not left(broker, topic))
            client.stop()
            client.send(topic, "two")
        assert begun == ["one"]
        until(lambda: ask(broker, "GET", f"/api/v1/queues/{topic}")["ready"] == 1)


def test_nobody_to_work_and_nobody_there(broker: BrokerProcess) -> None:
    with pytest.raises(HeadraceError, match="there is no worker"):
        Client(broker.bootstrap).run()
    client = Client("localhost:1", timeout=0.2)
    client.worker("jobs")(print)
    with pytest.raises(HeadraceError, match="no broker answers"):
        client.run()
