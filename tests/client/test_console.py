"""The web console in a real browser, against a real broker: what a person sees, and that nothing else happens (W1, W2, W5, W8, W16, W17, W20)."""

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

NOTES = """
window.noted = [];
addEventListener('error', (event) => noted.push('error ' + event.message));
addEventListener('unhandledrejection', (event) => noted.push('rejected ' + event.reason));
document.addEventListener('securitypolicyviolation', (event) => noted.push('policy ' + event.violatedDirective + ' ' + event.blockedURI));
"""
"""What a page must never do is written down from its first moment on."""


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium("elsewhere.test") as browser:
        browser.before_each_page(NOTES)
        yield browser


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        yield running


def ask(broker: BrokerProcess, method: str, path: str, body: Any = None) -> Any:
    connection = http.client.HTTPConnection("127.0.0.1", broker.http_port, timeout=60)
    data = None if body is None else json.dumps(body).encode()
    connection.request(method, path, data, {"content-type": "application/json", "x-headrace-client": "test"})
    response = connection.getresponse()
    raw = response.read()
    connection.close()
    assert response.status < 300, raw
    return json.loads(raw) if raw else None


def site(broker: BrokerProcess) -> str:
    return f"http://localhost:{broker.http_port}"


def assert_clean(chromium: Chromium, broker: BrokerProcess) -> None:
    """No script failed, the policy refused nothing, and nobody else was asked anything."""
    assert chromium.run("noted") == []
    asked = chromium.run("performance.getEntriesByType('resource').map((entry) => entry.name)")
    assert [url for url in asked if not url.startswith(site(broker))] == []


def test_w1_the_first_screen_helps_without_any_data(chromium: Chromium, broker: BrokerProcess) -> None:
    """Acceptance 1 and 3: Home is drawn from the wheel alone, with commands that name this broker's ports."""
    chromium.go(f"{site(broker)}/")
    chromium.until_text("All is well", "Publish", "Queue", "Spark", "Waiting for your first message")
    text = chromium.run("document.body.innerText")
    assert f"headrace topic produce hello 'first message' -b localhost:{broker.kafka_port}" in text
    assert f"localhost:{broker.http_port}/queues/jobs/messages" in text
    assert_clean(chromium, broker)


@pytest.mark.parametrize("width", [320, 375, 1024, 1440])
def test_w12_no_page_is_wider_than_the_window(chromium: Chromium, broker: BrokerProcess, width: int) -> None:
    chromium.resize(width)
    chromium.go(f"{site(broker)}/")
    chromium.until_text("All is well")
    root = "document.documentElement"
    assert chromium.run(f"{root}.scrollWidth <= {root}.clientWidth")


def test_w12_dark_and_light_are_remembered(chromium: Chromium, broker: BrokerProcess) -> None:
    chromium.resize(1440)
    chromium.go(f"{site(broker)}/")
    chromium.until_text("All is well", "System")
    press = "[...document.querySelectorAll('header button')].find((one) => one.textContent === '%s').click()"
    background = "getComputedStyle(document.documentElement).backgroundColor"
    chromium.run(press % "System")
    chromium.until_text("Dark")
    dark = chromium.run(background)
    chromium.go(f"{site(broker)}/console")
    chromium.until_text("Dark")
    assert chromium.run(background) == dark
    chromium.run(press % "Dark")
    chromium.until_text("Light")
    assert chromium.run(background) != dark
    chromium.run(press % "Light")


class Elsewhere(BaseHTTPRequestHandler):
    """A page of somebody else."""

    def do_GET(self) -> None:
        body = b"<!doctype html><title>elsewhere</title><body></body>"
        self.send_response(200)
        self.send_header("content-type", "text/html")
        self.send_header("content-length", str(len(body)))
        self.end_headers()
        self.wfile.write(body)

    def log_message(self, *arguments: object) -> None:
        """Says nothing."""


@pytest.fixture
def elsewhere() -> Iterator[str]:
    server = ThreadingHTTPServer(("127.0.0.1", 0), Elsewhere)
    threading.Thread(target=server.serve_forever, daemon=True).start()
    yield f"http://elsewhere.test:{server.server_port}/"
    server.shutdown()
    server.server_close()


def test_w17_a_link_of_another_site_opens_the_console_and_a_frame_does_not(
    chromium: Chromium, broker: BrokerProcess, elsewhere: str
) -> None:
    chromium.go(elsewhere)
    framed = chromium.run(
        f"""new Promise((done) => {{ const frame = document.createElement('iframe'); frame.src = '{site(broker)}/console';
        frame.onload = () => {{ try {{ done(String(frame.contentDocument && frame.contentDocument.body.textContent)); }}
        catch (refused) {{ done('refused'); }} }}; document.body.append(frame); }})"""
    )
    assert framed in ("refused", "null", "")
    chromium.run(f"setTimeout(() => {{ location.href = '{site(broker)}/console' }}, 0)")
    chromium.until(f"location.port === '{broker.http_port}' && document.readyState === 'complete'")
    chromium.until_text("All is well")
    assert_clean(chromium, broker)


def test_w5_a_broker_that_is_gone_is_said_and_its_return_needs_no_reload(chromium: Chromium) -> None:
    """Acceptance 15, without its seconds: the page says so by itself, greys what it shows, and goes on by itself."""
    with BrokerProcess() as broker:
        ask(broker, "POST", "/api/v1/topics", {"name": "orders"})
        chromium.go(f"{site(broker)}/")
        chromium.until_text("1 topic")
        chromium.run("window.sameLife = true")
        broker.kill()
        chromium.until_text("The broker does not answer")
        assert chromium.run("document.querySelector('main').classList.contains('stale')")
        broker.start()
        chromium.until("!document.body.innerText.includes('The broker does not answer')")
        chromium.until_text("1 topic")
        assert chromium.run("window.sameLife") is True
        assert chromium.run("noted") == []


def test_no_console_leaves_the_api_where_it_is(chromium: Chromium) -> None:
    with BrokerProcess(arguments=("--no-console",)) as broker:
        chromium.go(f"{site(broker)}/")
        assert '"openapi":"/openapi.json"' in chromium.run("document.body.innerText")
        assert "/console" not in chromium.run("document.body.innerText")
        assert ask(broker, "GET", "/api/v1/version")["console"] is None
