"""Codec: the older Query protocol: parameters as a flat form, answers as XML. The same actions serve it.

    Action=SendMessage&MessageBody=x&MessageAttribute.1.Name=a&MessageAttribute.1.Value.DataType=String&…

becomes what the JSON protocol would have said, and an answer becomes the XML that SDKs of the time expect.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import TypeAlias
from xml.sax.saxutils import escape

from headrace.core.errors import ErrorKind, HeadraceError
from headrace.core.units import is_digits

CONTENT_TYPE = "text/xml"
FORM = "application/x-www-form-urlencoded"
NAMESPACE = "http://queue.amazonaws.com/doc/2012-11-05/"
MAX_FIELDS = 20_000

_LISTS = {
    "AttributeName": "AttributeNames",
    "MessageAttributeName": "MessageAttributeNames",
    "MessageSystemAttributeName": "MessageSystemAttributeNames",
    "TagKey": "TagKeys",
    "AWSAccountId": "AWSAccountIds",
    "ActionName": "Actions",
    "SendMessageBatchRequestEntry": "Entries",
    "DeleteMessageBatchRequestEntry": "Entries",
    "ChangeMessageVisibilityBatchRequestEntry": "Entries",
}
_EMPTY_LISTS = {*_LISTS, *_LISTS.values()}
"""boto3 says that a list is empty by its name alone, and by the name of another day."""
_MAPS = {
    "Attribute": ("Attributes", "Name", "Value"),
    "Tag": ("Tags", "Key", "Value"),
    "MessageAttribute": ("MessageAttributes", "Name", "Value"),
    "MessageSystemAttribute": ("MessageSystemAttributes", "Name", "Value"),
}
_WITHOUT_RESULT = {
    "AddPermission", "ChangeMessageVisibility", "DeleteMessage", "DeleteQueue", "PurgeQueue", "RemovePermission",
    "SetQueueAttributes", "TagQueue", "UntagQueue",
}  # fmt: skip
_ITEM_NAMES = {"QueueUrls": "QueueUrl", "queueUrls": "QueueUrl", "Messages": "Message",
               "Failed": "BatchResultErrorEntry", "Results": "ListMessageMoveTasksResultEntry"}  # fmt: skip
_MAP_NAMES = {"Attributes": ("Attribute", "Name"), "MessageAttributes": ("MessageAttribute", "Name"),
              "Tags": ("Tag", "Key")}  # fmt: skip


Tree: TypeAlias = "dict[str, str | Tree]"


def parse_form(body: bytes) -> dict[str, object]:
    """The parameters as the JSON protocol names and shapes them; `Action` is among them."""
    if body.count(b"&") >= MAX_FIELDS:
        raise _malformed(f"A form has at most {MAX_FIELDS} fields.")
    tree: Tree = {}
    try:
        for field in body.split(b"&"):
            if field:
                name, _, value = field.partition(b"=")
                _put(tree, _plain(name).split("."), _plain(value))
    except ValueError:
        raise _malformed("The form is not readable.") from None
    return _shaped(tree, action=str(tree.get("Action", "")))


def _plain(field: bytes) -> str:
    """Without its escapes. In C, by way of Python's own: one of a megabyte may be nothing but escapes, and others wait."""
    field = field.replace(b"+", b" ")
    if b"%" in field:
        escaped = field.replace(b"\\", b"\\\\").replace(b"%", b"\\x")
        field = escaped.decode("unicode_escape").encode("latin-1")
    elif field.isascii():
        return field.decode("ascii")
    return field.decode()


def _put(tree: Tree, path: list[str], value: str) -> None:
    if len(path) > 8:
        raise _malformed("A parameter is nested too deeply.")
    for part in path[:-1]:
        below = tree.setdefault(part, {})
        if not isinstance(below, dict):
            raise _malformed(f"The parameter {path[0]} is given in two ways.")
        tree = below
    if path[-1] in tree:
        raise _malformed(f"The parameter {'.'.join(path)} is given twice.")
    tree[path[-1]] = value


def _shaped(tree: Tree, action: str) -> dict[str, object]:
    shaped: dict[str, object] = {}
    for name, value in tree.items():
        if value == "" and name in _EMPTY_LISTS:
            shaped[_LISTS.get(name, name)] = []
        elif name in _LISTS and isinstance(value, dict):
            items = _in_order(value)
            shaped[_LISTS[name]] = [
                _shaped(item, action) if isinstance(item, dict) else item for item in items
            ]
        elif name in _MAPS and isinstance(value, dict):
            wanted, key, content = _MAPS[name]
            if wanted == "Tags" and action == "CreateQueue":
                wanted = "tags"
            if wanted == "Attributes" and "Name" in value:
                value = {"1": value}  # the one attribute of an old SetQueueAttributes
            shaped[wanted] = _as_map(value, key, content)
        else:
            shaped[name] = value
    return shaped


def _as_map(numbered: Tree, key: str, content: str) -> Tree:
    found: Tree = {}
    for entry in _in_order(numbered):
        if not isinstance(entry, dict) or not isinstance(name := entry.get(key), str):
            raise _malformed(f"Each entry needs a {key}.")
        if name in found:
            raise _malformed(f"{name} is given twice.")
        found[name] = entry.get(content, "")
    return found


def _in_order(numbered: Tree) -> list[str | Tree]:
    if not all(is_digits(number) and len(number) <= 6 for number in numbered):
        raise _malformed("The entries of a list are numbered from 1.")
    return [numbered[number] for number in sorted(numbered, key=int)]


def _malformed(detail: str) -> HeadraceError:
    return HeadraceError(ErrorKind.INVALID_PARAMETER, detail)


# -- answers -----------------------------------------------------------------------------------------------------------


def encode_answer(action: str, answer: Mapping[str, object], request_id: str) -> bytes:
    result = "".join(_element(action, name, value) for name, value in answer.items())
    # SDKs of the time look for the element even where nothing is in it, and find none where AWS sends none.
    inside = "" if action in _WITHOUT_RESULT else f"<{action}Result>{result}</{action}Result>"
    text = (
        f'<?xml version="1.0"?><{action}Response xmlns="{NAMESPACE}">{inside}'
        f"<ResponseMetadata><RequestId>{escape(request_id)}</RequestId></ResponseMetadata></{action}Response>"
    )
    return text.encode()


def encode_error(code: str, fault: str, message: str, request_id: str) -> bytes:
    text = (
        f'<?xml version="1.0"?><ErrorResponse xmlns="{NAMESPACE}"><Error><Type>{fault}</Type>'
        f"<Code>{escape(code)}</Code><Message>{_text(message)}</Message><Detail/></Error>"
        f"<RequestId>{escape(request_id)}</RequestId></ErrorResponse>"
    )
    return text.encode()


def _element(action: str, name: str, value: object) -> str:
    if isinstance(value, list):
        item = _ITEM_NAMES.get(name) or f"{action}ResultEntry"
        return "".join(_element(action, item, entry) for entry in value)
    if isinstance(value, dict):
        if name in _MAP_NAMES:
            item, key = _MAP_NAMES[name]
            return "".join(
                f"<{item}><{key}>{_text(known)}</{key}>{_element(action, 'Value', inner)}</{item}>"
                for known, inner in value.items()
            )
        inside = "".join(_element(action, known, inner) for known, inner in value.items())
        return f"<{name}>{inside}</{name}>"
    if isinstance(value, bool):
        value = "true" if value else "false"
    return f"<{name}>{_text(str(value))}</{name}>"


def _text(value: str) -> str:
    # A carriage return would come back as a line feed if it were not written as a reference.
    return escape(value, {"\r": "&#xD;"})
