"""Command: why something is behind, as the commands of groups and queues print it."""

from __future__ import annotations

import msgspec

from headrace.cli.output import printable


class Cause(msgspec.Struct):
    cause: str
    sentence: str
    evidence: str
    next_step: str
    command: str
    since: str | None


def told(head: str, sentence: str, findings: list[Cause]) -> str:
    """Numbered, the most telling first; nothing found is said so."""
    lines = [f"{head} {'' if findings else sentence}".rstrip()]
    for number, cause in enumerate(findings, 1):
        since = f"   since {cause.since}" if cause.since else ""
        lines += [f"{number}  {cause.sentence}", f"   {cause.evidence}{since}", f"   {cause.next_step}"]
        lines += [f"   {cause.command}"] if cause.command else []
    return "\n".join(map(printable, lines))
