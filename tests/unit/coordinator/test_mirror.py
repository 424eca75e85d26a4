"""R3: a mirror fed by a watch that repeats, looks back and resyncs is never wrong for long, and never goes back."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st
from mirror import Mirror

from headrace.coordinator.port import Delete, Event, KeyValue, Put, Resync, Snapshot, WatchBatch
from headrace.coordinator.store import RevisionedStore

changes = st.lists(st.tuples(st.sampled_from("abc"), st.booleans()), min_size=1, max_size=12)


@given(changes, st.data())
def test_r3_repeats_and_replays_change_nothing(history: list[tuple[str, bool]], data: st.DataObject) -> None:
    store = RevisionedStore()
    snapshots = [store.read("")]
    for key, is_put in history:
        store.txn([], [Put(key, str(store.revision).encode()) if is_put else Delete(key)])
        snapshots.append(store.read(""))
    batch = store.since("", 2)
    assert batch is not None
    batches = [WatchBatch(event.mod_revision, [event]) for event in batch.events]

    mirror = Mirror()
    held: dict[str, int] = {}
    for index, update in enumerate(batches):
        hostile: list[WatchBatch | Resync] = [update]
        hostile += data.draw(st.lists(st.sampled_from(batches[: index + 1]), max_size=2))
        if data.draw(st.integers(0, 5)) == 0:
            # Dropped behind a compaction; the snapshot is taken later than what was dropped.
            later = [one for one in snapshots if one.revision >= update.revision]
            hostile[0] = Resync(data.draw(st.sampled_from(later)))
        for one in hostile:
            mirror.apply(one)
            for key, item in mirror.items.items():
                assert item.mod_revision >= held.get(key, 0)
                held[key] = item.mod_revision
    assert mirror.items == {item.key: item for item in store.read("").items}


@given(changes)
def test_only_real_changes_are_told(history: list[tuple[str, bool]]) -> None:
    """Whoever replays what `apply` returns has the same contents."""
    store = RevisionedStore()
    mirror = Mirror()
    copy: dict[str, bytes] = {}
    for number, (key, is_put) in enumerate(history):
        before = store.revision
        store.txn([], [Put(key, b"v") if is_put else Delete(key)])
        batch = store.since("", before + 1)
        assert batch is not None
        told = mirror.apply(Resync(store.read("")) if number % 3 == 2 else batch)
        assert mirror.apply(batch) == []
        for event in told:
            if event.value is None:
                del copy[event.key]
            else:
                copy[event.key] = event.value
        assert copy == {item.key: item.value for item in store.read("").items}
        assert mirror.revision == store.revision


def test_a_late_put_does_not_undo_a_deletion() -> None:
    mirror = Mirror()
    put = WatchBatch(5, [Event("k", b"", 5, 5)])
    mirror.apply(put)
    mirror.apply(WatchBatch(6, [Event("k", None, 0, 6)]))
    assert mirror.apply(put) == [] and mirror.items == {}
    mirror.apply(Resync(Snapshot(9, [])))
    assert mirror.apply(put) == [] and mirror.items == {}


def test_an_older_snapshot_does_not_undo_newer_events() -> None:
    """A full read that was overtaken by the watch."""
    mirror = Mirror()
    mirror.apply(WatchBatch(12, [Event("new", b"n", 11, 11), Event("old", None, 0, 12)]))
    told = mirror.apply(Resync(Snapshot(10, [KeyValue("old", b"o", 3, 3), KeyValue("other", b"x", 4, 4)])))
    assert [event.key for event in told] == ["other"]
    assert mirror.items.keys() == {"new", "other"}


def test_a_restored_store_replaces_everything() -> None:
    """An older full read that was overtaken is ignored; one after a restore is all there is."""
    mirror = Mirror()
    mirror.apply(Resync(Snapshot(100, [KeyValue("a", b"1", 90, 90), KeyValue("b", b"1", 90, 90)])))
    older = Snapshot(50, [KeyValue("a", b"0", 40, 40), KeyValue("c", b"0", 40, 40)])
    assert mirror.apply(Resync(older)) == []  # overtaken by the later read, says nothing
    told = mirror.apply(Resync(Snapshot(50, [KeyValue("a", b"0", 40, 40)]), restored=True))
    assert {event.key: event.value for event in told} == {"a": b"0", "b": None}
    assert mirror.apply(WatchBatch(51, [Event("a", b"2", 40, 51)])) != []
