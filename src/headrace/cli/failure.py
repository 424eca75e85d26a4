"""Command: how a command fails: what happened, why, what to do, and one exit code out of a stated list.

0 ok · 1 the operation failed · 2 usage · 3 not found · 4 cannot connect, or the port is taken · 5 not allowed ·
6 conflict or precondition · 7 timeout · 8 partial failure · 70 a bug · 130 interrupted
"""

from __future__ import annotations

from collections.abc import Iterable
from enum import IntEnum

from headrace.core.errors import ErrorKind, HeadraceError


class Exit(IntEnum):
    OK = 0
    FAILED = 1
    USAGE = 2
    NOT_FOUND = 3
    UNREACHABLE = 4
    DENIED = 5
    CONFLICT = 6
    TIMEOUT = 7
    PARTIAL = 8
    BUG = 70
    INTERRUPTED = 130


class Failure(Exception):
    """Ends the command with `exit`. `what` is one line without a full stop; `hint` is a command or an action."""

    def __init__(self, exit: Exit, what: str, hint: str = "", *, code: str = "") -> None:
        super().__init__(what)
        self.exit = exit
        self.what = what
        self.hint = hint
        self.code = code or exit.name
        """For programs: the name of the error, as in core.errors where it came from a broker."""


_EXITS = {
    Exit.NOT_FOUND: (
        ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
        ErrorKind.UNKNOWN_TOPIC_ID,
        ErrorKind.GROUP_ID_NOT_FOUND,
        ErrorKind.RESOURCE_NOT_FOUND,
        ErrorKind.QUEUE_DOES_NOT_EXIST,
        ErrorKind.SUBSCRIPTION_NOT_FOUND,
        ErrorKind.SCHEDULE_NOT_FOUND,
        ErrorKind.NOT_FOUND,
    ),
    Exit.UNREACHABLE: (ErrorKind.BROKER_NOT_AVAILABLE, ErrorKind.NETWORK_EXCEPTION),
    Exit.DENIED: (
        ErrorKind.TOPIC_AUTHORIZATION_FAILED,
        ErrorKind.GROUP_AUTHORIZATION_FAILED,
        ErrorKind.CLUSTER_AUTHORIZATION_FAILED,
        ErrorKind.TRANSACTIONAL_ID_AUTHORIZATION_FAILED,
        ErrorKind.SASL_AUTHENTICATION_FAILED,
        ErrorKind.ACCESS_DENIED,
    ),
    Exit.CONFLICT: (
        ErrorKind.TOPIC_ALREADY_EXISTS,
        ErrorKind.NON_EMPTY_GROUP,
        ErrorKind.GROUP_SUBSCRIBED_TO_TOPIC,
        ErrorKind.UNKNOWN_MEMBER_ID,
        ErrorKind.REASSIGNMENT_IN_PROGRESS,
        ErrorKind.DUPLICATE_BROKER_REGISTRATION,
        ErrorKind.INCONSISTENT_CLUSTER_ID,
        ErrorKind.QUEUE_ALREADY_EXISTS,
        ErrorKind.CONFLICT,
    ),
    Exit.TIMEOUT: (ErrorKind.REQUEST_TIMED_OUT,),
    Exit.USAGE: (
        ErrorKind.INVALID_TOPIC_EXCEPTION,
        ErrorKind.INVALID_CONFIG,
        ErrorKind.INVALID_PARTITIONS,
        ErrorKind.INVALID_REPLICATION_FACTOR,
        ErrorKind.INVALID_GROUP_ID,
        ErrorKind.INVALID_PARAMETER,
        ErrorKind.INVALID_REQUEST,
        ErrorKind.INVALID_FILTER,
    ),
}
_EXIT_OF = {kind: code for code, kinds in _EXITS.items() for kind in kinds}


def exit_of(kind: ErrorKind) -> Exit:
    return _EXIT_OF.get(kind, Exit.FAILED)


def failure_of(error: HeadraceError, subject: str = "") -> Failure:
    """A broker's refusal as a failure of this command; `subject` (`topic "orders"`) says what it was about."""
    name = subject.rpartition(" ")[2].strip('"')
    what = f"{subject}: {error.detail}" if subject and name not in error.detail else error.detail
    hint = "" if error.hint.lower() in error.detail.lower() else error.hint
    return Failure(exit_of(error.kind), what, hint, code=error.kind.name)


def exit_of_many(failures: Iterable[Failure], succeeded: int) -> Exit:
    """Of a command over several things: partial when some worked, the common code when all failed alike."""
    codes = {failure.exit for failure in failures}
    if not codes:
        return Exit.OK
    if succeeded:
        return Exit.PARTIAL
    return codes.pop() if len(codes) == 1 else Exit.FAILED


def did_you_mean(name: str, known: Iterable[str]) -> str:
    """`did you mean "order"?`, or nothing when nothing is close."""
    import difflib

    found = difflib.get_close_matches(name, list(known), 1, cutoff=0.6)
    return f'did you mean "{found[0]}"?' if found else ""
