"""Codec: a filter as people write it: an expression, or an SNS filter policy in JSON.

    tag == "eu" and value.amount > 100
    {"store": ["example"], "price": [{"numeric": [">=", 100]}]}          names are attributes (headers)
    body {"price": [{"numeric": [">=", 100]}]}                           names are fields of the JSON value

Whoever takes a filter takes all three; the text is kept as it was written.
"""

from __future__ import annotations

from headrace.records.filters.compile import Filter, compile_expression
from headrace.records.filters.policy import compile_policy

_BODY = "body"


def compile_filter(text: str) -> Filter:
    """Raises FilterProblem, whose `pointed()` shows a person where."""
    stripped = text.strip()
    in_body = stripped.startswith(_BODY) and stripped[len(_BODY) :].lstrip().startswith("{")
    if not in_body and not stripped.startswith("{"):
        return compile_expression(text)
    if in_body:
        wanted = compile_policy(stripped[len(_BODY) :].lstrip(), "MessageBody")
    else:
        wanted = compile_policy(stripped, "MessageAttributes")
    wanted.expression = text
    return wanted
