from __future__ import annotations

import json
from typing import ClassVar

import pytest

from headrace.cli.output import Column, Format, Output, Row, cells_of, column, counted, grouped, printable


class Thing(Row):
    SCHEMA: ClassVar[str] = "headrace.thing/v1"
    name: str
    size: int
    tags: list[str]
    ready: bool = True


THINGS = [Thing(name="a", size=1, tags=["x", "y"]), Thing(name="long name", size=2048, tags=[], ready=False)]
COLUMNS = [
    column("NAME", "name"),
    column("SIZE", "size", right=True),
    Column("TAGS", lambda thing: ",".join(thing.tags) or None),
    column("READY", "ready", wide=True),
]


def printed(capsys: pytest.CaptureFixture[str], format: Format) -> str:
    Output(format).items(Thing, THINGS, COLUMNS)
    return capsys.readouterr().out


def test_a_table_is_aligned_and_without_trailing_spaces(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Format.TABLE).splitlines() == [
        "NAME       SIZE  TAGS",
        "a             1  x,y",
        "long name  2048  -",
    ]


def test_wide_shows_more_columns(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Format.WIDE).splitlines()[2] == "long name  2048  -     no"


def test_json_is_one_document_with_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    found = json.loads(printed(capsys, Format.JSON))
    assert found["schema"] == "headrace.thing/v1"
    assert found["items"][0] == {"name": "a", "size": 1, "tags": ["x", "y"], "ready": True}


def test_json_of_nothing_is_still_a_document(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.JSON).items(Thing, [], COLUMNS)
    assert json.loads(capsys.readouterr().out) == {"schema": "headrace.thing/v1", "items": []}
    Output(Format.TABLE).items(Thing, [], COLUMNS)
    assert capsys.readouterr().out == ""


def test_every_json_line_names_its_schema(capsys: pytest.CaptureFixture[str]) -> None:
    lines = [json.loads(line) for line in printed(capsys, Format.JSONL).splitlines()]
    assert [line["name"] for line in lines] == ["a", "long name"]
    assert all(line["schema"] == "headrace.thing/v1" for line in lines)


def test_csv_has_raw_values_and_a_header(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Format.CSV).splitlines() == [
        "name,size,tags,ready",
        'a,1,"[""x"",""y""]",true',
        "long name,2048,[],false",
    ]


def test_name_is_for_xargs(capsys: pytest.CaptureFixture[str]) -> None:
    assert printed(capsys, Format.NAME) == "a\nlong name\n"


def test_one_thing_is_a_flat_document(capsys: pytest.CaptureFixture[str]) -> None:
    Output(Format.JSON).one(THINGS[0], lambda: "for people")
    assert json.loads(capsys.readouterr().out)["name"] == "a"
    Output(Format.TABLE).one(THINGS[0], lambda: "for people")
    assert capsys.readouterr().out == "for people\n"


def test_control_characters_can_not_reach_a_terminal_x28(capsys: pytest.CaptureFixture[str]) -> None:
    evil = [Thing(name="\x1b[31mred\nforged line", size=1, tags=[])]
    Output(Format.TABLE).items(Thing, evil, COLUMNS)
    out = capsys.readouterr().out
    assert "\x1b" not in out and len(out.splitlines()) == 2
    assert printable("plain ü") == "plain ü"


def test_numbers_for_people() -> None:
    assert grouped(1204567) == "1 204 567"
    assert counted(1, "message") == "1 message"
    assert counted(1204, "message") == "1 204 messages"


def test_f53_a_character_that_takes_two_cells_is_counted_as_two(capsys: pytest.CaptureFixture[str]) -> None:
    things = [Thing(name="請求書" * 20, size=1, tags=["e\u0301"]), Thing(name="plain", size=22, tags=[])]
    Output(Format.TABLE, width=40).items(Thing, things, COLUMNS)
    lines = capsys.readouterr().out.splitlines()
    assert [cells_of(line) for line in lines] == [40, 37, 37]
    places = [cells_of(line[: line.rindex("  ")]) for line in lines]
    assert len(set(places)) == 1, "columns stay below each other"


def test_f53_a_sentence_wraps_between_words_and_a_path_is_not_cut() -> None:
    path = "/var/lib/" + "deep/" * 20
    shown = Output(width=80).wrapped(
        f"69.8 GiB are free on the disk that is mounted there, {path} is on it", 22
    )
    first, *rest = shown.split("\n")
    assert len(first) <= 58 and all(line.startswith(" " * 22) for line in rest)
    assert shown.split() == f"69.8 GiB are free on the disk that is mounted there, {path} is on it".split()
    assert Output().wrapped(path * 2, 22) == path * 2, "in a file nothing wraps"
