"""Codec: SNS filter policies (JSON) as filters, so that what people already have works here.

    {"store": ["example"], "price": [{"numeric": [">=", 100, "<", 200]}], "event": [{"anything-but": ["draft"]}]}

All names must match, any entry of a name's list may. The scope says where names are looked for: message attributes
(our headers) or the body's JSON fields, where policies nest.
"""

from __future__ import annotations

from typing import Any, Literal

import msgspec

from headrace.records.filters.compile import Filter
from headrace.records.filters.syntax import (
    MAX_DEPTH,
    MAX_LIST,
    And,
    Comparison,
    FunctionCall,
    IsNull,
    Node,
    Not,
    Or,
    Path,
    Within,
)
from headrace.records.filters.syntax import Literal as Value
from headrace.records.filters.tokens import MAX_EXPRESSION_CHARS, FilterProblem

Scope = Literal["MessageAttributes", "MessageBody"]
_NUMERIC = {"=": "==", ">": ">", ">=": ">=", "<": "<", "<=": "<="}


def compile_policy(policy: str | bytes | dict[str, Any], scope: Scope = "MessageAttributes") -> Filter:
    if not isinstance(policy, dict):
        if len(policy) > MAX_EXPRESSION_CHARS:
            raise FilterProblem(f"a filter policy has at most {MAX_EXPRESSION_CHARS} characters", 0)
        try:
            policy = msgspec.json.decode(policy)
        except (msgspec.DecodeError, RecursionError) as problem:
            raise FilterProblem(f"the filter policy is not JSON: {problem}", 0) from None
    if not isinstance(policy, dict):
        raise FilterProblem("a filter policy is a JSON object", 0)
    return Filter(msgspec.json.encode(policy).decode(), _object(policy, (), scope, 0))


def _object(policy: dict[str, Any], path: tuple[str, ...], scope: Scope, depth: int) -> Node:
    if depth > MAX_DEPTH:
        raise FilterProblem("the filter policy is nested too deeply", 0)
    if not policy:
        raise FilterProblem("a filter policy names at least one field", 0)
    parts: list[Node] = []
    for name, wanted in policy.items():
        if name == "$or":
            parts.append(_alternatives(wanted, path, scope, depth))
        elif isinstance(wanted, dict):
            if scope != "MessageBody":
                raise FilterProblem(f"{name}: only policies on the message body nest", 0)
            parts.append(_object(wanted, (*path, name), scope, depth + 1))
        elif isinstance(wanted, list) and 0 < len(wanted) <= MAX_LIST:
            place = Path("value", (*path, name)) if scope == "MessageBody" else Path("header", (name,))
            parts.append(Or(tuple(_entry(place, entry, scope) for entry in wanted)))
        else:
            raise FilterProblem(f"{name}: expected a list of values or conditions", 0)
    return And(tuple(parts))


def _alternatives(wanted: Any, path: tuple[str, ...], scope: Scope, depth: int) -> Node:
    if (
        not isinstance(wanted, list)
        or len(wanted) < 2
        or not all(isinstance(entry, dict) for entry in wanted)
    ):
        raise FilterProblem("$or takes a list of at least two objects", 0)
    return Or(tuple(_object(entry, path, scope, depth + 1) for entry in wanted))


def _entry(place: Path, entry: Any, scope: Scope) -> Node:
    if isinstance(entry, dict):
        if len(entry) != 1:
            raise FilterProblem("a condition has exactly one keyword", 0)
        ((keyword, operand),) = entry.items()
        return _condition(place, keyword, operand, scope)
    return _equals(place, entry, scope)


def _equals(place: Path, wanted: Any, scope: Scope) -> Node:
    if wanted is None:
        return IsNull(place)
    if not isinstance(wanted, (str, int, float, bool)):
        raise FilterProblem(f"{wanted!r} is not a value a policy can compare with", 0)
    texts: list[Any] = [wanted]
    if scope == "MessageAttributes" and not isinstance(wanted, str):
        # Attributes travel as text.
        texts.append(msgspec.json.encode(wanted).decode())
    # A list in the message matches when one of its entries does.
    entries = tuple(FunctionCall("among", (place, Value(text))) for text in texts)
    return Or((Within(place, tuple(texts)), *entries))


def _condition(place: Path, keyword: str, operand: Any, scope: Scope) -> Node:
    match keyword:
        case "prefix" if isinstance(operand, str):
            return FunctionCall("startswith", (place, Value(operand)))
        case "suffix" if isinstance(operand, str):
            return FunctionCall("endswith", (place, Value(operand)))
        case "equals-ignore-case" if isinstance(operand, str):
            return Comparison("==", FunctionCall("lower", (place,)), Value(operand.lower()))
        case "exists" if isinstance(operand, bool):
            return Not(IsNull(place)) if operand else IsNull(place)
        case "anything-but":
            return And((Not(IsNull(place)), Not(_anything(place, operand, scope))))
        case "numeric" if isinstance(operand, list) and operand and len(operand) % 2 == 0:
            return And(
                tuple(
                    _numeric(place, operand[at], operand[at + 1], scope) for at in range(0, len(operand), 2)
                )
            )
    raise FilterProblem(f"the condition {keyword!r} is not known, or {operand!r} does not fit it", 0)


def _anything(place: Path, operand: Any, scope: Scope) -> Node:
    if isinstance(operand, dict):
        return _entry(place, operand, scope)
    wanted = operand if isinstance(operand, list) else [operand]
    if not wanted or len(wanted) > MAX_LIST:
        raise FilterProblem("anything-but takes at least one value", 0)
    return Or(tuple(_equals(place, entry, scope) for entry in wanted))


def _numeric(place: Path, operator: Any, bound: Any, scope: Scope) -> Node:
    if operator not in _NUMERIC or isinstance(bound, bool) or not isinstance(bound, (int, float)):
        raise FilterProblem(f'numeric takes pairs such as [">=", 100], not [{operator!r}, {bound!r}]', 0)
    operand: Node = place if scope == "MessageBody" else FunctionCall("number", (place,))
    return Comparison(_NUMERIC[operator], operand, Value(bound))
