"""F42, F46: the commands of the manual, followed to the letter by somebody with an empty home directory."""

from __future__ import annotations

import os
import re
import signal
from collections.abc import Iterator
from pathlib import Path

import pytest
from manual_reader import Reader, follow
from shell_blocks import blocks

from headrace.records.filters.language import compile_filter
from headrace.testing.etcd_server import EtcdServer, etcd_binary

pytestmark = [pytest.mark.client, pytest.mark.timeout(1800)]

ROOT = Path(__file__).parents[2]
DOCS = ROOT / "docs"
PAGES = [
    *(ROOT / f"{name}.md" for name in ("README", "ARCHITECTURE", "CONTRIBUTING")),
    *sorted(DOCS.glob("*.md")),
]
WITH_A_BROKER = [
    "migration",
    "operations",
    "queues",
    "rest",
    "schemas",
    "sdk",
    "security",
    "tracing",
    "transactions",
    "views",
    "webhooks",
]
"""Their commands are typed beside a broker that runs."""
FROM_NOTHING = ["../README", "quickstart"]
"""They start one themselves; who reads both does so in this order, with one home."""
ELSEWHERE = {"cluster": "below", "spark": "tests/spark/test_docs.py", "pipelines": "tests/spark/test_manual.py", "sqs": "test_awscli.py", "testing": "test_testing_docs.py", "frameworks": "test_frameworks.py"}  # fmt: skip


@pytest.fixture
def reader(tmp_path: Path) -> Iterator[Reader]:
    somebody = Reader(tmp_path)
    yield somebody
    somebody.leave()


@pytest.mark.parametrize("page", WITH_A_BROKER)
def test_f46_the_commands_of_the_manual_work(reader: Reader, page: str) -> None:
    reader.serve()
    follow(reader, DOCS / f"{page}.md")


def test_f46_first_the_readme_and_then_the_quickstart(reader: Reader) -> None:
    """The second met a topic that the first had made."""
    for page in FROM_NOTHING:
        follow(reader, DOCS / f"{page}.md")
        reader.leave()


@pytest.mark.skipif(etcd_binary() is None, reason="etcd is missing")
def test_f46_the_commands_of_the_cluster_page_work(tmp_path: Path) -> None:
    """On this host: its three addresses of etcd are one, and the broker's is our own."""
    etcd = EtcdServer(tmp_path / "etcd")
    etcd.start()
    elsewhere = {"10.0.0.11:2379,10.0.0.12:2379,10.0.0.13:2379": etcd.address, "10.0.0.1": "127.0.0.1"}
    reader = Reader(tmp_path / "home", elsewhere)
    try:
        (try_one, run_one) = blocks(DOCS / "cluster.md")
        for step in try_one.steps:
            reader.type(step)
        _kill_one_and_start_it_again(reader)
        reader.leave()
        # Another host, so another home.
        reader = Reader(tmp_path / "other", elsewhere)
        for step in run_one.steps:
            reader.type(step)
        reader.type("headrace cluster status")
    finally:
        reader.leave()
        etcd.stop()


def _kill_one_and_start_it_again(reader: Reader) -> None:
    """As the page says below its first commands: the banner has the pids, the same terminal then has the command."""
    pid = reader.read(r"Broker 2 .* pid (\d+)")
    os.kill(int(pid), signal.SIGKILL)
    command = reader.read(r"(headrace serve --node-id 2 .*)", warning=True)
    reader.until_it_fails("headrace cluster status")
    reader.beside(command)
    reader.until_it_works("headrace cluster status")


def test_f46_every_page_with_commands_has_a_reader() -> None:
    """A new page with commands must be followed by somebody, too."""
    pages = {page.stem for page in DOCS.glob("*.md") if any(block.steps for block in blocks(page))}
    assert pages <= {*WITH_A_BROKER, "quickstart", *ELSEWHERE}


OTHER_BLOCKS = {
    "text": "shows how something looks",
    "json": "an answer, or a file that the text names",
    "toml": "a definition of a pipeline: tests/spark/test_manual.py reads each",
    "filter": "an expression: compiled below",
    "usage": "out of a command's own help: tests/unit/cli/test_commands_in_docs.py knows each command and flag",
}
"""Blocks that are not typed, and why; `console`, `sh` and `python` are."""


@pytest.mark.parametrize("page", PAGES, ids=lambda page: page.name)
def test_f46_every_block_is_run_or_says_what_it_is(page: Path) -> None:
    """A block without a language was run by nobody: so were the first commands of the security page."""
    for language, body in re.findall(r"^```(\w*)\n(.*?)^```", page.read_text(), re.S | re.M):
        assert language in ("console", "sh", "python", *OTHER_BLOCKS), (language, body)
        assert language != "toml" or page.name == "pipelines.md"
        if language in ("text", "json"):
            assert not re.search(r"^\$? *(headrace|aws|pip|kcat|curl|make) [a-z-]", body, re.M), body
        if language == "filter":
            compile_filter(body.strip())


def test_f46_commands_are_in_blocks_that_are_run() -> None:
    """Not in indented text, which nobody runs."""
    indented = [
        f"{page.name}: {line.strip()}"
        for page in PAGES
        for line in page.read_text().splitlines()
        if re.match(r"(    |\t)\$?\s*(headrace|aws|pip|kcat|curl) ", line)
    ]
    assert not indented
