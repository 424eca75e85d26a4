"""The console of a broker that asks who one is: logging in, what one sees, what one may change (W15, W18, A44, A45)."""

from __future__ import annotations

import base64
import http.client
import json
import sys
import time
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
from chromium import Chromium
from confluent_kafka.admin import AclOperation, ResourceType
from secured import ADMIN, PASSWORD, Secured

pytestmark = pytest.mark.client


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with BrokerProcess() as running:
        found = Secured(running)
        for name in ("orders", "secrets"):
            status, said = found.http("POST", "/api/v1/topics", {"name": name}, user=ADMIN, password=PASSWORD)
            assert status == 201, said
        yield found


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        browser.resize(1440)  # who one is stands in the rail, which a narrow window hides
        yield browser


def viewer(secured: Secured, password: str) -> str:
    """Somebody who may read one topic, and nothing else."""
    name = secured.user(password)
    secured.allow(name, AclOperation.READ, ResourceType.TOPIC, "orders")
    return name


def page(secured: Secured, path: str) -> str:
    return f"http://localhost:{secured.broker.http_port}{path}"


def write(label: str, text: str) -> str:
    return f"""(() => {{ const field = [...document.querySelectorAll('label')].find((one) => one.textContent.startsWith({label!r})).querySelector('input');
        Object.getOwnPropertyDescriptor(HTMLInputElement.prototype, 'value').set.call(field, {json.dumps(text)});
        field.dispatchEvent(new Event('input', {{bubbles: true}})); }})()"""


def click(words: str) -> str:
    return f"[...document.querySelectorAll('button, a')].find((one) => one.textContent.trim() === {words!r}).click()"


def log_in(chromium: Chromium, user: str, password: str) -> None:
    chromium.run(write("User", user))
    chromium.run(write("Password", password))
    chromium.run("document.querySelector('form button[type=submit]').click()")


def log_out(chromium: Chromium) -> None:
    chromium.until_text("Log out")
    chromium.run(click("Log out"))
    chromium.until_text("This broker answers only those it knows")


def raw(secured: Secured, method: str, path: str, body: Any = None, **headers: str) -> tuple[int, Any, Any]:
    connection = http.client.HTTPConnection("127.0.0.1", secured.broker.http_port, timeout=60)
    data = None if body is None else json.dumps(body)
    connection.request(method, path, data, {"content-type": "application/json", **headers})
    response = connection.getresponse()
    found = response.read()
    connection.close()
    return response.status, json.loads(found) if found else None, response.headers


def test_w18_a_person_logs_in_and_sees_what_they_may(chromium: Chromium, secured: Secured) -> None:
    vera = viewer(secured, "her own word")
    chromium.resize(1440)
    chromium.go(page(secured, "/console/topics"))
    chromium.until_text("Log in", "This broker answers only those it knows")
    log_in(chromium, vera, "not hers")
    chromium.until_text("is wrong")
    log_in(chromium, vera, "her own word")
    chromium.until_text("orders", f"User:{vera}")
    assert "secrets" not in chromium.run("document.querySelector('main').innerText")
    # What a page could give away: nothing.
    assert chromium.run("document.cookie") == ""
    assert chromium.run("JSON.stringify({...localStorage}).includes('hr_')") is False
    # What would be refused is grey, and says why.
    chromium.go(page(secured, "/console/topics/orders"))
    chromium.until_text("Publish", "Delete")
    grey = "[...document.querySelectorAll('.acts button')].filter((one) => one.disabled).map((one) => [one.textContent, one.title])"
    chromium.until(f"{grey}.length === 2")
    assert "headrace acl add" in chromium.run(grey)[0][1]
    # And the API decides, whatever the page shows.
    refused = chromium.run(
        """fetch('/api/v1/session').then((one) => one.json()).then((session) =>
        fetch('/api/v1/topics/orders', {method: 'DELETE', headers: {'x-headrace-csrf': session.csrf}})).then((one) => one.status)"""
    )
    assert refused == 403
    chromium.go(page(secured, "/console/topics/secrets"))
    chromium.until_text('there is no "secrets", or you do not have access to it')
    log_out(chromium)


def test_w18_a_change_needs_the_word_of_the_session(secured: Secured) -> None:
    status, made, headers = raw(secured, "POST", "/api/v1/session", {"user": ADMIN, "password": PASSWORD})
    assert status == 201
    cookie = headers["set-cookie"]
    assert "HttpOnly" in cookie and "SameSite=Strict" in cookie
    mine = {"cookie": cookie.partition(";")[0]}
    status, shown, _ = raw(secured, "GET", "/api/v1/session", **mine)
    assert (shown["principal"], shown["csrf"], shown["login"]) == ("User:admin", made["csrf"], False)
    new = {"name": "made-in-a-session"}
    assert raw(secured, "POST", "/api/v1/topics", new, **mine)[0] == 403
    assert raw(secured, "POST", "/api/v1/topics", new, **mine, **{"x-headrace-csrf": "0" * 32})[0] == 403
    assert raw(secured, "POST", "/api/v1/topics", new, **mine, **{"x-headrace-csrf": made["csrf"]})[0] == 201
    assert raw(secured, "DELETE", "/api/v1/session", **mine)[0] == 204
    status, _, headers = raw(secured, "GET", "/api/v1/topics", **mine, **{"sec-fetch-site": "same-origin"})
    assert status == 401
    assert headers["www-authenticate"] == "Bearer"  # a browser must not ask in a window of its own


def test_w18_a_link_logs_in_once(chromium: Chromium, secured: Secured) -> None:
    status, made = secured.http("POST", "/api/v1/session/links", user=ADMIN, password=PASSWORD)
    assert status == 201
    chromium.go("about:blank")
    chromium.run(f"setTimeout(() => {{ location.href = {page(secured, made['path'])!r} }}); 0")
    chromium.until("document.body?.innerText.includes('User:admin')")
    assert "login" not in chromium.run("location.href")
    log_out(chromium)
    code = made["path"].partition("=")[2]
    assert raw(secured, "POST", "/api/v1/session", {"link": code})[0] == 401


def test_w19_masked_fields_do_not_leave_the_broker(secured: Secured) -> None:
    """For somebody who may read and not alter: by every look there is over REST, and no filter tells either. An administrator sees it."""
    card = "4111-1111-1111"
    body = {"name": "payments", "configs": {"headrace.console.mask": "value.card,header.auth"}}
    assert secured.http("POST", "/api/v1/topics", body, user=ADMIN, password=PASSWORD)[0] == 201
    message = {"key": "k", "value": {"card": card, "cents": 7}, "headers": {"auth": card}}
    assert secured.http("POST", "/topics/payments/records", message, user=ADMIN, password=PASSWORD)[0] == 201
    mona = secured.user("her own word")
    secured.allow(mona, AclOperation.READ, ResourceType.TOPIC, "payments")
    looks = ("records", "search", "records/0/0", "export", "export?format=csv", f"search?contains={card}")
    for look in looks:
        path = f"/topics/payments/{look}"
        token = base64.b64encode(f"{mona}:her own word".encode()).decode()
        connection = http.client.HTTPConnection("127.0.0.1", secured.broker.http_port, timeout=60)
        connection.request("GET", path, headers={"authorization": f"Basic {token}"})
        response = connection.getresponse()
        text = response.read().decode()
        connection.close()
        assert response.status == 200 and card not in text, path
        if "contains" not in look:
            assert "***" in text, path
    status, found = secured.http(
        "GET", f"/topics/payments/search?contains={card}", user=ADMIN, password=PASSWORD
    )
    assert status == 200 and len(found["items"]) == 1
    found = secured.http(
        "GET", f"/topics/payments/search?contains={card}", user=mona, password="her own word"
    )[1]
    assert found["items"] == []


def test_w22_a_change_made_in_the_console_is_in_the_audit(chromium: Chromium, secured: Secured) -> None:
    chromium.go(page(secured, "/console/topics"))
    chromium.until_text("This broker answers only those it knows")
    log_in(chromium, ADMIN, PASSWORD)
    chromium.until_text("Create a topic")
    made = chromium.run(
        """fetch('/api/v1/session').then((one) => one.json()).then((session) => fetch('/api/v1/topics', {method: 'POST',
        body: JSON.stringify({name: 'made-by-hand'}), headers: {'x-headrace-csrf': session.csrf, 'content-type': 'application/json'}}))
        .then((one) => one.status)"""
    )
    assert made == 201

    def line() -> Any:
        _, found = secured.http(
            "GET", "/topics/__audit/search?contains=made-by-hand", user=ADMIN, password=PASSWORD
        )
        rows = [json.loads(row["value"]) for row in found.get("items", [])]
        return next((row for row in rows if row["event"] == "console"), None)

    while (row := line()) is None:
        time.sleep(0.1)
    assert (row["principal"], row["operation"], row["name"]) == ("User:admin", "POST", "/api/v1/topics")
    assert row["host"] and row["text"].startswith("201 ") and row["request_id"]
    assert json.loads(row["after"]["name"]) == "made-by-hand" and "before" not in row
    log_out(chromium)
