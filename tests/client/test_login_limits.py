"""A21, A22, A55, A61, A62, P15: who guesses, who comes too often, who comes with too many connections; through the doors of one secured broker.

Other addresses of this machine (127.0.0.9) count as strangers; 127.0.0.1 is always heard.
"""

from __future__ import annotations

import base64
import contextlib
import http.client
import itertools
import json
import os
import resource
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor

import pytest
from raw_client import RawClient
from raw_login import log_in, shake
from raw_share import BROKER_RESOURCE, set_config
from secured import ADMIN, PASSWORD, Secured

from headrace.testing.local_broker import LocalBroker
from headrace.wire.api import ApiKey
from headrace.wire.messages.metadata import MetadataRequest

pytestmark = pytest.mark.client

WORD = "a word"
LONG = os.environ.get("HEADRACE_SECURITY") == "1"
_strangers = itertools.count(1)


def stranger() -> str:
    """An address that nobody has used yet."""
    number = next(_strangers)
    return f"127.1.{number // 250}.{number % 250 + 1}"


@pytest.fixture(scope="module")
def secured() -> Iterator[Secured]:
    with LocalBroker() as running:
        yield Secured(running)  # type: ignore[arg-type]


def guess(secured: Secured, host: str, user: str) -> bool:
    """Whether a wrong password was heard at all."""
    try:
        client = RawClient(secured.broker.kafka_port, host=host)
        log_in(client, user, "another")
    except AssertionError:
        return True  # refused with 58
    except ConnectionError:
        return False
    raise RuntimeError("it was let in")


def asked(
    secured: Secured, path: str = "/api/v1/topics", *, host: str = "127.0.0.1", **headers: str
) -> tuple[int, dict[str, str]]:
    connection = http.client.HTTPConnection(
        "127.0.0.1", secured.broker.http_port, timeout=240, source_address=(host, 0)
    )
    connection.request("GET", path, headers=headers)
    answer = connection.getresponse()
    answer.read()
    return answer.status, {name.lower(): value for name, value in answer.getheaders()}


def basic(user: str, password: str) -> str:
    return "Basic " + base64.b64encode(f"{user}:{password}".encode()).decode()


def test_a61_who_guesses_at_the_kafka_door_is_closed_at_both_and_nobody_else_is(secured: Secured) -> None:
    host = stranger()
    with ThreadPoolExecutor(10) as pool:  # each waits for its answer; not for the others'
        heard = list(pool.map(lambda number: guess(secured, host, f"nobody-{number}"), range(10)))
    assert heard == [True] * 10
    assert not guess(secured, host, "nobody"), "closed when it connects"
    assert asked(secured, host=host, authorization=basic(ADMIN, PASSWORD))[0] == 429
    log_in(RawClient(secured.broker.kafka_port, host=stranger()), ADMIN, PASSWORD)
    log_in(RawClient(secured.broker.kafka_port), ADMIN, PASSWORD)
    secured.broker.clock.advance(seconds=61)  # type: ignore[attr-defined]
    assert guess(secured, host, "nobody"), "heard again after a minute"


def test_a61_who_guesses_at_the_http_door_is_not_heard_at_either(secured: Secured) -> None:
    host = stranger()
    with ThreadPoolExecutor(10) as pool:
        heard = list(
            pool.map(
                lambda number: asked(secured, host=host, authorization=basic(f"nobody-{number}", "x"))[0],
                range(10),
            )
        )
    assert heard == [401] * 10
    assert asked(secured, host=host, authorization=basic(ADMIN, PASSWORD))[0] == 429
    assert not guess(secured, host, "nobody")


def test_a61_guessing_locks_no_user(secured: Secured) -> None:
    user = secured.user()
    hosts = [stranger() for _ in range(12)]
    with ThreadPoolExecutor(12) as pool:
        assert all(pool.map(lambda host: guess(secured, host, user), hosts))
    log_in(RawClient(secured.broker.kafka_port, host=stranger()), user, WORD)


def test_a61_a_login_of_ones_own_does_not_forget_what_was_tried_on_others(secured: Secured) -> None:
    """Who has any login at all could guess for ever otherwise: nine of the administrator's, one of their own, and so on."""
    host, own = stranger(), secured.user()

    def tries(_: int) -> bool:
        heard = guess(secured, host, ADMIN)
        with contextlib.suppress(ConnectionError):
            log_in(RawClient(secured.broker.kafka_port, host=host), own, WORD)
        return heard

    with ThreadPoolExecutor(5) as pool:
        heard = list(pool.map(tries, range(30)))
    assert not all(heard), "shut out while they log in themselves, again and again"


def test_a61_connections_that_were_open_before_are_not_heard_either(secured: Secured) -> None:
    host = stranger()
    opened = [RawClient(secured.broker.kafka_port, host=host) for _ in range(30)]

    def guessed(client: RawClient) -> bool:
        with contextlib.suppress(ConnectionError):
            with pytest.raises(AssertionError, match="error_code=58"):
                log_in(client, ADMIN, "another")
            return True
        return False

    with ThreadPoolExecutor(10) as pool:
        assert all(pool.map(guessed, opened[:10]))
    assert not any(guessed(client) for client in opened[10:])
    for client in [RawClient(secured.broker.kafka_port) for _ in range(2)]:
        log_in(client, ADMIN, PASSWORD)


def test_p15_many_addresses_guess_and_who_knows_the_password_is_heard(secured: Secured) -> None:
    """By what is answered, not by the clock: each of them is shut out for itself, and a healthy client meets no refusal meanwhile."""
    addresses = 500 if LONG else 12
    hosts = [stranger() for _ in range(addresses)]
    healthy = RawClient(secured.broker.kafka_port, host=stranger())
    log_in(healthy, ADMIN, PASSWORD)
    with ThreadPoolExecutor(24) as pool:
        attacks = [
            pool.submit(guess, secured, host, f"user-{host}-{number}")
            for host in hosts
            for number in range(10)
        ]
        while not all(attack.done() for attack in attacks):
            assert healthy.call(ApiKey.METADATA, 9, MetadataRequest([])).brokers
            assert secured.http("GET", "/api/v1/topics", user=ADMIN, password=PASSWORD)[0] == 200
            time.sleep(0.05)
        assert all(attack.result() for attack in attacks)
        assert not any(pool.map(lambda host: guess(secured, host, "user"), hosts))
    log_in(RawClient(secured.broker.kafka_port, host=stranger()), ADMIN, PASSWORD)


def test_p15_idle_connections_of_one_address_keep_nobody_out(secured: Secured) -> None:
    """As many as an address may have, and more; before a login, which is where a stranger is."""
    count = 5_000 if LONG else 200
    if LONG:
        most = resource.getrlimit(resource.RLIMIT_NOFILE)[1]
        resource.setrlimit(resource.RLIMIT_NOFILE, (most, most))
    host = stranger()
    idle = [RawClient(secured.broker.kafka_port, host=host) for _ in range(count)]
    try:
        log_in(RawClient(secured.broker.kafka_port), ADMIN, PASSWORD)
        log_in(RawClient(secured.broker.kafka_port, host=stranger()), ADMIN, PASSWORD)
        if LONG:
            log_in(RawClient(secured.broker.kafka_port, host=host), ADMIN, PASSWORD)
    finally:
        for client in idle:
            client.close()


def test_a62_a_user_has_so_many_connections_and_the_idlest_makes_room(secured: Secured) -> None:
    user, port = secured.user(), secured.broker.kafka_port
    admin = RawClient(port)
    log_in(admin, ADMIN, PASSWORD)
    assert set_config(admin, BROKER_RESOURCE, "1", max_connections_per_user="3") == 0
    try:
        held = []
        for _ in range(4):
            held.append(RawClient(port))
            log_in(held[-1], user, WORD)
        assert held[0].is_closed_by_broker()
        for client in held[1:]:
            assert client.call(ApiKey.METADATA, 9, MetadataRequest([])).brokers
        assert admin.call(ApiKey.METADATA, 9, MetadataRequest([])).brokers, "others are not counted"
        assert set_config(admin, BROKER_RESOURCE, "1", max_connections_per_user="0") == 0
        with pytest.raises(ConnectionError):
            log_in(RawClient(port), user, WORD)
    finally:
        assert set_config(admin, BROKER_RESOURCE, "1", max_connections_per_user="5000") == 0


def test_a21_who_renews_a_login_at_once_has_to_wait(secured: Secured) -> None:
    user = secured.user()
    client = RawClient(secured.broker.kafka_port)
    log_in(client, user, WORD)
    begun = time.monotonic()
    for _ in range(2):
        log_in(client, user, WORD)
    # Never sooner, however slow the machine is: the broker's clock and ours go on alike.
    assert time.monotonic() - begun >= 1.5
    assert shake(client).error_code == 0


def test_a22_two_proofs_in_one_request_are_refused(secured: Secured) -> None:
    good = basic(ADMIN, PASSWORD)
    assert asked(secured, authorization=good)[0] == 200
    assert asked(secured, authorization=good, cookie="headrace-session=hr_x")[0] == 400
    assert asked(secured, authorization=good, cookie="other=1")[0] == 200, "a cookie that is no proof"


def test_a25_a_session_of_the_console_ends_when_nobody_uses_it(secured: Secured) -> None:
    def begun() -> str:
        connection = http.client.HTTPConnection("127.0.0.1", secured.broker.http_port, timeout=240)
        body = json.dumps({"user": ADMIN, "password": PASSWORD})
        connection.request("POST", "/api/v1/session", body, {"content-type": "application/json"})
        answer = connection.getresponse()
        assert answer.status == 201, answer.read()
        return answer.headers["set-cookie"].partition(";")[0]

    used, left = begun(), begun()
    for cookie in (used, left):
        assert asked(secured, cookie=cookie)[0] == 200
    for _ in range(2):
        secured.broker.clock.advance(minutes=16)  # type: ignore[attr-defined]
        # A page that nobody is at asks, too: who touches it says so (decision 0116).
        assert asked(secured, cookie=used, **{"x-headrace-touched": "1"})[0] == 200
    assert asked(secured, cookie=left)[0] == 401, "half an hour"


def test_a55_readiness_says_that_everybody_is_heard(secured: Secured) -> None:
    assert "x-headrace-security" not in asked(secured, "/readyz")[1]
    secured.set_mode("open")
    try:
        assert asked(secured, "/readyz")[1]["x-headrace-security"] == "open"
    finally:
        secured.set_mode("enforced", user="")
