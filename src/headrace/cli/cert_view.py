"""Command: certificates as commands show them."""

from __future__ import annotations

from pathlib import Path
from typing import ClassVar

from headrace.cli.failure import Exit, Failure
from headrace.cli.output import Row
from headrace.security.certificates import Pair, show


class CertRow(Row):
    SCHEMA: ClassVar[str] = "headrace.cert/v1"
    NAME: ClassVar[str] = "file"
    file: str
    subject: str
    issuer: str
    names: list[str]
    not_before_ms: int
    not_after_ms: int
    is_authority: bool
    serial: str


def cert_row(path: Path) -> CertRow:
    try:
        found = show(path)
    except (OSError, ValueError) as problem:
        raise Failure(
            Exit.USAGE, f"{path}: {getattr(problem, 'strerror', None) or problem}".lower()
        ) from None
    return CertRow(
        file=str(path),
        subject=found.subject,
        issuer=found.issuer,
        names=list(found.names),
        not_before_ms=found.not_before_ms,
        not_after_ms=found.not_after_ms,
        is_authority=found.is_authority,
        serial=found.serial,
    )


def shown(row: CertRow) -> str:
    from datetime import UTC, datetime

    def day(ms: int) -> str:
        return datetime.fromtimestamp(ms / 1000, UTC).strftime("%Y-%m-%d %H:%M UTC")

    lines = [
        f"file     {row.file}",
        f"subject  {row.subject}" + ("   (an authority)" if row.is_authority else ""),
        f"issuer   {row.issuer}",
        f"valid    {day(row.not_before_ms)} to {day(row.not_after_ms)}",
    ]
    return "\n".join([*lines, f"names    {', '.join(row.names)}"] if row.names else lines)


def key_of(certificate: Path) -> Path:
    return certificate.with_suffix(".key")


def need_absent(pair: Pair) -> None:
    for path in pair:
        if path.exists():
            raise Failure(
                Exit.CONFLICT, f"{path} is there already", "choose another name with --out, or `cert renew`"
            )
