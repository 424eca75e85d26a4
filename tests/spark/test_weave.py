"""What the sink makes of columns: Arrow's join equals numpy's, and the short way through a hash equals the long one."""

from __future__ import annotations

import numpy as np
import pytest

from headrace.spark.columns.encode import BytesColumn, encode_batches
from headrace.spark.columns.ragged import Ragged, interleave
from headrace.spark.partitioner import murmur2
from headrace.spark.weave import weave


def ragged(values: list[bytes]) -> Ragged:
    offsets = np.zeros(len(values) + 1, dtype=np.int64)
    np.cumsum([len(value) for value in values], out=offsets[1:])
    return Ragged(np.frombuffer(b"".join(values), dtype=np.uint8), offsets)


@pytest.mark.parametrize("count", [0, 1, 300])
def test_arrow_weaves_as_numpy_does(count: int) -> None:
    columns = [ragged([bytes([i % 7]) * (i * step % 5) for i in range(count)]) for step in (1, 2, 3)]
    ours, theirs = weave(columns), interleave(columns)
    assert ours.data.tobytes() == theirs.data.tobytes()
    assert ours.offsets.tolist() == theirs.offsets.tolist()


def test_a_slice_is_woven_as_what_it_shows() -> None:
    whole = ragged([b"a", b"bb", b"ccc", b"dddd"])
    part = Ragged(whole.data, whole.offsets[1:4])
    assert weave([part, part]).data.tobytes() == b"bbbbcccccc"


@pytest.mark.parametrize("nulls", [False, True])
def test_the_same_batches_either_way(nulls: bool) -> None:
    keys = BytesColumn(ragged([b"k%d" % i for i in range(500)]))
    values = ragged([b"" if i % 3 == 0 else b"v" * i for i in range(500)])
    column = BytesColumn(values, np.arange(500) % 3 == 0 if nulls else None)
    times = np.arange(500, dtype=np.int64) * 7
    made = [
        [bytes(batch) for batch in encode_batches(keys, column, times, max_batch_bytes=20_000, weave=way)]
        for way in (weave, interleave)
    ]
    assert made[0] == made[1] and len(made[0]) > 3


@pytest.mark.parametrize("size", [4, 8, 16])
def test_keys_of_one_length_hash_as_others_do(size: int) -> None:
    keys = [(b"%016d" % i)[-size:] for i in range(100)]
    mixed = murmur2(ragged([*keys, b"another"]))
    assert murmur2(ragged(keys)).tolist() == mixed[:-1].tolist()
