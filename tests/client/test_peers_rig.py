"""The rig of `make bench-peers`: every row on Headrace alone in a tiny form, what is said of peers that are not there, and the table."""

from __future__ import annotations

import json
import os
import sys
from dataclasses import replace
from pathlib import Path
from typing import Any
from xml.etree import ElementTree

import pytest

from headrace.testing.etcd_server import etcd_binary

ROOT = Path(__file__).parents[2]
for place in ("bench", "tests/torture", "tests/models"):
    sys.path.append(str(ROOT / place))

import guard  # noqa: E402 - from bench, which is no package
from peers import cli, report  # noqa: E402
from peers.rounds import TINY, Figure, Found, Goal, Pool, Row, Size, Turns, measure  # noqa: E402
from peers.servers import Peer, Unobtainable  # noqa: E402


class Stub(Peer):  # type: ignore[misc]
    """A side without a server: the rounds themselves are what is looked at."""

    title = "A peer"
    durability = "none"

    def obtain(self) -> None: ...
    def start(self) -> None: ...
    def stop(self) -> None: ...
    def kill(self) -> None: ...

    def pids(self) -> list[int]:
        return []


class Ours(Stub):
    name = "headrace"
    synced = True
    title = "Headrace"


class Theirs(Stub):
    name = "kafka"


class Alike(Stub):
    name = "kafka-fsync"
    synced = True


class Away(Stub):
    name = "nats"
    title = "Never there"

    def obtain(self) -> None:
        raise Unobtainable("there is no go here")


class Broken(Stub):
    name = "redis"


def ticking(peer: Peer, size: Size) -> Turns:
    for value in (4.0, 2.0, 3.0):
        if isinstance(peer, Broken) and value < 4:
            raise ConnectionResetError("gone")
        yield {"MB/s": value * (3 if isinstance(peer, Ours) else 2), "CPU-s/GB": value}


ROW = Row(
    "made-up",
    "made up",
    (Figure("MB/s", True, Goal(1.2, ("kafka",))), Figure("CPU-s/GB", goal=Goal(1.5))),
    (Ours, Theirs, Away, Broken),
    ticking,
    rounds=3,
)


def told(found: dict[str, Found], load: float = 0.2) -> dict[str, Any]:
    about = {
        "date": "2026-11-18 10:00 UTC", "size": "short", "machine": "some machine", "revision": "abc", "load": [load, load],
        "minutes": 1.0, "versions": {"headrace": "0.1"},
    }  # fmt: skip
    return report.document([ROW], found, about)


def test_who_is_away_or_fails_is_told_and_the_others_go_on(tmp_path: Path) -> None:
    found = measure(ROW, Pool(tmp_path, lambda _: None), TINY, float("inf"), lambda _: None)
    assert found.values["headrace"]["MB/s"] == [12.0, 6.0, 9.0]
    assert found.values["kafka"]["CPU-s/GB"] == [4.0, 2.0, 3.0]
    assert found.missing["nats"] == "there is no go here"
    assert "gone" in found.missing["redis"]
    found.load = (3.0, 4.0)
    table = report.markdown(told({ROW.key: found}))
    assert (
        "| made up (`made-up`, load 3) | MB/s | **Headrace** | 12.0 | 50 % | 1.50 |  | ≥ 1.2 × kafka: met |"
        in table
    )
    assert "|  | CPU-s/GB | **Headrace** | 2.00 | 50 % | 1.00 |  | ≤ 1.50: missed |" in table
    assert "nats is missing: there is no go here" in table
    assert "busy" not in table
    assert "busy" in report.markdown(told({ROW.key: found}, load=9.0))


def test_a_second_ratio_is_against_those_that_promise_the_same() -> None:
    row = replace(ROW, sides=(Ours, Theirs, Alike))
    values = {"headrace": {"MB/s": [6.0]}, "kafka": {"MB/s": [12.0]}, "kafka-fsync": {"MB/s": [3.0]}}
    made = told({})
    made["rows"] = report.document([row], {row.key: Found(values=values)}, {})["rows"]
    assert "| MB/s | **Headrace** | 6.00 |  | 0.50 | 2.00 |" in report.markdown(made)


def test_when_the_time_is_up_rows_are_said_to_be_missing(tmp_path: Path) -> None:
    found = measure(ROW, Pool(tmp_path, lambda _: None), TINY, float("-inf"), lambda _: None)
    assert not found.values
    assert found.missing["headrace"] == "the time was up"
    assert "not measured" in report.markdown(told({ROW.key: found}))


def test_rows_can_be_added_to_those_of_another_run() -> None:
    one = told({ROW.key: Found(values={"headrace": {"MB/s": [1.0]}})}, load=7.0)
    two = told({ROW.key: Found(values={"headrace": {"MB/s": [2.0]}})}, load=1.0)
    two["rows"]["other"] = two["rows"].pop(ROW.key)
    both = report.added(one, two)
    assert {key: row["values"]["headrace"]["MB/s"] for key, row in both["rows"].items()} == {
        "made-up": [1.0],
        "other": [2.0],
    }
    assert both["about"]["load"] == [7.0, 7.0], "the busier of the two"
    assert report.added(one, one)["rows"] == one["rows"]


def test_rows_and_sides_can_be_chosen() -> None:
    (row,) = cli.chosen(cli.ROWS, "sqs", "headrace,moto")
    assert [kind.name for kind in row.sides] == ["headrace", "moto"]
    with pytest.raises(SystemExit, match="there is no row sqx"):
        cli.chosen(cli.ROWS, "sqx", None)


@pytest.mark.timeout(600)
def test_every_row_runs_on_headrace_alone(tmp_path: Path) -> None:
    """Seconds of work: so that the rig can't rot between the runs that somebody looks at."""
    sides = ["headrace", *(["headrace-three"] if etcd_binary() else [])]
    rows = cli.chosen(cli.ROWS, None, ",".join(sides))
    made = cli.run(rows, TINY, minutes=9)
    for key, row in made["rows"].items():
        assert not row["missing"], (key, row["missing"])
        for side, values in row["values"].items():
            for figure in row["figures"]:
                if figure["name"] in values or figure["name"].startswith("with coordinator"):
                    continue
                raise AssertionError(f"{key}: {side} has no {figure['name']}")
    written = report.write(made, tmp_path / "peers")
    assert {file.suffix for file in written} == {".json", ".md", ".svg"}
    for file in written:
        if file.suffix == ".svg":
            ElementTree.parse(file)
    assert json.loads((tmp_path / "peers.json").read_text())["rows"].keys() == made["rows"].keys()
    left = [line for line in processes() if "peers-" in line and str(os.getpid()) in line.split()[:1]]
    assert not left


def processes() -> list[str]:
    """Parent and command line of everybody."""
    found = []
    for entry in Path("/proc").iterdir():
        if entry.name.isdigit():
            try:
                parent = (entry / "stat").read_text().rpartition(")")[2].split()[1]
                line = (entry / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            except OSError:
                continue
            found.append(f"{parent} {line}")
    return found


def test_the_guard_knows_a_dearer_row_from_a_dearer_machine() -> None:
    before = {"rows": {guard.REFERENCE: [0.1], "produce: µs": [20.0, 22.0], guard.IDLE: [0.2]}}
    quiet = {guard.REFERENCE: [0.1], "produce: µs": [22.9, 40.0], guard.IDLE: [0.29]}
    assert not guard.dearer(quiet, before, 15), "within 15 percent, and within what idle may waver"
    assert guard.dearer({**quiet, "produce: µs": [24.0, 24.0]}, before, 15) == {"produce: µs": 1.2}
    busy = {guard.REFERENCE: [0.2], "produce: µs": [40.0], guard.IDLE: [0.2], "new: µs": [1.0]}
    assert not guard.dearer(busy, before, 15), "everything is twice as dear there"
    assert guard.dearer({**busy, "produce: µs": [48.0]}, before, 15) == {"produce: µs": 1.2}
    faster = {**quiet, guard.REFERENCE: [0.01], "produce: µs": [20.0]}
    assert not guard.dearer(faster, before, 15), "a machine that is quicker for once takes nothing away"


def test_a_baseline_is_a_file_of_its_kind_of_machine(tmp_path: Path) -> None:
    kind = "AMD EPYC 7B13, 2 cores, Python 3.11, pure Python"
    assert guard.baseline_file(kind, tmp_path).name == "amd-epyc-7b13-2-cores-python-3.11-pure-python.json"
