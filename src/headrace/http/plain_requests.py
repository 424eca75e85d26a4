"""Codec: a whole request in the form that programs send, read in one go instead of header by header.

Only what can be read in no two ways: HTTP/1.1, no folded, empty, repeated or exotic header, no transfer coding, and a body that
is there and ends where the bytes end. For everything else the answer is None, and llhttp decides (reader.py), which reads what is
plain in the same way (a property test compares them).
"""

from __future__ import annotations

import re
from typing import NamedTuple

_head = re.compile(
    rb"(GET|POST|PUT|PATCH|DELETE) (/[!-~]*+) HTTP/1\.1\r\n"
    rb"((?:[!#$%&'*+\-.^_`|~0-9A-Za-z]++: ?[!-~][ -~]*+(?<! )\r\n)++)\r\n"
).match
_fields = re.compile(rb"([^:\r\n]++): ?([^\r\n]++)\r\n").findall
_length = re.compile(rb"[0-9]{1,9}").fullmatch
_ODD = frozenset((b"expect", b"keep-alive", b"proxy-connection", b"transfer-encoding", b"upgrade"))


class Plain(NamedTuple):
    method: bytes
    target: bytes
    headers: dict[bytes, bytes]
    body: bytes


def read_plain(data: bytes, max_header_bytes: int, max_header_count: int) -> Plain | None:
    head = _head(data, 0, max_header_bytes)
    if head is None:
        return None
    method, target, lines = head.groups()
    fields = _fields(lines)
    headers: dict[bytes, bytes] = {}
    for name, value in fields:
        headers[name.lower()] = value
    if len(headers) != len(fields) or len(fields) > max_header_count or not _ODD.isdisjoint(headers):
        return None
    if headers.get(b"connection", b"keep-alive").lower() != b"keep-alive":
        return None
    body = data[head.end() :]
    length = headers.get(b"content-length", b"0")
    if _length(length) is None or int(length) != len(body) or b"host" not in headers:
        return None
    return tuple.__new__(Plain, (method, target, headers, body))
