"""Long work shows a person how far it is, on a terminal's stderr alone; what programs read is clean, and what was shown is erased."""

from __future__ import annotations

import fcntl
import json
import os
import pty
import struct
import subprocess
import sys
import termios
from collections.abc import Iterator
from pathlib import Path
from typing import NamedTuple

import pytest

from headrace.testing import LocalBroker, LocalCluster, eventually

pytestmark = pytest.mark.client

AT_ONCE = """
import sys
from headrace.cli import progress
from headrace.cli.main import main

class Now(progress.Timer):
    def start(self): self.function()
    def join(self): pass

progress.Timer = Now
main(sys.argv[1:], prog_name="headrace")
"""
"""A bar comes after a moment, and what is done sooner has none; how fast this machine is should not decide here."""


class Seen(NamedTuple):
    code: int
    out: str
    shown: str
    """On the terminal."""


def typed(*words: str, home: Path, into: str = "", **variables: str) -> Seen:
    """A terminal for stderr, and a pipe for what is printed, or a file."""
    ours, theirs = pty.openpty()
    fcntl.ioctl(theirs, termios.TIOCSWINSZ, struct.pack("HHHH", 24, 80, 0, 0))
    kept = {name: value for name, value in os.environ.items() if name not in ("NO_COLOR", "CI", "TERM")}
    out = (home / into).open("wb") if into else subprocess.PIPE
    process = subprocess.Popen(
        [sys.executable, "-c", AT_ONCE, *words], stdin=subprocess.DEVNULL, stdout=out, stderr=theirs,
        env={**kept, "TERM": "xterm", "HEADRACE_TIMEOUT": "60s", **variables}, cwd=home,
    )  # fmt: skip
    os.close(theirs)
    shown = b""
    try:
        while piece := os.read(ours, 65536):
            shown += piece
    except OSError:
        pass  # Linux says EIO when the last one has hung up
    os.close(ours)
    printed, _ = process.communicate(timeout=300)
    return Seen(process.returncode, (printed or b"").decode(), shown.decode())


@pytest.fixture(scope="module")
def local() -> Iterator[LocalBroker]:
    with LocalBroker() as running:
        source = running.create_topic("source")
        running.create_topic("target")
        with running.client() as client:
            client.publish_many(source, [f"m{number}" for number in range(50)])
        running.create_queue("dead")
        running.create_queue("jobs", visibility_ms=0, max_deliveries=1, dead_letter="dead")
        yield running


LONG = {
    "topic copy": (["source", "target", "--rate", "50/s"], "Copying source"),
    "topic search": (["source", "nothing"], "Looking through source"),
    "topic export": (["source", "--to", "kept.jsonl"], "Exporting source"),
    "debug bundle": (["--to", "bundle.tar.gz"], "Collecting"),
    "bench produce": (["-t", "benched", "-n", "1000"], "Publishing"),
    "bench queue": (["-n", "40", "-w", "2"], "Measuring"),
}


@pytest.mark.parametrize("verb", LONG)
def test_a_person_sees_how_far_it_is_and_a_program_does_not(
    local: LocalBroker, verb: str, tmp_path: Path
) -> None:
    words, label = LONG[verb]
    place = ("-b", local.bootstrap)
    person = typed(*verb.split(), *words, *place, home=tmp_path)
    assert person.code == 0, person
    assert label in person.shown and label not in person.out
    assert "\x1b[2K" in person.shown.rpartition(label)[2], "erased at the end"
    program = typed(*verb.split(), *words, "--json", *place, home=tmp_path)
    assert program.code == 0, program
    json.loads(program.out)
    assert label not in program.out


def test_nobody_sees_it_who_does_not_want_to_or_is_no_terminal(local: LocalBroker, tmp_path: Path) -> None:
    words = ["topic", "search", "source", "nothing", "-b", local.bootstrap]
    for flag in ("--no-progress", "--quiet"):
        silent = typed(*words, flag, home=tmp_path)
        assert silent.code == 0 and "Looking" not in silent.shown and "\x1b" not in silent.shown, (
            flag,
            silent,
        )
    piped = subprocess.run(
        [sys.executable, "-c", AT_ONCE, *words],
        capture_output=True,
        text=True,
        cwd=tmp_path,
        timeout=300,
        check=True,
    )
    assert "Looking" not in piped.stderr + piped.stdout and "\x1b" not in piped.stderr


def test_what_is_printed_into_a_file_is_counted_and_what_goes_into_a_pipe_is_not(
    local: LocalBroker, tmp_path: Path
) -> None:
    """A pager draws where a bar would be."""
    for verb in ("consume", "export"):
        words = ("topic", verb, "source", "-b", local.bootstrap)
        assert typed(*words, home=tmp_path).shown == ""
        filled = typed(*words, home=tmp_path, into="kept")
        assert "source" in filled.shown and filled.code == 0, filled
        assert len((tmp_path / "kept").read_text().splitlines()) == 50


def test_a_redrive_that_takes_its_time(local: LocalBroker, tmp_path: Path) -> None:
    local.ask("POST", "/queues/jobs/batch", {"records": [{"value": str(number)} for number in range(6)]})
    for _ in range(2):  # with no lock, the second look finds them given up
        local.ask("POST", "/queues/jobs/receive?max=100", None)
    eventually(lambda: len(local.messages("dead")) == 6, within=60)
    seen = typed(
        "dlq", "redrive", "dead", "--to", "jobs", "--rate", "5/s", "-b", local.bootstrap, home=tmp_path
    )
    assert seen.code == 0, seen
    assert "Redriving dead" in seen.shown and "/6" in seen.shown
    erased, line = seen.shown.rstrip().rpartition("\x1b[2K")[1:]
    assert erased and "Redriven 6 messages" in line and "\n" not in line, seen.shown[-200:]


def test_partitions_that_are_moved(tmp_path: Path) -> None:
    with LocalCluster(3) as cluster:
        topic = cluster.create_topic("moved", partitions=12)
        place = ("-b", cluster.bootstrap)
        for words in (["topic", "alter", topic, "-r", "1"], ["cluster", "drain", "3"]):
            seen = typed(*words, *place, home=tmp_path)
            assert seen.code == 0 and "Moving partitions" in seen.shown, seen
        seen = typed("cluster", "rebalance", "--json", *place, home=tmp_path)
        assert seen.code == 0 and json.loads(seen.out)["items"], seen


def test_a_broker_that_is_being_started(tmp_path: Path) -> None:
    variables = {
        "HOME": str(tmp_path),
        "XDG_CONFIG_HOME": str(tmp_path / "config"),
        "XDG_DATA_HOME": str(tmp_path / "data"),
    }
    seen = typed(
        "start", "--kafka-port", "0", "--http-port", "0", "--wait", "200s", home=tmp_path, **variables
    )
    try:
        assert seen.code == 0 and "Starting" in seen.shown, seen
    finally:
        typed("stop", home=tmp_path, **variables)
