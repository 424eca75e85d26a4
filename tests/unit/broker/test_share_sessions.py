"""Share sessions (KIP-932): epochs in order, bound to a connection, bounded in number."""

from __future__ import annotations

from headrace.broker.share_sessions import FINAL, MAX_SESSIONS, OPEN, ShareSessions, Turn
from headrace.core.errors import ErrorKind

OWNER = ("g", "m")
A, B = (b"a" * 16, 0), (b"b" * 16, 1)


def begin(
    sessions: ShareSessions, epoch: int, added: tuple = (), forgotten: tuple = (), connection: int = 1
) -> object:
    return sessions.begin(OWNER, epoch, connection, added, forgotten)


def test_partitions_are_remembered() -> None:
    sessions = ShareSessions()
    opened = begin(sessions, OPEN, (A,))
    assert isinstance(opened, Turn) and opened.is_new and opened.session is not None
    begin(sessions, 1, (B,))
    assert list(opened.session.partitions) == [A, B]
    begin(sessions, 2, (), (A,))
    assert list(opened.session.partitions) == [B]


def test_epochs_come_in_order() -> None:
    sessions = ShareSessions()
    assert begin(sessions, 1) is ErrorKind.SHARE_SESSION_NOT_FOUND
    begin(sessions, OPEN)
    assert begin(sessions, 2) is ErrorKind.INVALID_SHARE_SESSION_EPOCH
    assert isinstance(begin(sessions, 1), Turn)
    assert begin(sessions, 1) is ErrorKind.INVALID_SHARE_SESSION_EPOCH


def test_the_final_epoch_ends_it() -> None:
    sessions = ShareSessions()
    begin(sessions, OPEN)
    assert begin(sessions, FINAL) == Turn(None)
    assert begin(sessions, FINAL) is ErrorKind.SHARE_SESSION_NOT_FOUND


def test_a_connection_takes_its_sessions_along() -> None:
    sessions = ShareSessions()
    begin(sessions, OPEN, connection=7)
    sessions.begin(("g", "other"), OPEN, 8, (), ())
    assert sessions.connection_closed(7) == [OWNER]
    assert sessions.connection_closed(7) == []
    assert len(sessions) == 1


def test_who_gave_goes_to_the_end() -> None:
    sessions = ShareSessions()
    opened = begin(sessions, OPEN, (A, B))
    assert isinstance(opened, Turn) and opened.session is not None
    opened.session.rotate([A])
    assert list(opened.session.partitions) == [B, A]


def test_sessions_are_bounded() -> None:
    sessions = ShareSessions()
    for number in range(MAX_SESSIONS):
        sessions.begin(("g", str(number)), OPEN, 1, (), ())
    assert begin(sessions, OPEN) is ErrorKind.SHARE_SESSION_LIMIT_REACHED
    assert isinstance(sessions.begin(("g", "5"), OPEN, 1, (), ()), Turn), "one that is there may open again"
