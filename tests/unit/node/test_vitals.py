"""A share of the worst syncs, from buckets."""

from __future__ import annotations

from headrace.node.vitals import quantile_ms

BOUNDS = (0.001, 0.01, 0.1)


def test_the_p99_of_syncs_is_the_bound_of_the_bucket_that_holds_it() -> None:
    assert quantile_ms(BOUNDS, [0, 0, 0, 0]) is None, "nothing was synced"
    assert quantile_ms(BOUNDS, [99, 1, 0, 0]) == 1
    assert quantile_ms(BOUNDS, [98, 2, 0, 0]) == 10
    assert quantile_ms(BOUNDS, [0, 0, 0, 7]) == 100, "above the last bound it is at least that"
