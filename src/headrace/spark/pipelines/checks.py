"""Machine: what can be known about a definition before anything runs. Each check returns what is wrong, as a person would say it."""

from __future__ import annotations

import re
from collections.abc import Iterable
from datetime import datetime

from headrace.core.calendar import next_tick_ms
from headrace.core.errors import HeadraceError
from headrace.records.filters import FilterProblem, compile_filter

_TOPIC = re.compile(r"[a-zA-Z0-9._-]{1,249}")
_INTERVAL = re.compile(
    r"(\s*\d+(\.\d+)?\s+(microsecond|millisecond|second|minute|hour|day|week)s?)+\s*", re.IGNORECASE
)
_ADDRESS = re.compile(r"(\[[0-9a-fA-F:.]+\]|[^\s:,\[\]]+):\d{1,5}")
_MASTER = re.compile(r"local(\[[0-9*]+(,\s*\d+)?\])?|spark://\S+|sc://\S+|k8s://\S+|yarn")
_FIELD = re.compile(r"\s*(`[^`]+`|[A-Za-z_]\w*)\s*(:|\s)\s*[A-Za-z]\w*.*", re.DOTALL)
_STARTS = ("select", "with", "from", "values", "(")


def not_of(key: str, value: str, choices: tuple[str, ...]) -> list[str]:
    return (
        []
        if value in choices
        else [f'{key} = "{value}": one of {", ".join(one or chr(34) * 2 for one in choices)}']
    )


def topic_names(key: str, names: Iterable[str]) -> list[str]:
    names = list(names)
    found = [f'{key}: "{name}" is no name of a topic' for name in names if not _TOPIC.fullmatch(name)]
    return found + ([f"{key} names a topic twice"] if len(set(names)) < len(names) else [])


def pattern(text: str) -> list[str]:
    try:
        re.compile(text)
    except re.error as problem:
        return [f'pattern = "{text}" is no regular expression: {problem}']
    return []


def no_loop(sources: Iterable[str], targets: Iterable[str]) -> list[str]:
    """A pipeline that reads what it writes never ends, and grows."""
    both = sorted(set(sources) & {target for target in targets if target})
    return [f"{', '.join(both)} is read and written: the pipeline would feed itself"] if both else []


def addresses(key: str, text: str) -> list[str]:
    wrong = [one for one in text.split(",") if not _ADDRESS.fullmatch(one.strip())]
    return [f'{key} = "{text}": write host:port, several with commas'] if wrong else []


def master(text: str) -> list[str]:
    if _MASTER.fullmatch(text):
        return []
    return [f'spark.master = "{text}": local[N], spark://host:7077, sc://host:15002, k8s://… or yarn']


def interval(key: str, text: str) -> list[str]:
    return [] if _INTERVAL.fullmatch(text) else [f'{key} = "{text}": write 1 minute, 30 seconds, 2 hours']


def at_least(smallest: int, **numbers: int) -> list[str]:
    return [f"{key} = {value}: {smallest} at least" for key, value in numbers.items() if value < smallest]


def moment(key: str, text: str) -> list[str]:
    try:
        if text:
            datetime.fromisoformat(text)
    except ValueError:
        return [f'{key} = "{text}": write a time like 2026-01-31T12:00:00Z']
    return []


def cron(text: str) -> list[str]:
    try:
        if text:
            next_tick_ms(text, 0)
    except HeadraceError:
        return [f'cron = "{text}": write minute hour day month weekday, as in 0 3 * * *']
    return []


def starting(text: str) -> list[str]:
    if text.lower() in ("earliest", "latest") or text.lstrip().startswith("{"):
        return []
    return [f'starting = "{text}": earliest, latest, or offsets as JSON']


def local_directory(key: str, text: str) -> list[str]:
    if "://" in text or re.match(r"[a-z0-9]+:/", text):
        return [
            f'{key} = "{text}": a directory is needed, and this names another kind of store; tables go there'
        ]
    return []


def python_name(text: str) -> list[str]:
    if not text or re.fullmatch(r"[A-Za-z_][\w.]*:[A-Za-z_]\w*", text):
        return []
    return [f'python = "{text}": written like module:function']


def filter_text(text: str) -> list[str]:
    try:
        if text:
            compile_filter(text)
    except FilterProblem as problem:
        return [f"filter: {problem}"]
    return []


def schema(key: str, text: str) -> list[str]:
    """DDL as in `id bigint, tags array<string>`: by its form; whether Spark knows the types is Spark's to say."""
    if not text:
        return []
    wrong = [one.strip() for one in _parts(text) if not _FIELD.fullmatch(one)]
    if wrong or not _is_balanced(text, "<>()"):
        return [f'{key} = "{text}": write name type, as in id bigint, tags array<string>']
    return []


def sql(key: str, text: str, *, expression: bool = False) -> list[str]:
    """By structure: quotes and parentheses close, and a query begins like one. Spark's parser says the rest when it runs."""
    if not text and not expression:
        return []
    words = text.strip().lower()
    if not words or not _is_balanced(text, "()[]"):
        return [f'{key} = "{text}" is no SQL: quotes or parentheses do not close']
    if not expression and not words.startswith(_STARTS):
        return [f'{key} = "{text}" is no query: it begins with select or with']
    if not expression and not re.search(r"\bsource\b", words):
        return [f"{key} does not read the view source"]
    return []


def _parts(text: str) -> list[str]:
    parts, depth, start = [], 0, 0
    for at, char in enumerate(text):
        depth += (char in "<(") - (char in ">)")
        if char == "," and depth == 0:
            parts.append(text[start:at])
            start = at + 1
    return [*parts, text[start:]]


def _is_balanced(text: str, brackets: str) -> bool:
    """Outside of quotes and comments."""
    plain = re.sub(
        r"'(?:[^'\\]|\\.|'')*'|\"(?:[^\"\\]|\\.)*\"|`[^`]*`|--[^\n]*|/\*.*?\*/", "", text, flags=re.DOTALL
    )
    if any(quote in plain for quote in "'\"`"):
        return False
    closing = {brackets[at + 1]: brackets[at] for at in range(0, len(brackets), 2)}
    stack: list[str] = []
    for char in plain:
        if char in closing.values():
            stack.append(char)
        elif char in closing and (not stack or stack.pop() != closing[char]):
            return False
    return not stack
