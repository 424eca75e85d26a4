"""Codec: which tags occur in a batch, as 64 bits, so that a batch without the wanted ones need not be read again.

Each tag sets one bit. The bytes are searched for what looks like a tag header, without opening records; what only looks
like one sets a bit too many. Invariant: a batch that holds a record with one of the tags shares a bit with their mask.
"""

from __future__ import annotations

import re
from collections.abc import Iterable
from functools import cache
from zlib import crc32

from headrace.records.filters.compile import TAG_HEADER
from headrace.records.varint import append_varint

ALL_TAGS = (1 << 64) - 1

_SEEN_BYTES = 32
"""Longer tags are told apart by their first bytes only."""


def _lengths() -> bytes:
    """Each length from 1 to 32 with as many bytes of text behind it; any other with what is there."""
    known = b"|".join(
        re.escape(bytes([length << 1])) + b".{%d}" % length for length in range(1, _SEEN_BYTES + 1)
    )
    return b"(" + known + b"|[^\\x00-\\x40].{0,%d}|\\x00)" % _SEEN_BYTES


@cache
def _tags() -> re.Pattern[bytes]:
    """Made on first use: most brokers never need it."""
    name = bytes([len(TAG_HEADER) << 1]) + TAG_HEADER.encode()
    return re.compile(re.escape(name) + b"(?=" + _lengths() + b")", re.DOTALL)


def tag_mask(body: bytes) -> int:
    """The mask of a batch's plain body."""
    mask = 0
    for found in set(_tags().findall(body)):
        mask |= _bit(found)
    return mask


def mask_of(tags: Iterable[str]) -> int:
    """The bits to look for when one of these tags is wanted."""
    mask = 0
    for tag in tags:
        raw = tag.encode("utf-8", "surrogatepass")
        encoded = bytearray()
        append_varint(encoded, len(raw))
        if len(raw) > _SEEN_BYTES:
            # What the search sees of it: one byte of length and what follows, be it the rest of the length or text.
            mask |= _bit(bytes((encoded + raw)[: 1 + _SEEN_BYTES]))
        else:
            mask |= _bit(bytes(encoded + raw))
    return mask


def _bit(found: bytes) -> int:
    return 1 << (crc32(found) & 63)
