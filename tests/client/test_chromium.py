"""F29, A6, W17, P13 in a real browser: a page of another origin, on another site and on another port of localhost, with fetch (plain and
with a preflight), forms, <img>, <script>, <iframe>, EventSource, WebSocket, a beacon and a link; and a name rebound to our address.
0 reads, 0 changes. The same page does all of it when its origin is allowed, so the attack is a real one; and our own page works.
"""

from __future__ import annotations

import http.client
import json
import sys
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from chromium import Chromium

pytestmark = pytest.mark.client

SECRET = "precious"
NAMES = ("evil.test", "rebound.test")


class Page(BaseHTTPRequestHandler):
    """A stranger's web site: an empty page, on which the test runs what the stranger would have put there."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>evil</title><body></body>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture(scope="module")
def site() -> Iterator[int]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Page)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield server.server_port
    server.shutdown()
    server.server_close()


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium(*NAMES) as browser:
        yield browser


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=30)
    data = None if body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"content-type": "application/json", "x-headrace-client": "test"})
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    assert response.status < 300, raw
    return json.loads(raw) if raw else None


@pytest.fixture
def filled() -> Iterator[BrokerProcess]:
    with BrokerProcess() as broker:
        fill(broker)
        yield broker


def fill(broker: BrokerProcess) -> None:
    ask(broker, "POST", "/api/v1/queues", {"name": "jobs"})
    for _ in range(3):
        ask(broker, "POST", "/queues/jobs/messages", {"value": SECRET})
    ask(broker, "POST", "/topics/letters/records", {"value": SECRET})


def standing(broker: BrokerProcess) -> Any:
    """Everything that an attack could have changed."""
    queues = [
        (row["name"], row["ready"], row["in_flight"]) for row in ask(broker, "GET", "/api/v1/queues")["items"]
    ]
    topics = sorted(row["name"] for row in ask(broker, "GET", "/api/v1/topics?limit=1000")["items"])
    letters = len(ask(broker, "GET", "/topics/letters/records")["items"])
    return queues, topics, letters, ask(broker, "GET", "/api/v1/webhooks")["items"]


ATTACK = """
(async (base) => {
  const read = [];
  const look = async (what, response) => { const text = await response.text(); if (text.includes('precious')) read.push(what); };
  const quietly = async (what, work) => { try { await look(what, await work()); } catch (refused) {} };
  const json = {'content-type': 'application/json'};
  const loaded = (node) => new Promise((done) => { node.onload = node.onerror = () => done(); setTimeout(done, 5000);
                                                   document.body.append(node); });
  // Reading, and taking, by fetch: simple requests first, then those that need a preflight.
  for (const path of ['/topics/letters/records', '/queues/jobs/messages', '/queues/jobs/messages?peek', '/metrics', '/api/v1/topics']) {
    await quietly('fetch ' + path, () => fetch(base + path));
    await quietly('no-cors ' + path, () => fetch(base + path, {mode: 'no-cors'}));
  }
  await quietly('client header', () => fetch(base + '/queues/jobs/messages', {headers: {'x-headrace-client': 'me'}}));
  await quietly('receive', () => fetch(base + '/queues/jobs/receive', {method: 'POST'}));
  await quietly('receive no-cors', () => fetch(base + '/queues/jobs/receive', {method: 'POST', mode: 'no-cors'}));
  await quietly('publish', () => fetch(base + '/topics/letters/records', {method: 'POST', body: 'x'}));
  await quietly('publish no-cors', () => fetch(base + '/topics/letters/records', {method: 'POST', body: 'x', mode: 'no-cors'}));
  await quietly('topic', () => fetch(base + '/api/v1/topics', {method: 'POST', headers: json, body: '{"name":"evil-topic"}'}));
  await quietly('plain topic', () => fetch(base + '/api/v1/topics', {method: 'POST', mode: 'no-cors', body: '{"name":"evil-plain"}'}));
  await quietly('purge', () => fetch(base + '/api/v1/queues/jobs/purge', {method: 'POST', mode: 'no-cors'}));
  await quietly('sqs', () => fetch(base + '/', {method: 'POST', headers: {'x-amz-target': 'AmazonSQS.CreateQueue',
      'content-type': 'application/x-amz-json-1.0'}, body: '{"QueueName":"evil-sqs"}'}));
  navigator.sendBeacon(base + '/topics/letters/records', 'beacon');
  // What needs no script at all.
  for (const path of ['/queues/jobs/messages?max=10', '/queues/jobs/stream?ack=auto', '/queues/jobs/receive']) {
    const image = new Image(); image.src = base + path; await loaded(image);
  }
  const script = document.createElement('script'); script.src = base + '/topics/letters/records'; await loaded(script);
  const frame = document.createElement('iframe'); frame.src = base + '/queues/jobs/messages'; await loaded(frame);
  try { if (frame.contentDocument.body.textContent.includes('precious')) read.push('iframe'); } catch (refused) {}
  const post = async (path, fields, type) => {
    const target = document.createElement('iframe'); target.name = 'sink' + Math.random();
    document.body.append(target);
    const form = document.createElement('form'); form.method = 'POST'; form.action = base + path; form.target = target.name;
    if (type) form.enctype = type;
    for (const [name, value] of Object.entries(fields)) {
      const input = document.createElement('input'); input.name = name; input.value = value; form.append(input);
    }
    document.body.append(form);
    await new Promise((done) => { target.onload = () => done(); setTimeout(done, 5000); form.submit(); });
  };
  await post('/', {Action: 'PurgeQueue', QueueUrl: '/000000000000/jobs'});
  await post('/', {Action: 'CreateQueue', QueueName: 'evil-form'});
  await post('/api/v1/queues/jobs/purge', {});
  await post('/queues/jobs/messages', {a: 'b'});
  await post('/api/v1/topics', {'{"name":"evil-text","x': '":1}'}, 'text/plain');
  // Streams.
  for (const path of ['/topics/letters/records?offset=start', '/queues/jobs/stream', '/queues/jobs/stream?ack=auto']) {
    await new Promise((done) => {
      const events = new EventSource(base + path);
      const end = () => { events.close(); done(); };
      events.onmessage = (event) => { if (event.data.includes('precious')) read.push('events ' + path); end(); };
      events.addEventListener('message', events.onmessage);
      events.onerror = end; setTimeout(end, 3000);
    });
  }
  await new Promise((done) => {
    const socket = new WebSocket(base.replace('http', 'ws') + '/queues/jobs/stream');
    socket.onmessage = () => { read.push('websocket'); done(); }; socket.onerror = socket.onclose = () => done(); setTimeout(done, 3000);
  });
  return read;
})(BASE)
"""


def attack(chromium: Chromium, page: str, base: str) -> list[str]:
    chromium.go(page)
    found: list[str] = chromium.run(ATTACK.replace("BASE", json.dumps(base)))
    return found


@pytest.mark.parametrize(
    "name", ["evil.test", "localhost"], ids=["another site", "another port of localhost"]
)
@pytest.mark.parametrize("ours", ["localhost", "127.0.0.1"])
def test_f29_a_page_of_another_origin_reads_nothing_and_changes_nothing(
    filled: BrokerProcess, chromium: Chromium, site: int, name: str, ours: str
) -> None:
    before = standing(filled)
    base = f"http://{ours}:{filled.http_port}"
    assert attack(chromium, f"http://{name}:{site}/", base) == []
    # A link, as if the person had clicked it: the browser leaves the page for ours.
    chromium.run(f"setTimeout(() => {{ location.href = '{base}/queues/jobs/messages?max=10' }}, 0)")
    while chromium.run("document.readyState + location.port") != f"complete{filled.http_port}":
        pass
    assert SECRET not in chromium.run("document.documentElement.textContent")
    assert standing(filled) == before


def test_f29_the_attack_is_a_real_one(chromium: Chromium, site: int) -> None:
    """The control: the same page, with its origin allowed, reads and changes; so what the other tests show is our doing."""
    origin = f"http://evil.test:{site}"
    with BrokerProcess(environment={"HEADRACE_ALLOWED_ORIGINS": origin}) as broker:
        fill(broker)
        before = standing(broker)
        read = attack(chromium, f"{origin}/", f"http://localhost:{broker.http_port}")
        assert {"fetch /topics/letters/records", "fetch /queues/jobs/messages?peek", "receive"} <= set(read)
        assert any(what.startswith("events") for what in read)
        queues, topics, letters, _ = standing(broker)
        assert "evil-topic" in topics and "evil-sqs" in topics and letters > before[2] and queues != before[0]


def test_f29_a_rebound_name_reads_nothing_and_changes_nothing(
    filled: BrokerProcess, chromium: Chromium
) -> None:
    """The page has the stranger's name and our address and port: to the browser all of it is one origin."""
    before = standing(filled)
    base = f"http://rebound.test:{filled.http_port}"
    assert attack(chromium, f"{base}/livez", base) == []
    statuses = chromium.run(
        "Promise.all(['/', '/metrics', '/api/v1/topics', '/topics/letters/records', '/queues/jobs/messages?peek'].map("
        "async (path) => (await fetch(path, {headers: {'x-headrace-client': 'x'}})).status))"
    )
    assert statuses == [421] * 5
    assert standing(filled) == before


def test_f29_our_own_page_works(filled: BrokerProcess, chromium: Chromium) -> None:
    """The console will be one: it publishes, reads, takes messages from an EventSource and acknowledges them."""
    chromium.go(f"http://localhost:{filled.http_port}/livez")
    done = chromium.run("""(async () => {
      const sent = await fetch('/topics/letters/records', {method: 'POST', headers: {'content-type': 'application/json'},
                                                           body: '{"value":"mine"}'});
      const found = (await (await fetch('/topics/letters/records')).json()).items.map((row) => row.value);
      const taken = await new Promise((done) => {
        const events = new EventSource('/queues/jobs/stream');
        events.addEventListener('message', (event) => { events.close(); done(JSON.parse(event.data)); });
      });
      const acked = await fetch('/queues/jobs/messages/' + taken.receipt, {method: 'DELETE'});
      return [sent.status, found, taken.value, acked.status];
    })()""")
    assert done == [201, [SECRET, "mine"], SECRET, 204]
