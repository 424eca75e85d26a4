"""Webhooks against a real endpoint that is slow, fails, hangs, redirects, answers 429 and 410: nothing lost, order kept (D2, X22, X23)."""

from __future__ import annotations

import functools
import itertools
import json
import threading
from collections.abc import Callable, Iterator
from http.client import HTTPConnection
from pathlib import Path
from typing import Any

import pytest
import standardwebhooks
from click.testing import CliRunner
from webhook_endpoint import ALLOW, QUICK, Api, Endpoint, Got, Reply, Server, numbers, until

from headrace.cli.failure import Exit
from headrace.cli.main import main
from headrace.testing.broker_process import BrokerProcess
from headrace.testing.etcd_server import free_ports


@pytest.fixture(scope="module")
def pushing() -> Iterator[BrokerProcess]:
    with BrokerProcess(environment=ALLOW) as running:
        yield running


@pytest.fixture(scope="module")
def server() -> Iterator[Server]:
    made = Server()
    yield made
    for endpoint in made.endpoints.values():
        endpoint.end.set()
    made.http.shutdown()
    made.http.server_close()


@pytest.fixture
def api(pushing: BrokerProcess) -> Api:
    return Api(pushing)


@pytest.fixture
def endpoint(server: Server) -> Endpoint:
    return server.endpoint()


@pytest.fixture
def name() -> str:
    return f"q{next(numbers)}"


# -- the good case -----------------------------------------------------------------------------------------------------


def test_messages_arrive_signed_and_are_acknowledged(api: Api, endpoint: Endpoint, name: str) -> None:
    secret = api.add(name, endpoint)
    api.send(name, *(f"m{number}" for number in range(30)))
    until(lambda: len(endpoint.taken) == 30)
    assert sorted(endpoint.values()) == sorted(f"m{number}" for number in range(30))
    for got in endpoint.got:
        standardwebhooks.Webhook(secret).verify(got.body, got.headers)
    until(lambda: api.is_empty(name))
    shown = api.webhook(name)
    assert (shown["state"], shown["delivered"], shown["failed"], shown["circuit"]) == (
        "active",
        30,
        0,
        "closed",
    )
    listed = api.ask("GET", f"/api/v1/webhooks/{name}/deliveries?limit=5")["items"]
    assert len(listed) == 5 and {(entry["outcome"], entry["status"]) for entry in listed} == {
        ("delivered", 200)
    }
    api.ask("DELETE", f"/api/v1/webhooks/{name}")
    api.ask("GET", f"/api/v1/webhooks/{name}", status=404)


def test_x25_a_secret_is_shown_once(api: Api, endpoint: Endpoint, name: str) -> None:
    secret = api.add(name, endpoint)
    assert sum(secret in text for text in api.texts) == 1
    key, token = secret[6:30], endpoint.tokens[0]
    api.texts.clear()
    rotated = api.ask("POST", f"/api/v1/webhooks/{name}/rotate-secret", {"overlap_ms": 60_000})["secret"]
    assert rotated != secret
    api.texts.clear()
    api.send(name, "x")
    until(lambda: len(endpoint.taken) == 1)
    got = endpoint.taken[0]
    for known in (secret, rotated):
        standardwebhooks.Webhook(known).verify(got.body, got.headers)
    for path in ("", f"/{name}", f"/{name}/deliveries"):
        api.ask("GET", f"/api/v1/webhooks{path}")
    api.ask("POST", f"/api/v1/webhooks/{name}/test", {})
    api.ask("POST", f"/api/v1/webhooks/{name}/rotate-secret", {"secret": "whsec_" + "short"}, status=400)
    api.texts.append(api.broker.log())
    for text in api.texts:
        assert key not in text and rotated[6:30] not in text and token not in text
    assert api.webhook(name)["secrets"] == 2


# -- whose endpoint it is ----------------------------------------------------------------------------------------------


def test_x23_an_endpoint_that_does_not_confirm_gets_nothing_else(
    api: Api, endpoint: Endpoint, name: str
) -> None:
    endpoint.confirms = False
    api.add(name, endpoint)
    shown = api.webhook(name)
    assert shown["state"] == "pending" and "token" in shown["reason"]
    api.send(name, "secret business")
    tested = api.ask("POST", f"/api/v1/webhooks/{name}/test", {})
    assert not tested["ok"] and tested["state"] == "pending"
    api.ask("POST", f"/api/v1/webhooks/{name}/pause", {}, status=409)
    assert api.ask("POST", f"/api/v1/webhooks/{name}/resume", {})["state"] == "pending"
    api.ask("POST", f"/api/v1/webhooks/{name}/confirm", {"token": "guess"}, status=400)
    assert endpoint.got == [] and len(endpoint.tokens) >= 2
    api.ask("POST", f"/api/v1/webhooks/{name}/confirm", {"token": endpoint.tokens[0]})
    until(lambda: endpoint.values() == ["secret business"])


def test_x23_a_new_url_has_to_confirm_with_a_new_token(
    api: Api, server: Server, endpoint: Endpoint, name: str
) -> None:
    api.add(name, endpoint)
    other = server.endpoint()
    other.confirms = False
    shown = api.ask("PATCH", f"/api/v1/webhooks/{name}", {"url": other.url, "rate": 500})
    assert (shown["state"], shown["url"], shown["rate"]) == ("pending", other.url, 500)
    api.ask("POST", f"/api/v1/webhooks/{name}/confirm", {"token": endpoint.tokens[0]}, status=400)
    api.send(name, "x")
    other.confirms = True
    assert api.ask("POST", f"/api/v1/webhooks/{name}/test", {})["ok"]
    until(lambda: other.values() == ["x"])
    assert endpoint.got == []


@pytest.mark.parametrize(
    "url",
    [
        "http://169.254.169.254/latest/meta-data/", "http://10.0.0.1/", "http://[::ffff:192.168.0.1]/", "http://2130706433/",
        "http://127.0.0.1:2379/v3/kv/put", "http://127.0.0.1:{kafka}/", "http://127.0.0.1:{http}/api/v1/queues",
        "http://user@127.0.0.1/", "ftp://127.0.0.1/", "http://127.1/", "http://①②⑦.0.0.1/",
    ],
)  # fmt: skip
def test_x22_hostile_urls_are_refused_in_words(api: Api, name: str, url: str) -> None:
    api.ask("POST", "/api/v1/queues", {"name": name})
    url = url.replace("{kafka}", str(api.broker.kafka_port)).replace("{http}", str(api.broker.http_port))
    problem = api.ask("POST", "/api/v1/webhooks", {"queue": name, "url": url}, status=400)
    assert problem["code"] == "INVALID_REQUEST" and "--webhook-networks" in problem["hint"]
    assert api.ask("GET", "/api/v1/webhooks")["items"] == [
        item for item in api.ask("GET", "/api/v1/webhooks")["items"] if item["queue"] != name
    ]


# -- the bad cases -----------------------------------------------------------------------------------------------------


def test_failures_are_retried_with_growing_gaps_under_one_id(api: Api, endpoint: Endpoint, name: str) -> None:
    endpoint.behave = lambda got, number: Reply(500 if number < 3 else 200, body=b"not now\x1b[2J")
    api.add(name, endpoint, retry={"initial_ms": 100, "multiplier": 3, "max_ms": 5_000, "jitter": 0})
    api.send(name, "stubborn")
    until(lambda: endpoint.values() == ["stubborn"])
    gaps = [later.at - sooner.at for sooner, later in itertools.pairwise(endpoint.got)]
    assert len(gaps) == 3 and gaps[0] >= 0.1 and gaps[1] >= 0.3 and gaps[2] >= 0.9
    assert len({got.headers["webhook-id"] for got in endpoint.got}) == 1
    assert [json.loads(got.body)["data"]["attempt"] for got in endpoint.got] == [1, 2, 3, 4]
    until(lambda: api.is_empty(name))
    failed = api.ask("GET", f"/api/v1/webhooks/{name}/deliveries?failed")["items"]
    assert [entry["attempt"] for entry in failed] == [3, 2, 1]
    assert all(entry["detail"].startswith("answered 500: not now") and entry["next_ms"] for entry in failed)
    assert all(entry["detail"].isprintable() for entry in failed)


def test_poison_goes_to_the_dead_letters_and_the_rest_arrives(
    api: Api, endpoint: Endpoint, name: str
) -> None:
    endpoint.behave = lambda got, number: Reply(422 if "poison" in got.value else 200)
    api.ask("POST", "/api/v1/queues", {"name": f"{name}-dead"})
    api.add(name, endpoint, settings={"dead_letter": f"{name}-dead", "max_deliveries": 3})
    api.send(name, "a", "poison", "b", "c")
    until(lambda: api.queue(f"{name}-dead")["ready"] == 1)
    assert sorted(endpoint.values()) == ["a", "b", "c"]
    assert sum("poison" in got.value for got in endpoint.got) == 3
    (letter,) = api.ask("GET", f"/queues/{name}-dead/messages?peek")["items"]
    assert letter["value"] == "poison" and letter["headers"]["headrace-dead-reason"] == "max_deliveries"
    # F12: what the endpoint said last is kept with it.
    assert letter["headers"]["headrace-dead-detail"] == "answered 422"
    assert api.webhook(name)["circuit"] == "closed", "one bad message is not the endpoint's fault"


def test_retry_after_is_honoured_for_the_whole_endpoint(api: Api, endpoint: Endpoint, name: str) -> None:
    endpoint.behave = lambda got, number: Reply(429, (("Retry-After", "2"),)) if number == 0 else Reply()
    api.add(name, endpoint)
    api.send(name, "first")
    until(lambda: len(endpoint.got) == 1)
    until(lambda: api.webhook(name)["failed"] == 1)
    api.send(name, "second")
    until(lambda: sorted(endpoint.values()) == ["first", "second"])
    assert all(got.at - endpoint.got[0].at >= 1.9 for got in endpoint.got[1:])


def test_410_disables_until_somebody_resumes(api: Api, endpoint: Endpoint, name: str) -> None:
    endpoint.behave = lambda got, number: Reply(410)
    api.add(name, endpoint)
    api.send(name, "x")
    until(lambda: api.webhook(name)["state"] == "disabled")
    assert "410" in api.webhook(name)["reason"]
    api.send(name, "y")
    count = len(endpoint.got)
    endpoint.behave = lambda got, number: Reply()
    threading.Event().wait(0.5)
    assert len(endpoint.got) == count <= 2, "a disabled webhook gets nothing"
    assert api.ask("POST", f"/api/v1/webhooks/{name}/resume", {})["state"] == "active"
    until(lambda: sorted(endpoint.values()) == ["x", "y"])


def test_x22_redirects_are_not_followed(api: Api, server: Server, endpoint: Endpoint, name: str) -> None:
    elsewhere = server.endpoint()
    endpoint.behave = lambda got, number: (
        Reply(307, (("Location", elsewhere.url),)) if number < 2 else Reply()
    )
    api.add(name, endpoint)
    api.send(name, "x")
    until(lambda: endpoint.values() == ["x"])
    assert elsewhere.got == [] and len(endpoint.got) == 3
    details = [e["detail"] for e in api.ask("GET", f"/api/v1/webhooks/{name}/deliveries?failed")["items"]]
    assert details == ["answered 307: redirects are not followed"] * 2


def test_a_hanging_endpoint_breaks_its_circuit_and_nobody_elses(
    api: Api, server: Server, endpoint: Endpoint, name: str
) -> None:
    """While the circuit is open nothing is received, so nothing is used up and no memory is held."""
    endpoint.behave = lambda got, number: Reply(after_s=30)
    api.add(name, endpoint, timeout_ms=300, retry={"initial_ms": 600_000})
    beside, other = server.endpoint(), f"{name}-beside"
    api.add(other, beside)
    values = [f"{number}-{'x' * 10_000}" for number in range(100)]
    api.send(name, *values)
    until(lambda: api.webhook(name)["circuit"] == "open")
    tried = len(endpoint.got)
    api.send(other, *(f"m{number}" for number in range(50)))
    until(lambda: len(beside.taken) == 50)
    shown = api.webhook(name)
    assert shown["concurrency"] <= 2 and tried <= 12 and shown["in_flight"] <= 2
    assert api.queue(name)["ready"] >= 80, "the rest waits in the queue, not in memory"
    endpoint.behave = lambda got, number: Reply()
    endpoint.end.set()
    assert api.ask("POST", f"/api/v1/webhooks/{name}/retry", {})["retried"] >= 1
    until(lambda: {got.value for got in endpoint.taken} >= set(values))
    until(lambda: api.is_empty(name))


def test_a_slow_endpoint_gets_less_and_a_quick_one_more_again(
    api: Api, endpoint: Endpoint, name: str
) -> None:
    endpoint.behave = lambda got, number: Reply(after_s=0.01)
    api.add(name, endpoint, max_concurrency=8)
    sent = itertools.count()

    def concurrency() -> int:
        return int(api.webhook(name)["concurrency"])

    def work_until(condition: Callable[[], bool]) -> None:
        """There is always something to push: how much of it a busy machine needs is not asked."""

        def met() -> bool:
            if not condition():
                total = len(endpoint.taken)
                api.send(name, *(f"{next(sent)}" for _ in range(20)))
                until(lambda: len(endpoint.taken) > total)
            return condition()

        until(met)

    work_until(lambda: concurrency() >= 4)
    endpoint.behave = lambda got, number: Reply(after_s=1.1)
    work_until(lambda: concurrency() <= 2)
    slow = concurrency()
    endpoint.behave = lambda got, number: Reply()
    work_until(lambda: concurrency() > slow)
    total = next(sent)
    until(lambda: len(set(endpoint.values())) == total)
    assert len(endpoint.values()) == total and endpoint.most <= 8


def test_the_rate_cap(api: Api, endpoint: Endpoint, name: str) -> None:
    api.ask("POST", "/api/v1/queues", {"name": name})
    api.send(name, *(f"m{number}" for number in range(30)))
    api.add(name, endpoint, create=False, rate=20)
    until(lambda: len(endpoint.taken) == 30)
    took = endpoint.got[-1].at - endpoint.got[0].at
    assert took >= (30 - 5) / 20 * 0.95


# -- order, batches, forms ---------------------------------------------------------------------------------------------


def test_r59_order_is_kept_in_each_group_whatever_fails(api: Api, endpoint: Endpoint, name: str) -> None:
    endpoint.behave = lambda got, number: Reply(500 if number % 3 == 1 else 200, after_s=0.002 * (number % 4))
    api.add(name, endpoint, settings={"fifo": True}, retry={**QUICK, "initial_ms": 10, "max_ms": 20})
    for number in range(20):
        for group in ("a", "b", "c"):
            api.send(name, f"{group}{number:02}", group=group)
    until(lambda: len(set(endpoint.values())) == 60, 60)
    for group in ("a", "b", "c"):
        seen = [value for value in endpoint.values() if value[0] == group]
        assert list(dict.fromkeys(seen)) == [f"{group}{number:02}" for number in range(20)]
        tried = [got.value for got in endpoint.got if got.value[0] == group]
        assert tried == sorted(tried), "nothing overtakes what failed"


def test_batches_and_what_of_them_was_not_taken(api: Api, endpoint: Endpoint, name: str) -> None:
    def behave(got: Got, number: int) -> Reply:
        ids = {entry["value"]: entry["message_id"] for entry in json.loads(got.body)["data"]}
        refused = [ids[value] for value in ("m3", "m7") if value in ids and number == 0]
        return Reply(body=json.dumps({"failures": refused}).encode())

    endpoint.behave = behave
    api.ask("POST", "/api/v1/queues", {"name": name})
    api.send(name, *(f"m{number}" for number in range(10)))
    api.add(name, endpoint, create=False, batch_size=10, batch_wait_ms=2_000)
    until(lambda: len(endpoint.got) >= 2)
    until(lambda: api.is_empty(name))
    batches = [[entry["value"] for entry in json.loads(got.body)["data"]] for got in endpoint.got]
    assert batches[0] == [f"m{number}" for number in range(10)]
    assert sorted(value for batch in batches[1:] for value in batch) == ["m3", "m7"]


def test_a_batch_waits_to_be_full(api: Api, endpoint: Endpoint, name: str) -> None:
    api.add(name, endpoint, batch_size=5, batch_wait_ms=10_000)
    api.send(name, *(f"m{number}" for number in range(5)))
    until(lambda: len(endpoint.got) == 1)
    assert len(json.loads(endpoint.got[0].body)["data"]) == 5


def test_cloudevents(api: Api, endpoint: Endpoint, name: str) -> None:
    """The endpoint is asked as the CloudEvents webhook specification wants it, and says how much it takes."""
    api.add(name, endpoint, form="cloudevents")
    assert endpoint.tokens == [] and api.webhook(name)["rate"] == 1000
    api.send(name, {"amount": 5}, key="k1", headers={"ce_type": "order.paid"})
    until(lambda: len(endpoint.taken) == 1)
    got = endpoint.taken[0]
    assert json.loads(got.body) == {"amount": 5} and got.headers["content-type"] == "application/json"
    assert (got.headers["ce-type"], got.headers["ce-partitionkey"], got.headers["ce-specversion"]) == (
        "order.paid",
        "k1",
        "1.0",
    )
    api.ask("PATCH", f"/api/v1/webhooks/{name}", {"form": "cloudevents-structured", "batch_size": 10})
    api.send(name, {"amount": 6})
    until(lambda: len(endpoint.taken) == 2)
    assert endpoint.taken[1].headers["content-type"] == "application/cloudevents-batch+json"
    (event,) = json.loads(endpoint.taken[1].body)
    assert event["data"] == {"amount": 6}
    api.ask("PATCH", f"/api/v1/webhooks/{name}", {"form": "raw"}, status=400)


def test_q9_a_subscription_of_its_own_with_a_filter(api: Api, endpoint: Endpoint, name: str) -> None:
    api.send(name, {"amount": 500, "n": "before"})  # makes the topic; the subscription begins after it
    api.add(
        f"{name}-big",
        endpoint,
        create=False,
        topics=[name],
        filter="value.amount > 100",
        start="latest",
        form="raw",
    )
    api.send(name, *({"amount": amount} for amount in (50, 150, 99, 101, 1000)))
    until(lambda: len(endpoint.taken) == 3)
    assert sorted(json.loads(got.body)["amount"] for got in endpoint.taken) == [101, 150, 1000]
    assert endpoint.taken[0].headers["headrace-topic"] == name
    api.ask("DELETE", f"/api/v1/webhooks/{name}-big")
    api.ask("GET", f"/api/v1/queues/{name}-big", status=404)
    api.queue(name)
    body = {"queue": f"{name}-x", "url": endpoint.url, "topics": [name], "filter": "value.amount >"}
    assert api.ask("POST", "/api/v1/webhooks", body, status=422)["code"] == "INVALID_FILTER"
    api.ask("POST", "/api/v1/webhooks", {"queue": name, "url": endpoint.url, "filter": "true"}, status=400)


# -- to a browser ------------------------------------------------------------------------------------------------------


class Stream:
    """What EventSource does on a page of this server: the browser says so in a header that no page can set."""

    def __init__(self, broker: BrokerProcess, path: str) -> None:
        self._connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
        self._connection.request(
            "GET", path, headers={"accept": "text/event-stream", "sec-fetch-site": "same-origin"}
        )
        self._response = self._connection.getresponse()
        assert self._response.status == 200
        assert (self._response.getheader("content-type") or "").startswith("text/event-stream")

    def next(self) -> Any:
        while True:
            line = self._response.readline()
            if line.startswith(b"data: "):
                return json.loads(line[6:])

    def close(self) -> None:
        self._response.close()
        self._connection.close()


def test_a_queue_as_server_sent_events(api: Api, name: str) -> None:
    """A page holds no more than its window, acknowledges by receipt, and what it leaves behind goes back at once."""
    api.ask("POST", "/api/v1/queues", {"name": name})
    api.send(name, *(f"m{number}" for number in range(6)))
    page = Stream(api.broker, f"/queues/{name}/stream?window=2&visibility=60s")
    first, second = page.next(), page.next()
    assert (first["value"], second["value"]) == ("m0", "m1")
    assert (api.queue(name)["in_flight"], api.queue(name)["ready"]) == (2, 4)
    api.ask("DELETE", f"/queues/{name}/messages/{first['receipt']}")
    assert page.next()["value"] == "m2"
    page.close()
    until(lambda: (api.queue(name)["in_flight"], api.queue(name)["ready"]) == (0, 5))
    quick = Stream(api.broker, f"/queues/{name}/stream?ack=auto")
    assert [quick.next()["value"] for _ in range(5)] == ["m1", "m2", "m3", "m4", "m5"]
    api.send(name, "later")
    assert quick.next()["value"] == "later"
    api.send(name, "last")
    assert quick.next()["value"] == "last"
    quick.close()
    api.ask("POST", f"/queues/{name}-none/stream", status=404)
    api.ask("POST", f"/queues/{name}/stream?ack=perhaps", status=400)
    api.ask("POST", f"/queues/{name}/stream?visibility=0s", status=400)


# -- the command line --------------------------------------------------------------------------------------------------


def test_the_commands(
    pushing: BrokerProcess, endpoint: Endpoint, name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("HEADRACE_URL", pushing.url)
    monkeypatch.chdir(tmp_path)

    def ask(*arguments: str, exit: Exit = Exit.OK) -> Any:
        result = CliRunner().invoke(main, ["webhook", *arguments, "--json"], prog_name="headrace")
        assert result.exit_code == exit, (arguments, result.output, result.stderr)
        document = json.loads(result.stdout if exit is Exit.OK or result.stdout else result.stderr)
        return document.get("items", document)

    api = Api(pushing)
    api.ask("POST", "/api/v1/queues", {"name": name})
    secret = "whsec_" + "MfKQ9r8GKYqrTwjUPD8ILPZIo2LaLaSw"
    (tmp_path / "secret").write_text(secret + "\n")
    ask("add", "nowhere", endpoint.url, exit=Exit.NOT_FOUND)
    added = ask("add", name, endpoint.url, "--secret-file", "secret", "--rate", "100/s", "--batch", "2")
    assert (added["name"], added["state"], added["secret"], added["batch_size"]) == (
        name,
        "active",
        secret,
        2,
    )
    assert ask("add", name, endpoint.url)["name"] == f"{name}-2"
    ask("remove", f"{name}-2", exit=Exit.USAGE)
    assert ask("remove", f"{name}-2", "--dry-run")[0]["status"] == "would remove"
    ask("remove", f"{name}-2", "--yes")
    assert ask("test", name)["status"] == 200
    assert ask("pause", name)["state"] == "paused"
    endpoint.got.clear()
    endpoint.taken.clear()
    api.send(name, "x")
    threading.Event().wait(0.3)
    assert endpoint.got == []
    endpoint.behave = lambda got, number: Reply(500)
    assert ask("set", name, "--batch", "1", "--request-timeout", "5s")["timeout_ms"] == 5_000
    api.ask("PATCH", f"/api/v1/webhooks/{name}", {"retry": {"initial_ms": 600_000}})
    assert ask("resume", name)["state"] == "active"
    until(lambda: len(ask("deliveries", name, "--failed")) == 1)
    (entry,) = ask("deliveries", name, "--failed")
    endpoint.behave = lambda got, number: Reply()
    until(lambda: ask("retry", name, "--delivery", entry["id"])["retried"] == 1)
    until(lambda: endpoint.values()[-1:] == ["x"])
    assert ask("rotate", name, "--overlap", "1h")["overlap_ms"] == 3_600_000
    ask("confirm", name, "wrong", exit=Exit.USAGE)
    (row,) = ask("list", "--queue", name)
    assert row["delivered"] == 1 and "secret" not in row
    text = CliRunner().invoke(main, ["webhook", "list"], prog_name="headrace").stdout
    assert name in text and "whsec" not in text
    assert 'mq_webhook_deliveries_total{outcome="delivered"}' in _metrics(pushing)


def _metrics(broker: BrokerProcess) -> str:
    connection = HTTPConnection("127.0.0.1", broker.http_port, timeout=120)
    connection.request("GET", "/metrics")
    text = connection.getresponse().read().decode()
    connection.close()
    return text


# -- the broker dies ---------------------------------------------------------------------------------------------------


def test_kill_9_in_the_middle_loses_nothing(
    fresh_broker: Callable[..., BrokerProcess], server: Server, endpoint: Endpoint, name: str
) -> None:
    """What was on its way is sent again after its lease (R58): at least once."""
    broker = fresh_broker(environment=ALLOW)
    api = Api(broker)
    endpoint.behave = lambda got, number: Reply(after_s=0.05)
    api.add(name, endpoint, timeout_ms=100)
    values = [f"m{number}" for number in range(60)]
    api.send(name, *values)
    until(lambda: len(endpoint.taken) >= 10)
    broker.kill()
    endpoint.behave = lambda got, number: Reply()
    broker.start()
    until(lambda: set(endpoint.values()) == set(values), 60)
    until(lambda: api.is_empty(name), 60)
    assert api.webhook(name)["state"] == "active", "nobody has to confirm twice"


@pytest.mark.slow
def test_a_new_leader_goes_on(server: Server, endpoint: Endpoint, name: str, tmp_path: Path) -> None:
    brokers = []
    try:
        for number in (1, 2, 3):
            broker = BrokerProcess(
                tmp_path / f"b{number}",
                environment={
                    **ALLOW,
                    "HEADRACE_NODE_ID": str(number),
                    "HEADRACE_COORDINATOR": f"sqlite://{tmp_path}/coordinator.db",
                    "HEADRACE_DEFAULT_REPLICATION_FACTOR": "3",
                },
                start_seconds=60,
            )
            broker.kafka_port, broker.http_port = free_ports(2)
            brokers.append(broker.start())
        endpoint.behave = lambda got, number: Reply(after_s=0.05)
        first = Api(brokers[0])
        first.add(name, endpoint, timeout_ms=100, max_concurrency=2)
        for broker in brokers:
            until(functools.partial(Api(broker).knows, name))
        for number in range(40):
            Api(brokers[number % 3]).send(name, f"m{number}")
        until(lambda: len(endpoint.taken) >= 5)
        leader = next(b for b in brokers if f'mq_webhook_in_flight{{webhook="{name}"}}' in _metrics(b))
        leader.kill()
        left = [broker for broker in brokers if broker is not leader]
        until(lambda: {got.value for got in endpoint.taken} >= {f"m{number}" for number in range(40)})
        api = Api(left[0])
        until(lambda: api.webhook(name)["delivered"] > 0)
        assert api.ask("GET", f"/api/v1/webhooks/{name}/deliveries")["items"], "any broker shows them (C6)"
    finally:
        for broker in brokers:
            broker.__exit__(None, None, None)
