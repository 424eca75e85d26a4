"""Kernel: error texts without what makes each of them one of a kind, so that "order 17 not found" and "order 18 not found" are one (5.3)."""

from __future__ import annotations

import re

MAX_CHARS = 300
_IDS = re.compile(
    r"\b[0-9a-fA-F]{8}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{4}-[0-9a-fA-F]{12}\b"  # a UUID
    r"|\b0x[0-9a-fA-F]{1,32}\b"
    r"|\b(?=[0-9a-fA-F]{0,63}[0-9])[0-9a-fA-F]{12,64}\b"  # a digest, or an id in hex
    r"|[0-9]{1,40}(?:[.,:][0-9]{1,40}){0,8}"  # numbers, times, addresses
)
_SPACES = re.compile(r"\s{1,100}")


def folded(text: str) -> str:
    """`#` stands for every number and id; what is left is what went wrong."""
    return _IDS.sub("#", _SPACES.sub(" ", text[: 4 * MAX_CHARS]).strip())[:MAX_CHARS]
