"""The console in a real browser, page by page: remedies, times, what happened, who did what, and rows that are read as cards where there is no room (W6, W7, W12, W13, W14, W22)."""

from __future__ import annotations

import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from headrace.testing.broker_process import BrokerProcess

sys.path.insert(0, str(Path(__file__).parents[1] / "models"))
sys.path.insert(0, str(Path(__file__).parent))
from chromium import Chromium
from test_console import NOTES, ask, assert_clean, click, settled, site, write

pytestmark = pytest.mark.client

EVERY_PAGE = (
    "/", "/console/topics", "/console/topics/orders", "/console/topics/orders?tab=partitions", "/console/topics/orders?tab=readers",
    "/console/topics/orders?tab=writers", "/console/topics/orders?tab=config", "/console/topics/orders?at=0:0", "/console/queues", "/console/queues/jobs",
    "/console/queues/jobs?tab=locks", "/console/queues/ledger.fifo?tab=groups", "/console/queues/jobs?tab=settings", "/console/dead",
    "/console/dead?queue=jobs-dead", "/console/groups", "/console/groups/billing", "/console/schedules", "/console/webhooks", "/console/pipelines",
    "/console/happenings", "/console/happenings?tab=audit", "/console/cluster", "/console/api",
)  # fmt: skip


@pytest.fixture(scope="module")
def chromium() -> Iterator[Chromium]:
    with Chromium() as browser:
        browser.before_each_page(NOTES)
        yield browser


@pytest.fixture(scope="module")
def broker() -> Iterator[BrokerProcess]:
    with BrokerProcess() as running:
        ask(running, "POST", "/api/v1/topics", {"name": "orders", "partitions": 3})
        rows = [{"key": f"k{n}", "value": {"n": n, "text": "word " * 40}} for n in range(30)]
        ask(running, "POST", "/topics/orders/records", {"records": rows})
        ask(running, "POST", "/api/v1/groups/billing/seek", {"topic": "orders", "to": "start"})
        ask(running, "POST", "/api/v1/queues", {"name": "jobs-dead"})
        ask(
            running,
            "POST",
            "/api/v1/queues",
            {"name": "jobs", "dead_letter": "jobs-dead", "max_deliveries": 5},
        )
        ask(running, "POST", "/api/v1/queues", {"name": "ledger.fifo", "fifo": True})
        for number in range(3):
            ask(running, "POST", "/queues/jobs/messages", {"value": f"job {number}"})
            ask(running, "POST", "/queues/ledger.fifo/messages", {"value": "entry", "group": "account"})
        (one,) = ask(running, "POST", "/queues/jobs/receive?max=1")["items"]
        ask(running, "POST", f"/queues/jobs/messages/{one['receipt']}/reject?detail=the+mailbox+is+full")
        ask(running, "POST", "/queues/jobs/receive?max=1&visibility=1000s")
        ask(running, "POST", "/queues/ledger.fifo/receive?visibility=1000s")
        body = {
            "name": "nightly-report-of-everything",
            "cron": "0 2 * * *",
            "topic": "orders",
            "value": "now",
        }
        ask(running, "POST", "/api/v1/schedules", body)
        settled(lambda: ask(running, "GET", "/api/v1/queues/jobs-dead")["ready"] == 1)
        yield running


@pytest.mark.parametrize("width", [320, 375])
def test_w12_no_page_and_no_table_scrolls_sideways_on_a_phone(
    chromium: Chromium, broker: BrokerProcess, width: int
) -> None:
    """Acceptance 16: nothing is cut off, and nothing is behind an edge that nobody sees."""
    chromium.resize(width)
    wide = []
    for path in EVERY_PAGE:
        chromium.go(site(broker) + path)
        chromium.until("!!document.querySelector('main h1') && !document.querySelector('main .waiting')")
        wide += [
            (path, one)
            for one in chromium.run(
                "[document.documentElement, ...document.querySelectorAll('.scroll')].filter((one) => one.scrollWidth > one.clientWidth + 1)"
                ".map((one) => one.tagName + ' ' + one.className + ' ' + one.scrollWidth + ' > ' + one.clientWidth)"
            )
        ]
    chromium.resize(1440)
    assert wide == []
    assert_clean(chromium, broker)


def test_w13_what_is_not_there_is_made_from_where_it_was_missed(
    chromium: Chromium, broker: BrokerProcess
) -> None:
    """A link to a topic that does not exist says so, makes nothing (W2), and offers to make it."""
    chromium.resize(1440)
    chromium.go(f"{site(broker)}/console/topics/missed")
    chromium.until_text("no topic", "Create it")
    assert "missed" not in [row["name"] for row in ask(broker, "GET", "/api/v1/topics")["items"]]
    chromium.run(click("Create it"))
    chromium.until_text("Create a topic", "headrace topic create missed")
    chromium.run(click("Create missed"))
    chromium.until("location.pathname === '/console/topics/missed'")
    assert "missed" in [row["name"] for row in ask(broker, "GET", "/api/v1/topics")["items"]]
    assert_clean(chromium, broker)


def test_w7_times_are_local_or_utc_and_exact_in_a_title(chromium: Chromium, broker: BrokerProcess) -> None:
    chromium.go(f"{site(broker)}/console/topics/orders")
    chromium.until("!!document.querySelector('tr[data-at] time')")
    title = "document.querySelector('tr[data-at] time').title"
    before = chromium.run(title)
    assert before[-6] in "+−" and before.count(":") == 3
    chromium.run("document.querySelector('header button[title=\"Local time or UTC\"]').click()")
    chromium.until(f"{title}.endsWith(' Z')")
    chromium.go(f"{site(broker)}/console/topics/orders?order=oldest")
    chromium.until("!!document.querySelector('tr[data-at] time')")
    assert chromium.run(title).endswith(" Z"), "it is remembered"
    chromium.run("document.querySelector('header button[title=\"Local time or UTC\"]').click()")


def test_w22_what_happened_and_who_did_what_are_shown(chromium: Chromium, broker: BrokerProcess) -> None:
    """A change made in the browser, by the dialog that shows it first, is in the audit with before and after."""
    chromium.go(f"{site(broker)}/console/topics/orders?tab=config")
    chromium.until_text("retention.ms", "Change")
    row = "[...document.querySelectorAll('tr')].find((row) => row.innerText.startsWith('retention.ms'))"
    chromium.run(f"{row}.querySelector('button').click()")
    chromium.until_text("headrace topic alter orders")
    chromium.run(write("New value", "7777777"))
    chromium.run(click("Set retention.ms"))
    chromium.until("!document.querySelector('dialog')")
    assert ask(broker, "GET", "/api/v1/topics/orders")["configs"]["retention.ms"]["value"] == "7777777"
    chromium.go(f"{site(broker)}/console/happenings?tab=audit")
    chromium.until_text("console@localhost", "PATCH", "/api/v1/topics/orders", "7777777")
    assert "7777777" in chromium.run("document.querySelector('.change').innerText")
    chromium.go(f"{site(broker)}/console/happenings?thing=topic")
    chromium.until_text(
        "Topic orders has other configs", "4 topics were created: orders, jobs-dead, jobs and 1 more"
    )
    chromium.go(f"{site(broker)}/")
    chromium.until_text("What happened", "Topic orders has other configs")
    assert_clean(chromium, broker)


def test_w14_each_empty_page_has_a_command_and_no_dead_end(chromium: Chromium) -> None:
    with BrokerProcess() as empty:
        for path in (
            "topics",
            "queues",
            "dead",
            "groups",
            "schedules",
            "webhooks",
            "pipelines",
            "happenings?tab=audit",
        ):
            chromium.go(f"{site(empty)}/console/{path}")
            chromium.until("!!document.querySelector('main .empty h2')")
            assert chromium.run("document.querySelector('main .empty .command pre').textContent").startswith(
                ("headrace ", "curl ")
            ), path


def test_acceptance_2_little_is_fetched_before_home_is_drawn(
    chromium: Chromium, broker: BrokerProcess
) -> None:
    """Bytes and round trips are what a first paint waits for; milliseconds are for a quiet machine."""
    chromium.go(f"{site(broker)}/")
    chromium.until_text("All is well", "What flows where")
    files = chromium.run(
        "performance.getEntriesByType('resource').filter((one) => one.name.includes('/console/assets/')).map((one) => [one.name, one.encodedBodySize])"
    )
    assert 0 < sum(size for _, size in files) <= 60 * 1024
    assert len(files) <= 10, files


def test_a_schedule_is_run_now_and_its_ticks_are_let_pass(chromium: Chromium, broker: BrokerProcess) -> None:
    name = "nightly-report-of-everything"

    def sent() -> int:
        rows = ask(broker, "GET", "/topics/orders/search?contains=now&limit=10")["items"]
        return sum(row["value"] == "now" for row in rows)

    assert sent() == 0
    chromium.go(f"{site(broker)}/console/schedules")
    chromium.until_text(name, "Run now")
    chromium.run(click("Run now"))
    chromium.until_text("The calendar goes on as it is", f"headrace schedule run {name}")
    chromium.run(click("Send 1 message now"))
    settled(lambda: sent() == 1)
    chromium.run(click("Pause"))
    chromium.until_text("What was missed is not made up for")
    chromium.run(click("Pause the schedule"))
    chromium.until_text("paused", "when it is resumed")
    chromium.run(click("Resume"))
    chromium.until_text("Resume the schedule")
    chromium.run(click("Resume the schedule"))
    settled(lambda: not ask(broker, "GET", "/api/v1/schedules")["items"][0]["paused"])
    assert_clean(chromium, broker)
