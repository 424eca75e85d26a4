"""Codec: an SQS message as a record, and a record as an SQS message (Q6: one log, two protocols).

The body is the value. A message attribute is a header of the same name; its type, when it is not String, is kept in one
header of ours. So kcat sees `a=1`, and what kcat sends with `-H a=1` is an attribute here.
"""

from __future__ import annotations

import re
from base64 import b64encode
from collections.abc import Mapping

import msgspec

from headrace.broker.queueing import names
from headrace.core.errors import ErrorKind, HeadraceError
from headrace.http.sqs.call import invalid
from headrace.http.sqs.checksums import Attribute, binary_value
from headrace.records.build import Headers, Record

MAX_ATTRIBUTES = 10
_NAME = re.compile(r"[A-Za-z0-9_.-]{1,256}")
_TYPES = ("String", "Number", "Binary")
_NUMBER = re.compile(r"[+-]?([0-9]++(\.[0-9]*+)?|\.[0-9]++)([eE][+-]?[0-9]++)?")
find_bad_character = re.compile("[^\t\n\r\u0020-\ud7ff\ue000-\ufffd\U00010000-\U0010ffff]").search


def check_body(body: str) -> None:
    if not body:
        raise HeadraceError(
            ErrorKind.MISSING_PARAMETER, "The request must contain the parameter MessageBody."
        )
    if find_bad_character(body):
        raise HeadraceError(
            ErrorKind.INVALID_MESSAGE_CONTENTS, "Invalid characters found. Valid unicode characters are #x9 | #xA | #xD | "
            "#x20 to #xD7FF | #xE000 to #xFFFD | #x10000 to #x10FFFF",
        )  # fmt: skip


def check_attributes(attributes: Mapping[str, Attribute]) -> None:
    if len(attributes) > MAX_ATTRIBUTES:
        raise invalid(
            f"Number of message attributes [{len(attributes)}] exceeds the allowed maximum [{MAX_ATTRIBUTES}]."
        )
    for name, attribute in attributes.items():
        lowered = name.lower()
        if (
            not _NAME.fullmatch(name)
            or lowered.startswith(("aws.", "amazon.", names.OWN_PREFIX))
            or ".." in name
        ):
            raise invalid(f"Message (user) attribute name '{name}' is invalid.")
        if not isinstance(attribute, dict) or not isinstance(attribute.get("DataType"), str):
            raise invalid(f"The message attribute '{name}' must contain a non-empty message attribute type.")
        kind = attribute["DataType"].split(".")[0]
        if kind not in _TYPES:
            raise invalid(f"The message attribute '{name}' has an invalid message attribute type.")
        if kind == "Binary":
            if not binary_value(attribute):
                raise invalid(
                    f"The message attribute '{name}' must contain a non-empty message attribute value."
                )
            continue
        value = attribute.get("StringValue")
        if not isinstance(value, str) or not value:
            raise invalid(f"The message attribute '{name}' must contain a non-empty message attribute value.")
        if kind == "Number" and not _NUMBER.fullmatch(value):
            raise invalid(f"Can't cast the value of message (user) attribute '{name}' to a number.")


def attribute_bytes(attributes: Mapping[str, Attribute]) -> int:
    """Names, types and values count towards the size of a message."""
    total = 0
    for name, attribute in attributes.items():
        kind = attribute["DataType"]
        value = binary_value(attribute) if kind.startswith("Binary") else attribute["StringValue"].encode()
        total += len(name.encode()) + len(kind) + len(value)
    return total


def to_headers(attributes: Mapping[str, Attribute], special: dict[str, str]) -> Headers:
    headers: list[tuple[str, bytes | None]] = []
    types: dict[str, str] = {}
    for name, attribute in attributes.items():
        kind = attribute["DataType"]
        value = binary_value(attribute) if kind.startswith("Binary") else attribute["StringValue"].encode()
        headers.append((name, value))
        if kind != "String":
            types[name] = kind
    if types:
        headers.append((names.ATTRIBUTE_TYPES, msgspec.json.encode(types)))
    headers += [(name, value.encode()) for name, value in special.items()]
    return tuple(headers)


def body_of(record: Record) -> tuple[str, bytes]:
    """The body and the bytes that its checksum is of. Anything a Kafka client sent is shown; bytes that are no text come as
    base64, and an attribute says so."""
    value = record.value or b""
    try:
        return value.decode(), value
    except UnicodeDecodeError:
        encoded = b64encode(value)
        return encoded.decode(), encoded


def is_text(value: bytes | None) -> bool:
    try:
        (value or b"").decode()
    except UnicodeDecodeError:
        return False
    return True


def from_headers(record: Record) -> dict[str, dict[str, str]]:
    """The message attributes a record carries."""
    raw = names.header(record.headers, names.ATTRIBUTE_TYPES)
    types: dict[str, str] = {}
    if raw is not None:
        try:
            types = msgspec.json.decode(raw, type=dict[str, str])
        except msgspec.DecodeError:
            types = {}
    found: dict[str, dict[str, str]] = {}
    for name, value in record.headers:
        if name.startswith(names.OWN_PREFIX) or value is None or not _NAME.fullmatch(name):
            continue
        kind = types.get(name, "String" if is_text(value) else "Binary")
        if kind.startswith("Binary"):
            found[name] = {"DataType": kind, "BinaryValue": b64encode(value).decode()}
        elif is_text(value):
            found[name] = {"DataType": kind, "StringValue": value.decode()}
    if not is_text(record.value):
        found["headrace.encoding"] = {"DataType": "String", "StringValue": "base64"}
    return found
