"""Codec: what --json prints, as YAML: for people who read it and tools that want it. Texts that could be taken for something else are quoted."""

from __future__ import annotations

import json
import re
from collections.abc import Iterator
from typing import Any

_PLAIN = re.compile(r"[A-Za-z_/][A-Za-z0-9_./+-]*(?: [A-Za-z0-9_./+-]+)*")
_WORDS = frozenset(["y", "n", "yes", "no", "on", "off", "true", "false", "null", "none", "nan", "inf"])


def yaml_text(value: Any) -> str:
    return "\n".join(_lines(value, "")) + "\n"


def _lines(value: Any, indent: str) -> Iterator[str]:
    if isinstance(value, dict) and value:
        for key, held in value.items():
            yield from _entry(f"{indent}{_scalar(str(key))}:", held, indent + "  ")
    elif isinstance(value, list) and value:
        for held in value:
            inner = list(_lines(held, indent + "  "))
            yield f"{indent}- {inner[0].lstrip()}"
            yield from inner[1:]
    else:
        yield indent + _scalar(value)


def _entry(start: str, held: Any, inner: str) -> Iterator[str]:
    if isinstance(held, dict | list) and held:
        yield start
        yield from _lines(held, inner)
    else:
        yield f"{start} {_scalar(held)}"


def _scalar(value: Any) -> str:
    if isinstance(value, str):
        plain = _PLAIN.fullmatch(value) is not None and value.lower() not in _WORDS
        return value if plain else _quoted(value)
    if isinstance(value, dict | list):
        return "{}" if isinstance(value, dict) else "[]"
    return json.dumps(value)


def _quoted(text: str) -> str:
    made = []
    for char in text:
        if char in '"\\':
            made.append("\\" + char)
        elif char.isprintable():
            made.append(char)
        else:
            number = ord(char)
            made.append(f"\\U{number:08x}" if number > 0xFFFF else f"\\u{number:04x}")
    return '"' + "".join(made) + '"'
