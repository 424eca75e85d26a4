"""What a person changes in the console, seen through the doors: users and rights (W15, W18), locks of others (5.5), why a queue stands still (5.6), saved views (W6)."""

from __future__ import annotations

import http.client
import json
import sys
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from chromium import Chromium
from rest_api import Api, wait_until
from secured import ADMIN, PASSWORD, Secured

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        browser.resize(1440)
        yield browser


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with BrokerProcess() as running:
        yield Secured(running)


def page(url: str, path: str) -> str:
    return url.replace("127.0.0.1", "localhost") + path


WHERE = "(document.querySelector('dialog[open]') ?? document)"


def fill(chromium: Chromium, label: str, text: str) -> None:
    field = f"[...{WHERE}.querySelectorAll('label')].find((one) => one.textContent.startsWith({label!r}))?.querySelector('input, select, textarea')"
    chromium.until(f"!!{field}")
    chromium.run(
        f"""(() => {{ const field = {field}; const kind = {{INPUT: HTMLInputElement, SELECT: HTMLSelectElement, TEXTAREA: HTMLTextAreaElement}}[field.tagName];
        Object.getOwnPropertyDescriptor(kind.prototype, 'value').set.call(field, {json.dumps(text)});
        field.dispatchEvent(new Event('input', {{bubbles: true}})); field.dispatchEvent(new Event('change', {{bubbles: true}})); }})()"""
    )


def press(chromium: Chromium, words: str) -> None:
    button = f"[...{WHERE}.querySelectorAll('button, a')].find((one) => one.textContent.trim() === {words!r} && !one.disabled)"
    chromium.until(f"!!{button}")
    chromium.run(f"{button}.click()")


def log_in(chromium: Chromium, secured: Secured, path: str, user: str, password: str) -> None:
    chromium.go(page(secured.broker.url, path))
    chromium.until_text("This broker answers only those it knows")
    fill(chromium, "User", user)
    fill(chromium, "Password", password)
    chromium.run("document.querySelector('form button[type=submit]').click()")
    chromium.until_text(f"User:{user}", "Log out")


def log_out(chromium: Chromium) -> None:
    press(chromium, "Log out")
    chromium.until_text("This broker answers only those it knows")


def test_a_user_is_made_given_a_role_shut_out_and_deleted(chromium: Chromium, secured: Secured) -> None:
    """The password that is salted in the browser is good at the broker; a role that is given in the page is rights at every door."""
    log_in(chromium, secured, "/console/security", ADMIN, PASSWORD)
    press(chromium, "Create a user")
    fill(chromium, "Name", "carla")
    fill(chromium, "Password", "her own word")
    chromium.until("document.querySelector('dialog').innerText.includes('headrace user create carla')")
    press(chromium, "Create carla")
    chromium.until_text("Created carla", "may log in")

    def topics() -> tuple[int, Any]:
        return secured.http("GET", "/api/v1/topics", user="carla", password="her own word")

    assert topics()[0] == 200 and topics()[1]["items"] == []
    body = {"name": "carlas-topic"}

    def make() -> int:
        return secured.http("POST", "/api/v1/topics", body, user="carla", password="her own word")[0]

    assert make() == 403
    chromium.go(page(secured.broker.url, "/console/security?tab=rights"))
    press(chromium, "Give …")
    fill(chromium, "User", "carla")
    fill(chromium, "Role", "admin")
    chromium.until("/would be given/.test(document.querySelector('dialog').innerText)")
    chromium.until("/headrace acl grant carla admin/.test(document.querySelector('dialog').innerText)")
    assert make() == 403, "looking gives nothing"
    chromium.run(
        "[...document.querySelectorAll('dialog button')].find((one) => /^Give \\d+ rights$/.test(one.textContent)).click()"
    )
    chromium.until_text("Gave")
    assert make() == 201
    chromium.go(page(secured.broker.url, "/console/security?tab=rights&principal=User:carla"))
    chromium.until("document.querySelectorAll('tbody tr').length > 5")
    press(chromium, "Take …")
    fill(chromium, "Role", "admin")
    chromium.until(
        "[...document.querySelectorAll('dialog button')].some((one) => /^Take \\d+ rights$/.test(one.textContent) && !one.disabled)"
    )
    chromium.run(
        "[...document.querySelectorAll('dialog button')].find((one) => /^Take \\d+ rights$/.test(one.textContent)).click()"
    )
    chromium.until_text("No right says that")
    assert make() == 403
    chromium.go(page(secured.broker.url, "/console/security"))
    chromium.until_text("carla")
    row = "[...document.querySelectorAll('tr')].find((one) => one.textContent.includes('carla'))"
    button = f"[...{row}.querySelectorAll('button')].find((one) => one.textContent === %r)"
    chromium.run(f"{button % 'Shut out'}.click()")
    press(chromium, "Shut carla out")
    chromium.until_text("shut out")
    chromium.until(f"!!{button % 'Let in'}")
    assert topics()[0] == 401
    chromium.run(f"{button % 'Let in'}.click()")
    press(chromium, "Let carla in")
    chromium.until(f"!!{button % 'Shut out'}")
    assert topics()[0] == 200
    chromium.run(f"{button % 'Delete'}.click()")
    fill(chromium, "Type", "carla")
    press(chromium, "Delete carla")
    wait_until(lambda: [one["name"] for one in secured.ask("GET", "/users")["items"]] == [ADMIN])
    log_out(chromium)


def test_a_token_is_shown_once_and_good_until_it_is_deleted(chromium: Chromium, secured: Secured) -> None:
    log_in(chromium, secured, "/console/security?tab=tokens", ADMIN, PASSWORD)
    press(chromium, "Make a token")
    fill(chromium, "What it is for", "night job")
    press(chromium, "Make 1 token")
    chromium.until("document.querySelector('dialog')?.innerText.includes('this once')")
    token = chromium.run("document.querySelector('dialog .command pre').textContent")
    assert secured.http("GET", "/api/v1/topics", token=token)[0] == 200
    press(chromium, "I have kept it")
    chromium.until("!document.querySelector('dialog[open]')")
    assert token not in chromium.run(
        "document.documentElement.outerHTML + location.href + JSON.stringify({...localStorage})"
    )
    row = "[...document.querySelectorAll('tr')].find((one) => one.textContent.includes('night job'))"
    chromium.until(f"!!{row}")
    chromium.run(f"{row}.querySelector('button').click()")
    press(chromium, "Delete 1 token")

    def is_refused() -> bool:
        try:
            return bool(secured.http("GET", "/api/v1/topics", token=token)[0] == 401)
        except http.client.HTTPException:
            return False  # what was under way when it was deleted is cut off

    wait_until(is_refused)
    log_out(chromium)


def test_w15_who_may_not_administer_sees_why(chromium: Chromium, secured: Secured) -> None:
    dora = secured.user("her own word")
    secured.ask("POST", "/acls", {"roles": [{"principal": f"User:{dora}", "role": "viewer"}]})
    log_in(chromium, secured, "/console/security", dora, "her own word")
    chromium.until(
        "[...document.querySelectorAll('main button')].some((one) => one.textContent === 'Create a user' && one.disabled)"
    )
    grey = chromium.run(
        "[...document.querySelectorAll('main td button')].filter((one) => one.disabled).map((one) => one.title)"
    )
    assert grey and all("an administrator can grant it" in title for title in grey)
    chromium.go(page(secured.broker.url, "/console/security?tab=rights"))
    chromium.until(
        "[...document.querySelectorAll('main button')].some((one) => one.textContent === 'Give …' && one.disabled)"
    )
    log_out(chromium)


def test_what_others_hold_is_let_go_of_and_the_queue_says_why_it_stands(
    chromium: Chromium, broker: BrokerProcess
) -> None:
    api = Api(broker)
    api("POST", "/api/v1/queues", {"name": "stuck"})
    for number in range(3):
        api("POST", "/queues/stuck/messages", {"value": {"job": number}})
    held: list[Any] = []
    while len(held) < 3:
        held += api("POST", "/queues/stuck/receive?max=3&visibility=30m&wait=1s")["items"]
    chromium.go(page(broker.url, "/console/queues/stuck?tab=locks"))
    chromium.until_text("0 of 3 messages chosen")
    press(chromium, "Explain")
    chromium.until("/in somebody's hands/.test(document.querySelector('dialog')?.innerText ?? '')")
    assert "headrace queue explain stuck" in chromium.run("document.querySelector('dialog').innerText")
    press(chromium, "Close")
    first = held[0]["offset"]
    chromium.run(f"document.querySelector('[aria-label=\"Select offset {first}\"]').click()")
    chromium.until_text("1 of 3 messages chosen")
    press(chromium, "Release …")
    chromium.until(
        f"document.querySelector('dialog').innerText.includes('headrace queue settle stuck 0:{first} --release')"
    )
    assert len(api("GET", "/api/v1/queues/stuck/locks")["items"]) == 3, "looking does nothing"
    press(chromium, "Let go of 1 message")
    (again,) = wait_until(lambda: api("POST", "/queues/stuck/receive?max=9&visibility=30m")["items"])
    assert (again["offset"], again["delivery"]) == (first, 2)
    # Until the page has heard of it the row it shows is of the lock before, and choosing that chooses nothing.
    chromium.until(
        f"[...document.querySelectorAll('tr')].some((row) => /offset {first}\\b/.test(row.innerText) && /\\t2\\t/.test(row.innerText))"
    )
    chromium.until_text("0 of 3 messages chosen")
    chromium.run(
        "[...document.querySelectorAll('label.tick')].find((one) => one.textContent.trim() === 'All').querySelector('input').click()"
    )
    chromium.until_text("3 of 3 messages chosen")
    press(chromium, "Acknowledge …")
    press(chromium, "Acknowledge 3 messages")
    chromium.until_text("Nobody holds a message")
    wait_until(lambda: api("GET", "/api/v1/queues/stuck")["in_flight"] == 0)
    assert api("GET", "/api/v1/queues/stuck")["ready"] == 0


def test_w6_a_view_is_saved_under_a_name(chromium: Chromium, broker: BrokerProcess) -> None:
    chromium.go(page(broker.url, "/console/topics?q=ord&sort=-size"))
    chromium.until_text("Topics")
    press(chromium, "Views")
    fill(chromium, "Save this page as", "big orders")
    press(chromium, "Save")
    chromium.until(
        "[...document.querySelectorAll('dialog a')].some((one) => one.textContent === 'big orders')"
    )
    press(chromium, "Close")
    chromium.go(page(broker.url, "/console/queues"))
    chromium.until_text("Queues")
    press(chromium, "Views")
    press(chromium, "big orders")
    chromium.until(
        "location.pathname + location.search === '/console/topics?q=ord&sort=-size' && !document.querySelector('dialog[open]')"
    )
    chromium.go(page(broker.url, "/console/topics"))
    press(chromium, "Views")
    chromium.until("!!document.querySelector('dialog [aria-label=\"Forget big orders\"]')")
    chromium.run("document.querySelector('dialog [aria-label=\"Forget big orders\"]').click()")
    chromium.until("document.querySelector('dialog').innerText.includes('None yet')")
