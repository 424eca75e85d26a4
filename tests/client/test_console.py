"""The web console in a real browser, against a real broker: what a person sees, and that nothing else happens (W1, W2, W5, W8, W16, W17, W20)."""

from __future__ import annotations

import http.client
import json
import sys
import threading
import time
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
    chromium.until_text("All is well", "Theme: system")
    press = "[...document.querySelectorAll('header button')].find((one) => one.textContent === '%s').click()"
    background = "getComputedStyle(document.documentElement).backgroundColor"
    chromium.run(press % "Theme: system")
    chromium.until_text("Theme: dark")
    dark = chromium.run(background)
    chromium.go(f"{site(broker)}/console")
    chromium.until_text("Theme: dark")
    assert chromium.run(background) == dark
    chromium.run(press % "Theme: dark")
    chromium.until_text("Theme: light")
    assert chromium.run(background) != dark
    chromium.run(press % "Theme: light")


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


# -- topics and their messages ---------------------------------------------------------------------------------------------

HOSTILE = [
    "<img src=x onerror=\"window.canary = 'value'\">",
    "<script>window.canary = 'script'</script>",
    "</script><svg onload=\"window.canary='svg'\">",
    "javascript:window.canary='link'",
    "\u202etxt.exe\u202c \u0000\u0007 {{constructor.constructor('window.canary=1')()}}",
    '{"__proto__": {"canary": true}, "deep": ' + "[" * 90 + "]" * 90 + "}",
    '=HYPERLINK("http://evil.example")',
    "x" * 200_000,
]


@pytest.fixture(scope="module")
def filled() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        ask(running, "POST", "/api/v1/topics", {"name": "orders.v1", "partitions": 3})
        records = [
            {
                "key": f"k{n}",
                "value": {"n": n, "exact": 10**17 + n},
                "timestamp": 1_790_000_000_000 + n * 60_000,
            }
            for n in range(200)
        ]
        ask(running, "POST", "/topics/orders.v1/records", {"records": records})
        ask(running, "POST", "/api/v1/topics", {"name": "hostile"})
        for text in HOSTILE:
            entry = {
                "key": text[:500],
                "value": text,
                "headers": {text[:100].replace("\x00", ""): text[:100]},
            }
            ask(running, "POST", "/topics/hostile/records", entry)
        ask(running, "POST", "/topics/hostile/records", {"value": {"base64": "//79/A=="}})
        yield running


def click(words: str, among: str = "button, a") -> str:
    return f"[...document.querySelectorAll({among!r})].find((one) => one.textContent.trim() === {words!r}).click()"


def write(label: str, text: str) -> str:
    """Into the field with this label, as typing does."""
    return f"""(() => {{ const field = [...document.querySelectorAll('label')].find((one) => one.textContent.startsWith({label!r}))
        .querySelector('input, textarea'); const kind = field.tagName === 'INPUT' ? HTMLInputElement : HTMLTextAreaElement;
        Object.getOwnPropertyDescriptor(kind.prototype, 'value').set.call(field, {json.dumps(text)});
        field.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"""


def test_a_person_finds_a_message(chromium: Chromium, filled: BrokerProcess) -> None:
    """Question 2 of the console: newest first, over time, by a word; one of them closely, with its numbers as they were written."""
    chromium.resize(1440)
    chromium.go(f"{site(filled)}/console/topics")
    chromium.until_text("orders.v1", "hostile")
    chromium.run(click("orders.v1", "td a"))
    chromium.until_text("200 messages", "Newest first")
    rows = "[...document.querySelectorAll('tr[data-at]')].map((row) => row.innerText)"
    assert '"n":199' in chromium.until(rows)[0].replace(" ", "")
    chromium.until("document.querySelectorAll('.strip rect').length > 10")
    # A word, typed where `/` leads; it is part of the address (W6).
    chromium.press("/")
    for letter in '"n":150':
        chromium.press(letter)
    chromium.until("document.querySelectorAll('tr[data-at]').length === 1")
    assert "q=" in chromium.run("location.search")
    chromium.press("Escape")
    chromium.press("j")
    chromium.press("Enter")
    chromium.until_text("Edit and send", "100000000000000150", "not idempotent")
    address = chromium.run("location.href")
    chromium.go(address)  # the link shows a colleague the same
    chromium.until_text("Edit and send", "100000000000000150")
    assert_clean(chromium, filled)


def test_a_person_publishes_and_follows(chromium: Chromium, filled: BrokerProcess) -> None:
    """Done in the browser, checked through the door; what comes while following is shown."""
    ask(filled, "POST", "/api/v1/topics", {"name": "letters"})
    chromium.go(f"{site(filled)}/console/topics/letters")
    chromium.until_text("No messages yet")
    chromium.run(click("Publish a message"))
    chromium.until_text("Publish to letters", "The same on the command line")
    chromium.run(write("Value", '{"greeting": "hello"}'))
    chromium.run(write("Key", "k1"))
    chromium.until_text('headrace topic produce letters \'{"greeting": "hello"}\' -k k1')
    chromium.run(click("Publish 1 message"))
    chromium.until_text("Published to partition 0 at offset 0")
    (row,) = ask(filled, "GET", "/topics/letters/records")["items"]
    assert (row["key"], row["value"]) == ("k1", '{"greeting": "hello"}')
    chromium.run(click("Look again"))
    chromium.until_text("hello", "Follow")
    chromium.run(click("Follow"))
    chromium.until_text("Nothing new")
    # The stream may not stand yet: what comes before it is not news.
    while "it came" not in chromium.run("document.body.innerText"):
        ask(filled, "POST", "/topics/letters/records", {"value": "it came"})
    assert_clean(chromium, filled)


def test_w3_deleting_wants_the_name_typed(chromium: Chromium, filled: BrokerProcess) -> None:
    ask(filled, "POST", "/api/v1/topics", {"name": "doomed"})
    chromium.go(f"{site(filled)}/console/topics/doomed")
    chromium.until_text("doomed", "Delete")
    chromium.run(click("Delete"))
    chromium.until_text("headrace topic delete doomed")
    act = "document.querySelector('dialog .main-act')"
    assert chromium.run(f"{act}.disabled")
    chromium.run(write("Type", "doomed"))
    chromium.until(f"!{act}.disabled")
    chromium.run(f"{act}.click()")
    chromium.until("location.pathname === '/console/topics'")
    assert "doomed" not in [row["name"] for row in ask(filled, "GET", "/api/v1/topics")["items"]]


def test_w8_hostile_text_is_text(chromium: Chromium, filled: BrokerProcess) -> None:
    """Acceptance 13: names, keys, headers and values with markup, through the list and the panel of each: no script runs, nothing leaves."""
    chromium.go(f"{site(filled)}/console/topics/hostile")
    chromium.until(f"document.querySelectorAll('tr[data-at]').length === {len(HOSTILE) + 1}")
    for offset in range(len(HOSTILE) + 1):
        chromium.go(f"{site(filled)}/console/topics/hostile?at=0:{offset}")
        chromium.until_text("Edit and send", "Leader epoch")
        chromium.run("document.querySelectorAll('.panel button[aria-pressed]').forEach((one) => one.click())")
        assert chromium.run("window.canary") is None
        assert chromium.run("document.querySelectorAll('main img, main script, main iframe').length") == 0
    assert "\u202e" not in chromium.run("document.body.textContent")
    assert_clean(chromium, filled)


def test_w8_a_page_that_was_left_holds_no_connection(chromium: Chromium, filled: BrokerProcess) -> None:
    """A browser has six connections for a broker. Pages that it keeps for "back" held one each for their stream, so that the next page
    waited for an answer for most of a minute: the once-in-a-while failure of test_w8. Each ends its stream when it is left."""
    chromium.before_each_page(
        """(() => { const Before = EventSource; window.streams = [];
        window.EventSource = class extends Before { constructor(...what) { super(...what); window.streams.push(this); } }; })()"""
    )
    chromium.go(f"{site(filled)}/console/topics/orders.v1")
    chromium.until("document.querySelectorAll('tr[data-at]').length > 0")
    chromium.run(click("Follow"))
    chromium.until_text("Nothing new")
    # The page's numbers, and the messages as they come.
    chromium.until("window.streams.filter((one) => one.readyState === 1).length === 2")
    chromium.run("dispatchEvent(new PageTransitionEvent('pagehide', {persisted: true}))")
    assert chromium.run("window.streams.every((one) => one.readyState === 2)")
    chromium.run("dispatchEvent(new PageTransitionEvent('pageshow', {persisted: true}))")
    assert_clean(chromium, filled)


def test_home_shows_what_flows(chromium: Chromium, filled: BrokerProcess) -> None:
    chromium.go(f"{site(filled)}/")
    chromium.until_text("Messages in", "Waiting in queues", "Room on the disk", "orders.v1")
    assert "Waiting for your first message" not in chromium.run("document.body.innerText")
    assert_clean(chromium, filled)


# -- queues, dead letters, groups ------------------------------------------------------------------------------------------


def settled(look: Any) -> None:
    """Until it is so behind the door."""
    deadline = time.monotonic() + 120
    while not look():
        assert time.monotonic() < deadline
        time.sleep(0.1)


def choose(label: str, value: str) -> str:
    return f"""(() => {{ const field = [...document.querySelectorAll('label')].find((one) => one.querySelector('span')?.textContent === {label!r})
        .querySelector('select'); field.value = {value!r}; field.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"""


def reject_some(broker: BrokerProcess) -> None:
    ask(broker, "POST", "/api/v1/queues", {"name": "mail-dead"})
    ask(broker, "POST", "/api/v1/queues", {"name": "mail", "dead_letter": "mail-dead", "max_deliveries": 5})
    for number in range(5):
        ask(broker, "POST", "/queues/mail/messages", {"value": f"letter {number}"})
    for number in range(5):
        (one,) = ask(broker, "POST", "/queues/mail/receive?max=1")["items"]
        why = f"mailbox+{number}+is+full" if number < 3 else f"timeout+after+{number}+s"
        ask(broker, "POST", f"/queues/mail/messages/{one['receipt']}/reject?detail={why}")


def test_dead_letters_are_sent_back_by_what_went_wrong(chromium: Chromium, filled: BrokerProcess) -> None:
    """5.3: a row is what went wrong; its dry run counts it, its button names the act, and only its letters go back."""
    reject_some(filled)
    settled(lambda: ask(filled, "GET", "/api/v1/queues/mail-dead")["ready"] == 5)
    chromium.go(f"{site(filled)}/console/dead")
    chromium.until_text("mailbox # is full", "timeout after # s")
    row = "[...document.querySelectorAll('tr')].find((row) => row.innerText.includes('timeout after # s'))"
    chromium.run(
        f"[...{row}.querySelectorAll('button')].find((one) => one.textContent === 'Send back …').click()"
    )
    chromium.until_text(
        "Move 2 messages", "2 messages of 5 would go back", "headrace dlq redrive mail-dead --filter"
    )
    assert ask(filled, "GET", "/api/v1/queues/mail")["ready"] == 0  # nothing has happened yet
    chromium.run(click("Move 2 messages"))
    chromium.until("!document.querySelector('dialog')")
    settled(lambda: ask(filled, "GET", "/api/v1/queues/mail")["ready"] == 2)
    assert ask(filled, "GET", "/api/v1/queues/mail-dead")["ready"] == 3
    chromium.until("!document.body.innerText.includes('timeout after # s')")
    values = [one["value"] for one in ask(filled, "GET", "/queues/mail/messages?peek&max=10")["items"]]
    assert sorted(values) == ["letter 3", "letter 4"]
    assert_clean(chromium, filled)


def test_a_dead_letter_is_edited_and_sent_back_by_keyboard(chromium: Chromium, filled: BrokerProcess) -> None:
    """5.3 and acceptance 12: found, edited and sent back with less than 25 keys and no mouse; the original can still be read."""
    ask(filled, "POST", "/api/v1/queues", {"name": "pay-dead"})
    ask(filled, "POST", "/api/v1/queues", {"name": "pay", "dead_letter": "pay-dead", "max_deliveries": 5})
    ask(filled, "POST", "/queues/pay/messages", {"value": {"amount": 10, "currency": "EURO"}})
    (one,) = ask(filled, "POST", "/queues/pay/receive?max=1")["items"]
    ask(filled, "POST", f"/queues/pay/messages/{one['receipt']}/reject?detail=no+such+currency")
    settled(lambda: ask(filled, "GET", "/api/v1/queues/pay-dead")["ready"] == 1)
    chromium.go(f"{site(filled)}/console/dead?queue=pay-dead")
    chromium.until_text("no such currency", "All letters")
    chromium.until("document.querySelectorAll('tr[data-row]').length === 2")
    keys = 0

    def press(*several: str) -> None:
        nonlocal keys
        for key in several:
            keys += 1
            chromium.press(key)

    press("j", "j")  # the kind, then its letter
    press("Enter")
    chromium.until_text("Edit a dead letter of pay-dead")
    chromium.until("document.activeElement?.tagName === 'TEXTAREA'")
    chromium.run(
        """(() => { const field = document.activeElement, at = field.value.indexOf('EURO'); field.setSelectionRange(at, at + 4); })()"""
    )
    press("E", "U", "R")
    press("Tab", " ")
    chromium.until_text("Edit and send back 1 message", "EUR")
    assert ask(filled, "GET", "/api/v1/queues/pay")["ready"] == 0  # nothing has happened yet
    while not chromium.run("document.activeElement.textContent.startsWith('Edit and send back')"):
        press("Tab")
        assert keys < 25
    press("Enter")
    chromium.until("!document.querySelector('dialog')")
    settled(lambda: ask(filled, "GET", "/api/v1/queues/pay")["ready"] == 1)
    (back,) = ask(filled, "GET", "/queues/pay/messages?peek&max=10")["items"]
    assert json.loads(back["value"]) == {"amount": 10, "currency": "EUR"}
    assert back["headers"]["headrace-edited-by"] == "console@localhost"
    topic, partition, offset = back["headers"]["headrace-edited-from"].split("/")
    original = ask(filled, "GET", f"/topics/{topic}/records/{partition}/{offset}")
    assert json.loads(original["value"])["currency"] == "EURO"
    assert keys < 25
    assert_clean(chromium, filled)


def test_a_queue_shows_its_messages_and_locks_without_taking_any(
    chromium: Chromium, filled: BrokerProcess
) -> None:
    """W2: looking counts no delivery and takes no lock."""
    ask(filled, "POST", "/api/v1/queues", {"name": "jobs"})
    for number in range(3):
        ask(filled, "POST", "/queues/jobs/messages", {"value": f"job {number}"})
    ask(filled, "POST", "/queues/jobs/receive?max=1&visibility=1000s")
    chromium.go(f"{site(filled)}/console/queues/jobs")
    chromium.until_text("2 ready", "1 in flight", "job 1", "job 2")
    chromium.go(f"{site(filled)}/console/queues/jobs?tab=locks")
    chromium.until_text("offset 0", "SQS and REST do not say")
    shown = ask(filled, "GET", "/api/v1/queues/jobs")
    assert (shown["ready"], shown["in_flight"]) == (2, 1)
    assert_clean(chromium, filled)


def test_a_group_is_explained_moved_and_moved_back(chromium: Chromium, filled: BrokerProcess) -> None:
    """5.4 and 5.6: why it is behind; shown, done, and undone exactly."""
    ask(filled, "POST", "/api/v1/groups/billing/seek", {"topic": "orders.v1", "to": "-5"})
    before = ask(filled, "GET", "/api/v1/groups/billing")
    chromium.go(f"{site(filled)}/console/groups/billing")
    chromium.until_text("15 messages behind", "orders.v1")
    chromium.run(click("Explain"))
    chromium.until_text("Nobody reads", "headrace group explain billing")
    chromium.run(click("Close"))
    chromium.until("!document.querySelector('dialog')")
    chromium.run(click("Move …"))
    chromium.until_text("Move billing")
    assert chromium.run("document.querySelector('dialog .main-act').disabled")
    chromium.run(choose("To", "start"))
    chromium.until_text("185 messages would be read again", "headrace group seek billing --to start")
    assert ask(filled, "GET", "/api/v1/groups/billing")["partitions"] == before["partitions"]
    chromium.run(click("Move 3 partitions"))
    chromium.until_text("Back to where it was")
    assert ask(filled, "GET", "/api/v1/groups/billing")["lag"] == 200
    chromium.run(click("Back to where it was"))
    settled(lambda: ask(filled, "GET", "/api/v1/groups/billing")["partitions"] == before["partitions"])
    assert_clean(chromium, filled)


def test_w10_everything_with_a_name_is_found_by_keyboard(chromium: Chromium, filled: BrokerProcess) -> None:
    """Ctrl-K, some letters, Enter; `g t` goes; `?` lists the keys; focus comes back."""
    chromium.go(f"{site(filled)}/console/cluster")
    chromium.until_text("Brokers", "controller")
    chromium.run("dispatchEvent(new KeyboardEvent('keydown', {key: 'k', ctrlKey: true}))")
    chromium.until("document.activeElement?.getAttribute('role') === 'combobox'")
    for letter in "rders.v":
        chromium.press(letter)
    chromium.until("document.querySelector('[role=option]')?.innerText.includes('orders.v1')")
    chromium.press("Enter")
    chromium.until("location.pathname === '/console/topics/orders.v1'")
    chromium.until_text("Newest first")
    chromium.press("?")
    chromium.until_text("search everything", "next and previous row")
    chromium.press("Escape")
    chromium.until("!document.querySelector('dialog')")
    chromium.press("g")
    chromium.press("q")
    chromium.until("location.pathname === '/console/queues'")
    assert_clean(chromium, filled)


AXE = Path(__file__).parents[2] / "console" / "node_modules" / "axe-core" / "axe.min.js"
PAGES = (
    "/", "/console/topics", "/console/topics/orders.v1", "/console/topics/orders.v1?at=0:1", "/console/topics/orders.v1?tab=partitions",
    "/console/topics/orders.v1?tab=config", "/console/queues", "/console/dead", "/console/groups", "/console/schedules",
    "/console/webhooks", "/console/cluster",
)  # fmt: skip


@pytest.mark.skipif(
    not AXE.exists(),
    reason="axe-core is not here: `make console-test` fetches it from npm and looks at every page",
)
def test_w11_axe_finds_nothing_serious(chromium: Chromium, filled: BrokerProcess) -> None:
    """Acceptance 12, in part: contrast, names, roles, on every page, dark and light."""
    found = []
    for theme in ("dark", "light"):
        for path in PAGES:
            chromium.go(f"{site(filled)}{path}")
            chromium.run(f"document.documentElement.dataset.theme = '{theme}'")
            chromium.until("document.querySelector('h1') && !document.querySelector('.waiting')")
            chromium.run(AXE.read_text() + "; 0")
            found += chromium.run(
                "axe.run(document, {resultTypes: ['violations']}).then((done) => done.violations"
                ".filter((one) => ['serious', 'critical'].includes(one.impact))"
                f".map((one) => ['{theme} {path}', one.id, one.nodes[0].target.join(' ')]))"
            )
    assert found == []


# -- what else there is: pipelines, the API, what became of a message ---------------------------------------------------------


def test_a_message_says_what_became_of_it_and_a_topic_who_writes(
    chromium: Chromium, filled: BrokerProcess
) -> None:
    ask(filled, "POST", "/api/v1/groups/billing/seek", {"topic": "orders.v1", "to": "start"})
    (first,) = ask(filled, "GET", "/topics/orders.v1/records?limit=1")["items"]
    chromium.go(f"{site(filled)}/console/topics/orders.v1?at={first['partition']}:{first['offset']}")
    chromium.until_text("What became of it", "billing", "not yet", "1 to go")
    ask(filled, "POST", "/topics/orders.v1/records", {"value": "one more"})
    chromium.go(f"{site(filled)}/console/topics/orders.v1?tab=writers")
    chromium.until_text("REST", "In/s")
    assert_clean(chromium, filled)


def test_the_api_page_asks_what_curl_asks(chromium: Chromium, filled: BrokerProcess) -> None:
    chromium.go(f"{site(filled)}/console/api?q=version&op=GET+%2Fapi%2Fv1%2Fversion")
    chromium.until_text("/api/v1/version", "Ask")
    chromium.run(click("Ask"))
    chromium.until_text("200 in", '"broker_id"')
    assert_clean(chromium, filled)


def test_pipelines_teach_when_there_is_none(chromium: Chromium, filled: BrokerProcess) -> None:
    chromium.go(f"{site(filled)}/console/pipelines")
    chromium.until_text("No pipelines yet", "headrace pipeline submit")
    chromium.go(f"{site(filled)}/console/pipelines/nothing")
    chromium.until_text('no pipeline "nothing" is known')
    assert_clean(chromium, filled)
