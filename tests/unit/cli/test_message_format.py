from __future__ import annotations

import pytest

from headrace.cli.message_format import compile_format, for_terminal, message_row
from headrace.cli.output import document


class FakeMessage:
    """As confluent-kafka hands it out."""

    def __init__(self, value: bytes | None = b"v", key: bytes | None = b"k") -> None:
        self._value, self._key = value, key

    def topic(self) -> str:
        return "orders"

    def partition(self) -> int:
        return 3

    def offset(self) -> int:
        return 42

    def key(self) -> bytes | None:
        return self._key

    def value(self) -> bytes | None:
        return self._value

    def timestamp(self) -> tuple[int, int]:
        return 1, 1_793_000_000_123

    def headers(self) -> list[tuple[str, bytes | None]]:
        return [("a", b"1"), ("b", None)]


@pytest.mark.parametrize(
    ("format", "line"),
    [
        ("%t %p %o %k %v\\n", b"orders 3 42 k v\n"),
        ("%%%S\\t%T", b"%1\t1793000000123"),
        ("%h|%d", b"a:1,b:|2026-10-26T07:33:20.123Z"),
        ("plain \\\\ ü", "plain \\ ü".encode()),
    ],
)
def test_formats(format: str, line: bytes) -> None:
    assert compile_format(format)(FakeMessage()) == line


def test_bytes_pass_unharmed_and_null_is_empty() -> None:
    assert compile_format("%v")(FakeMessage(b"\xff\x00")) == b"\xff\x00"
    assert compile_format("%k=%v")(FakeMessage(None, None)) == b"="


@pytest.mark.parametrize("format", ["%q", "100%"])
def test_unknown_fields_are_refused(format: str) -> None:
    with pytest.raises(ValueError, match="is not known in a format"):
        compile_format(format)


def test_the_json_row_says_how_bytes_are_written() -> None:
    row = message_row(FakeMessage(b"\xff", "ü".encode()))
    assert (row.key, row.value) == ("ü", {"base64": "/w=="})
    assert document(row)["timestamp"] == "2026-10-26T07:33:20.123Z"
    assert list(row.headers) == ["a", "b"]


def test_a_terminal_is_safe_from_what_was_published_x28() -> None:
    forged = FakeMessage(b"ok\n\ttab")
    assert compile_format("%v\\n", for_terminal)(forged) == b"ok\\n\\ttab\n"  # one line for one message (F57)
    assert for_terminal(b"\x1b[2Jgone\x07") == b"\\x1b[2Jgone\\x07"
