"""Decision 0082: a name in a region and a queue of the cluster are one to one."""

from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from headrace.http.sqs.regions import Regions

APART = Regions("us-east-1", separate=True)
REGION = st.sampled_from(["us-east-1", "eu-west-1", "us-gov-west-1", "ap-southeast-2", "cn-north-1"])
PART = st.one_of(REGION, st.from_regex(r"[A-Za-z0-9_-]{1,12}", fullmatch=True), st.just("fifo"))
NAME = st.builds(lambda name, end: name + end, PART, st.sampled_from(["", ".fifo"]))
"""As CreateQueue takes them."""


@given(REGION, NAME)
def test_a_queue_s_name_says_its_region(region: str, name: str) -> None:
    inside = APART.inside(region, name)
    if inside is None:
        assert region != APART.own and name == "fifo"
    else:
        assert APART.split(inside) == (region, name)


@given(st.lists(PART, min_size=1, max_size=4).map(".".join))
def test_every_queue_of_the_cluster_is_in_one_region(name: str) -> None:
    region, shown = APART.split(name)
    assert APART.inside(region, shown) == name


@given(REGION, st.lists(PART, min_size=1, max_size=4).map(".".join))
def test_shared_names_are_as_they_are(region: str, name: str) -> None:
    assert Regions().inside(region, name) == name
    assert Regions().split(name)[1] == name


@pytest.mark.parametrize("region", ["local", "shop", "us-east", "1-1", "us-east-1-"])
def test_what_is_no_region_has_no_queues_and_takes_no_topic_s_name(region: str) -> None:
    assert APART.inside(region, "orders") is None
    assert APART.split(f"{region}.orders") == ("us-east-1", f"{region}.orders")
