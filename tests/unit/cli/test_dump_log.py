"""`headrace debug dump-log` on real segment files: whole ones, damaged ones, torn ones."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
from click.testing import Result

from headrace.cli.failure import Exit
from headrace.records.build import Record, build_batch
from headrace.records.compression import Codec

Run = Callable[..., Result]

WALL_MS = 1_793_000_000_000


def batch(base_offset: int, count: int, **options: Any) -> bytes:
    records = [Record(b"k%d" % index, b"value", (("h", b"1"),), WALL_MS + index) for index in range(count)]
    return build_batch(records, base_offset=base_offset, leader_epoch=2, wall_ms=WALL_MS, **options)


@pytest.fixture
def segment(tmp_path: Path) -> Path:
    path = tmp_path / "00000000000000000100.log"
    path.write_bytes(
        batch(100, 3)
        + batch(103, 2, codec=Codec.ZSTD)
        + batch(105, 1, producer_id=9, producer_epoch=1, base_sequence=4)
    )
    return path


def rows(result: Result) -> list[dict[str, Any]]:
    return [json.loads(line) for line in result.stdout.splitlines()]


def test_every_batch_is_shown(run: Run, segment: Path) -> None:
    result = run("debug", "dump-log", str(segment), "--json")
    assert result.exit_code == Exit.OK
    found = rows(result)
    assert [(row["base_offset"], row["last_offset"], row["records"]) for row in found] == [
        (100, 102, 3), (103, 104, 2), (105, 105, 1),
    ]  # fmt: skip
    assert [row["codec"] for row in found] == ["none", "zstd", "none"]
    assert (found[2]["producer_id"], found[2]["base_sequence"]) == (9, 4)
    assert found[0]["timestamp"] == "2026-10-26T07:33:20.002Z"
    assert sum(row["size"] for row in found) == segment.stat().st_size


def test_records_are_shown_when_asked_for(run: Run, segment: Path) -> None:
    found = rows(run("debug", "dump-log", str(segment), "--records", "--json"))
    assert [record["key"] for record in found[1]["contents"]] == ["k0", "k1"]
    assert [record["offset"] for record in found[1]["contents"]] == [103, 104]
    assert found[0]["contents"][0]["headers"] == {"h": "1"}
    text = run("debug", "dump-log", str(segment), "--records").stdout
    assert "offsets 103..104  2 records" in text and "k1 = value" in text


def test_damage_in_the_middle_is_located_and_the_rest_is_read(run: Run, segment: Path) -> None:
    data = bytearray(segment.read_bytes())
    first = len(batch(100, 3))
    data[first + 80] ^= 0xFF
    segment.write_bytes(data)
    result = run("debug", "dump-log", str(segment), "--json")
    assert result.exit_code == Exit.FAILED
    found = rows(result)
    assert [row["damage"] is None for row in found] == [True, False, True]
    assert found[1]["position"] == first
    assert "CRC" in found[1]["damage"] and "next whole batch" in found[1]["damage"]
    assert found[2]["base_offset"] == 105
    assert "DAMAGED after offset 102" in run("debug", "dump-log", str(segment)).stdout


def test_a_torn_tail_is_told_from_rot(run: Run, segment: Path) -> None:
    segment.write_bytes(segment.read_bytes()[:-7])
    result = run("debug", "dump-log", str(segment), "--json")
    assert result.exit_code == Exit.FAILED
    assert "torn tail, or a write under way" in rows(result)[-1]["damage"]


def test_a_directory_is_all_its_segments(run: Run, segment: Path) -> None:
    (segment.parent / "00000000000000000106.log").write_bytes(batch(106, 1))
    found = rows(run("debug", "dump-log", str(segment.parent), "--json"))
    assert [row["base_offset"] for row in found] == [100, 103, 105, 106]


def test_what_is_no_segment_is_refused(run: Run, tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("x")
    assert run("debug", "dump-log", str(tmp_path / "notes.txt")).exit_code == Exit.USAGE
    empty = tmp_path / "empty"
    empty.mkdir()
    assert run("debug", "dump-log", str(empty)).exit_code == Exit.NOT_FOUND


def test_the_file_is_not_changed(run: Run, segment: Path) -> None:
    segment.chmod(0o400)
    before = segment.read_bytes()
    run("debug", "dump-log", str(segment), "--records")
    assert segment.read_bytes() == before
    assert sorted(path.name for path in segment.parent.iterdir() if path.is_file()) == [segment.name]
