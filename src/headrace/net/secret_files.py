"""Adapter: a secret in a file of its owner's alone (A29): never in arguments, options or plans, which others can see."""

from __future__ import annotations

from pathlib import Path

from headrace.core.errors import ErrorKind, HeadraceError


def read_secret(path: str) -> str:
    """Its text without the line's end. Raises INVALID_CONFIG; what it says never has the text in it."""
    file = Path(path).expanduser()
    try:
        mode = file.stat().st_mode & 0o777
        if mode & 0o077:
            raise HeadraceError(
                ErrorKind.INVALID_CONFIG,
                f"{path} holds a secret and can be read by others (mode {mode:04o})",
                f"chmod 600 {path}",
            )
        return file.read_text().rstrip("\r\n")
    except (OSError, UnicodeDecodeError) as problem:
        words = problem.strerror if isinstance(problem, OSError) and problem.strerror else "it is no text"
        raise HeadraceError(
            ErrorKind.INVALID_CONFIG, f"{path} can't be read: {words.lower()}", "check the path"
        ) from None
