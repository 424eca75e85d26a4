"""The in-memory store against a dumb model, and its leases and history."""

from __future__ import annotations

from hypothesis import settings
from hypothesis import strategies as st
from hypothesis.stateful import RuleBasedStateMachine, initialize, invariant, rule

from headrace.coordinator.history import MAX_BATCH_EVENTS, EventHistory
from headrace.coordinator.port import Compare, Delete, DeletePrefix, Event, LeaseNotFound, Put
from headrace.coordinator.store import RevisionedStore

KEYS = ["a", "a/1", "a/2", "b/1", "b/2"]
keys = st.sampled_from(KEYS)


class StoreAgainstModel(RuleBasedStateMachine):
    """The model is a list of whole contents, one per revision, and leases as (id, expiry, keys)."""

    @initialize()
    def start(self) -> None:
        self.store = RevisionedStore(history_revisions=5)
        self.now = 0
        self.past: dict[int, dict[str, tuple[bytes, int, int, int]]] = {1: {}}
        self.leases: dict[int, int] = {}

    @property
    def contents(self) -> dict[str, tuple[bytes, int, int, int]]:
        return self.past[max(self.past)]

    def change(self, update: dict[str, tuple[bytes, int] | None]) -> None:
        revision = max(self.past) + 1
        after = dict(self.contents)
        for key, value in update.items():
            if value is None:
                after.pop(key, None)
            else:
                created = after[key][1] if key in after else revision
                after[key] = (value[0], created, revision, value[1])
        if any(value is not None or key in self.contents for key, value in update.items()):
            self.past[revision] = after

    @rule(
        puts=st.dictionaries(keys, st.binary(max_size=2), max_size=3),
        deletes=st.lists(keys, max_size=2),
        lease=st.integers(0, 3),
    )
    def txn(self, puts: dict[str, bytes], deletes: list[str], lease: int) -> None:
        operations = [Put(key, value, lease) for key, value in puts.items()]
        removals = [Delete(key) for key in deletes if key not in puts]
        try:
            result = self.store.txn([], [*operations, *removals])
        except LeaseNotFound:
            assert puts and lease not in self.leases
            return
        assert result.succeeded and (not puts or lease in self.leases or lease == 0)
        update: dict[str, tuple[bytes, int] | None] = {key: (value, lease) for key, value in puts.items()}
        self.change({**update, **{removal.key: None for removal in removals}})

    @rule(prefix=st.sampled_from(["", "a", "a/", "b/", "z"]))
    def delete_prefix(self, prefix: str) -> None:
        self.store.txn([], [DeletePrefix(prefix)])
        self.change({key: None for key in self.contents if key.startswith(prefix)})

    @rule(key=keys, revision=st.integers(0, 20))
    def compare(self, key: str, revision: int) -> None:
        truth = self.contents[key][2] if key in self.contents else 0
        assert self.store.txn([Compare.mod_revision(key, revision)], []).succeeded == (truth == revision)

    @rule(ttl_ms=st.integers(1, 50))
    def grant(self, ttl_ms: int) -> None:
        lease = self.store.grant(ttl_ms, self.now)
        assert lease.id not in self.leases
        self.leases[lease.id] = self.now + ttl_ms
        self.ttls = {**getattr(self, "ttls", {}), lease.id: ttl_ms}

    @rule(lease=st.integers(1, 3))
    def keep_alive(self, lease: int) -> None:
        expected = self.ttls[lease] if lease in self.leases else 0
        assert self.store.keep_alive(lease, self.now) == expected
        if expected:
            self.leases[lease] = self.now + expected

    @rule(step_ms=st.integers(0, 30))
    def time_passes(self, step_ms: int) -> None:
        self.now += step_ms
        self.store.expire(self.now)
        for _, lease in sorted(
            (expiry, lease) for lease, expiry in self.leases.items() if expiry <= self.now
        ):
            self.end(lease)

    @rule(lease=st.integers(1, 3))
    def revoke(self, lease: int) -> None:
        self.store.revoke(lease)
        if lease in self.leases:
            self.end(lease)

    def end(self, lease: int) -> None:
        del self.leases[lease]
        self.change({key: None for key, held in self.contents.items() if held[3] == lease})

    @invariant()
    def same_contents(self) -> None:
        snapshot = self.store.read("")
        assert snapshot.revision == max(self.past)
        assert {item.key: tuple(item)[1:] for item in snapshot.items} == self.contents
        assert [item.key for item in snapshot.items] == sorted(self.contents)
        assert self.store.next_expiry_ms() == min(self.leases.values(), default=None)

    @invariant()
    def history_leads_from_any_revision_to_now(self) -> None:
        """R3: what is not compacted away replays to the present; what is, says so."""
        latest = max(self.past)
        for start in range(1, latest + 1):
            batch = self.store.since("", start + 1)
            if batch is None:
                assert latest - start >= 5  # never less than the promised history
                continue
            replayed = dict(self.past[start])
            for event in batch.events:
                assert event.mod_revision > start
                if event.value is None:
                    replayed.pop(event.key)
                else:
                    replayed[event.key] = (
                        event.value,
                        event.create_revision,
                        event.mod_revision,
                        event.lease,
                    )
            assert replayed == self.contents


StoreAgainstModel.TestCase.settings = settings(max_examples=60, stateful_step_count=25, deadline=None)
TestStore = StoreAgainstModel.TestCase


def test_a_batch_is_bounded_and_ends_between_revisions() -> None:
    history = EventHistory(latest=0, capacity=10_000)
    for revision in range(1, 1_201):
        history.append(revision, [Event(f"k{n}", b"", 1, revision) for n in range(3)])
    batch = history.since("k", 1)
    assert batch is not None and len(batch.events) == MAX_BATCH_EVENTS + 2 and batch.revision == 334
    rest = history.since("k", 335)
    assert rest is not None and rest.events[0].mod_revision == 335
    history = EventHistory(latest=0, capacity=10_000)
    for revision in range(1, 1_001):
        history.append(revision, [Event(f"k{n}", b"", 1, revision) for n in range(2)])
    batch = history.since("k", 1)
    assert batch is not None and len(batch.events) == MAX_BATCH_EVENTS and batch.revision == 500


def test_progress_moves_the_position_without_events() -> None:
    history = EventHistory(latest=7, capacity=10)
    history.append(9, ())
    history.append(8, [Event("late", b"", 8, 8)])  # behind us: a repeat (etcd #15271)
    batch = history.since("", 8)
    assert batch is not None and batch == (9, [])


def test_a_restart_forgets_everything_even_backwards() -> None:
    history = EventHistory(latest=0, capacity=10)
    history.append(100, [Event("k", b"", 100, 100)])
    history.restart(3)
    assert history.since("", 3) is None
    history.append(4, [Event("k", b"", 4, 4)])
    batch = history.since("", 4)
    assert batch is not None and [event.mod_revision for event in batch.events] == [4]


def test_listeners_hear_changes_until_they_stop() -> None:
    store = RevisionedStore()
    heard = []
    stop = store.on_change(lambda: heard.append(store.revision))
    store.txn([], [Put("a", b"")])
    store.txn([], [Delete("absent")])
    stop()
    store.txn([], [Put("a", b"")])
    assert heard == [2]
