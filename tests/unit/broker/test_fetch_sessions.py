"""KIP-227: what a session remembers, forgets and refuses."""

from __future__ import annotations

from typing import NamedTuple

import pytest

from headrace.broker.fetch_sessions import (
    FINAL_EPOCH,
    INITIAL_EPOCH,
    MIN_EVICTION_AGE_MS,
    FetchSessions,
    OpenedSession,
    SessionPartition,
)
from headrace.core.errors import ErrorKind
from headrace.core.ids import ZERO_UUID


class Told(NamedTuple):
    high_watermark: int
    last_stable_offset: int = 0
    log_start_offset: int = 0


def want(partition: int, offset: int = 0, topic: str = "t", topic_id: bytes = ZERO_UUID) -> SessionPartition:
    entry = SessionPartition(topic, topic_id, partition)
    entry.fetch_offset, entry.max_bytes = offset, 100
    return entry


def begin(
    sessions: FetchSessions, *wanted: SessionPartition, new_id: int = 7, now_ms: int = 0
) -> OpenedSession:
    opened = sessions.open(0, INITIAL_EPOCH, False, list(wanted), [], new_id, now_ms)
    assert isinstance(opened, OpenedSession)
    return opened


def go_on(
    sessions: FetchSessions,
    epoch: int,
    *wanted: SessionPartition,
    forget: tuple[int, ...] = (),
    now_ms: int = 0,
) -> OpenedSession:
    opened = sessions.open(7, epoch, False, list(wanted), [("t", number) for number in forget], 99, now_ms)
    assert isinstance(opened, OpenedSession), opened
    return opened


def test_a_session_begins_full_and_goes_on_incrementally() -> None:
    sessions = FetchSessions()
    first = begin(sessions, want(0), want(1))
    assert (first.session_id, first.incremental, len(first.wanted)) == (7, False, 2)
    second = go_on(sessions, 1)
    assert second.incremental and [entry.partition for entry in second.wanted] == [0, 1]
    third = go_on(sessions, 2, want(1, offset=5), want(2))
    assert [(entry.partition, entry.fetch_offset) for entry in third.wanted] == [(0, 0), (1, 5), (2, 0)]
    fourth = go_on(sessions, 3, forget=(0, 2))
    assert [entry.partition for entry in fourth.wanted] == [1]


@pytest.mark.parametrize(
    ("session_id", "epoch", "by_id", "expected"),
    [
        (8, 1, False, ErrorKind.FETCH_SESSION_ID_NOT_FOUND),
        (7, 2, False, ErrorKind.INVALID_FETCH_SESSION_EPOCH),
        (7, 5, False, ErrorKind.INVALID_FETCH_SESSION_EPOCH),
        (7, 1, True, ErrorKind.FETCH_SESSION_TOPIC_ID_ERROR),
    ],
)
def test_what_does_not_fit_is_refused_and_changes_nothing(
    session_id: int, epoch: int, by_id: bool, expected: ErrorKind
) -> None:
    sessions = FetchSessions()
    begin(sessions, want(0))
    assert sessions.open(session_id, epoch, by_id, [], [], 99, 0) is expected
    assert len(go_on(sessions, 1).wanted) == 1


def test_a_repeated_epoch_is_refused() -> None:
    sessions = FetchSessions()
    begin(sessions, want(0))
    go_on(sessions, 1)
    assert sessions.open(7, 1, False, [], [], 99, 0) is ErrorKind.INVALID_FETCH_SESSION_EPOCH


def test_the_final_epoch_ends_the_session_and_still_answers() -> None:
    sessions = FetchSessions()
    begin(sessions, want(0))
    ended = sessions.open(7, FINAL_EPOCH, False, [want(3)], [], 99, 0)
    assert (
        isinstance(ended, OpenedSession)
        and ended.session_id == 0
        and [entry.partition for entry in ended.wanted] == [3]
    )
    assert len(sessions) == 0


def test_a_new_start_replaces_the_old_session() -> None:
    sessions = FetchSessions()
    begin(sessions, want(0))
    assert isinstance(sessions.open(7, INITIAL_EPOCH, False, [want(1)], [], 8, 0), OpenedSession)
    assert len(sessions) == 1


def test_epochs_wrap_to_one() -> None:
    sessions = FetchSessions()
    opened = begin(sessions, want(0))
    assert opened.session is not None
    opened.session.epoch = 2**31 - 1
    go_on(sessions, 2**31 - 1)
    go_on(sessions, 1)


def test_an_empty_fetch_makes_no_session() -> None:
    sessions = FetchSessions()
    assert begin(sessions).session_id == 0 and len(sessions) == 0


def test_sessions_are_bounded_and_the_one_unused_for_longest_goes_first() -> None:
    sessions = FetchSessions(limit=2)
    begin(sessions, want(0), new_id=7, now_ms=0)
    begin(sessions, want(0), new_id=8, now_ms=10)
    assert begin(sessions, want(0), new_id=9, now_ms=20).session_id == 0, (
        "nobody is old enough: answered without one"
    )
    late_ms = MIN_EVICTION_AGE_MS + 5
    assert begin(sessions, want(0), new_id=9, now_ms=late_ms).session_id == 9
    assert sessions.open(7, 1, False, [], [], 1, late_ms) is ErrorKind.FETCH_SESSION_ID_NOT_FOUND
    assert isinstance(sessions.open(8, 1, False, [], [], 1, late_ms), OpenedSession)


def test_news_is_what_was_not_said_before() -> None:
    """Trap 12: a partition is in an incremental answer only when something about it changed."""
    entry = want(0)
    assert entry.has_news(Told(0))
    entry.told(Told(5))
    assert not entry.has_news(Told(5))
    assert entry.has_news(Told(6)) and entry.has_news(Told(5, 1)) and entry.has_news(Told(5, 0, 1))


def test_partitions_that_gave_data_go_to_the_back() -> None:
    """A byte limit that the first partition uses up must not starve the others for ever."""
    sessions = FetchSessions()
    opened = begin(sessions, want(0), want(1), want(2))
    assert opened.session is not None
    FetchSessions.answered(opened.session, [("t", 0)])
    assert [entry.partition for entry in go_on(sessions, 1).wanted] == [1, 2, 0]


def test_topics_are_told_apart_by_id_when_the_client_speaks_ids() -> None:
    """KIP-516: a topic that was made again under the same name is another one."""
    sessions = FetchSessions()
    old, new = want(0, topic_id=b"\x01" * 16), want(0, topic_id=b"\x02" * 16)
    assert isinstance(sessions.open(0, INITIAL_EPOCH, True, [old], [], 7, 0), OpenedSession)
    opened = sessions.open(7, 1, True, [new], [(b"\x01" * 16, 0)], 9, 0)
    assert isinstance(opened, OpenedSession) and [entry.topic_id for entry in opened.wanted] == [b"\x02" * 16]


def test_partitions_of_all_sessions_are_counted_f21() -> None:
    """A4: over the limit the one unused for longest goes, once it is old; until then newcomers have none."""
    sessions = FetchSessions(partition_limit=3)
    assert begin(sessions, want(0), want(1), new_id=1).session_id == 1
    assert begin(sessions, want(0), want(1), new_id=2).session_id == 0
    assert sessions.partitions == 2
    assert begin(sessions, want(0), want(1), new_id=3, now_ms=MIN_EVICTION_AGE_MS).session_id == 3
    assert sessions.partitions == 2 and len(sessions) == 1
    grown = sessions.open(3, 1, False, [want(2), want(3)], [], 9, MIN_EVICTION_AGE_MS)
    assert grown is ErrorKind.FETCH_SESSION_ID_NOT_FOUND and sessions.partitions == 0


def test_a_connection_has_one_session_f21() -> None:
    sessions = FetchSessions()
    for new_id in (1, 2):
        sessions.open(0, INITIAL_EPOCH, False, [want(0)], [], new_id, 0, 5)
    assert len(sessions) == 1
    sessions.connection_closed(5)
    assert (len(sessions), sessions.partitions) == (0, 0)
    assert sessions.open(2, 1, False, [], [], 9, 0) is ErrorKind.FETCH_SESSION_ID_NOT_FOUND
