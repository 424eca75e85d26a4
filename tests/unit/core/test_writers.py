"""Who writes where: rates that forget, a bound that holds, and one that was silent is gone (5.1)."""

from __future__ import annotations

from headrace.core.writers import FORGET_MS, MOST_PER_TOPIC, OTHERS, Writers


def test_a_rate_is_of_the_seconds_in_which_something_came() -> None:
    writers = Writers()
    writers.look(1_000, 1_000)
    for second in range(2, 8):
        writers.note("orders", ("shop", "kafka"), 100)
        writers.look(second * 1_000, second * 1_000)
    (row,) = writers.of("orders")
    assert (row.client, row.door, row.per_s, row.last_ms) == ("shop", "kafka", 100.0, 7_000)
    for second in range(8, 30):
        writers.look(second * 1_000, second * 1_000)
    assert writers.of("orders")[0].per_s < 1.0


def test_the_first_look_is_no_rate() -> None:
    """What was counted before anybody looked is of an unknown time."""
    writers = Writers()
    writers.note("orders", ("shop", "kafka"), 1_000_000)
    writers.look(5_000, 5_000)
    assert writers.of("orders")[0].per_s == 0.0


def test_more_than_are_kept_are_others_and_none_is_lost() -> None:
    writers = Writers()
    writers.look(1_000, 1_000)
    for number in range(3 * MOST_PER_TOPIC):
        writers.note("orders", (f"client-{number}", "kafka"), 1)
    writers.look(2_000, 2_000)
    rows = writers.of("orders")
    assert len(rows) <= MOST_PER_TOPIC + 1
    assert sum(row.per_s for row in rows) == 3 * MOST_PER_TOPIC
    assert rows[0].client == OTHERS[0]


def test_who_is_silent_is_forgotten_and_so_is_a_topic_that_is_gone() -> None:
    writers = Writers()
    writers.look(1_000, 1_000)
    writers.note("orders", ("shop", "kafka"), 1)
    writers.note("gone", ("shop", "kafka"), 1)
    writers.look(2_000, 2_000)
    writers.forget("gone")
    assert list(writers.all()) == ["orders"]
    writers.look(2_001 + FORGET_MS + 1_000, 2_001 + FORGET_MS + 1_000)
    assert writers.all() == {}
