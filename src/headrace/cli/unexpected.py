"""Command: exceptions that no command caught, as failures. Only imported when something went wrong."""

from __future__ import annotations

import sys

from headrace.cli.failure import Exit, Failure, failure_of
from headrace.core.errors import HeadraceError


def failure_from(error: Exception) -> Failure:
    if isinstance(error, HeadraceError):
        return failure_of(error)
    kafka = sys.modules.get("confluent_kafka")
    if kafka is not None and isinstance(error, kafka.KafkaException):
        from headrace.client.errors import headrace_error

        return failure_of(headrace_error(error.args[0]))
    if isinstance(error, PermissionError):
        return Failure(Exit.DENIED, _os_words(error), "check who owns it, and who you are")
    if isinstance(error, FileNotFoundError):
        return Failure(Exit.NOT_FOUND, _os_words(error))
    if isinstance(error, OSError):
        return Failure(Exit.FAILED, _os_words(error))
    return Failure(
        Exit.BUG,
        f"internal error: {type(error).__name__}: {error}",
        "this is a bug in headrace; run the same command with -v at its end, and report what it prints",
    )


def _os_words(error: OSError) -> str:
    words = (error.strerror or str(error)).lower()
    return f"{error.filename}: {words}" if error.filename else words
