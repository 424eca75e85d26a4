"""Codec: where the records of many batches start, found by numpy without walking through them one by one.

A record tells where the next one starts and nothing else does, so this is the one sequential question of decoding. It is
answered by many *walkers* at once. Each begins somewhere in the middle of a batch, at a place that looks like the start of
a record: a length, an attributes byte of zero, and behind that length another such place whose offset delta is one more.
All walkers step together, a lookup in a table of lengths for each step, until each has come to where the next one began.

Looking right is not being right (a value may hold records itself), so nothing rests on it: the first walker of a batch
begins at its first byte, each has to arrive exactly where the next one began, the last one at the end of the batch, and
together they must have met as many records as the batch claims. That is the sequential walk, only cut into pieces. A batch
for which it does not hold is walked through in plain Python.

Records of equal size, which are common, need no walkers: where the first one's length says the others are, the same length
has to stand. Such runs are tried first in batches that are large enough to gain by it.

Invariant: the answer is that of the sequential walk, or CorruptBatch (X10); it never depends on what the guesses were.
"""

from __future__ import annotations

import math

import numpy as np
import numpy.typing as npt

from headrace.records.batch import MIN_RECORD_BYTES, CorruptBatch
from headrace.spark.columns.ragged import Bytes, Ints, gather_varints

Bools = npt.NDArray[np.bool_]

_STRIDE = 0.3
"""Of the square root of all records: how many a walker should meet. Steps cost about as much as guesses do then."""
_STRIDE_AT_LEAST = 8
_FEW_RECORDS = 256
"""With fewer records in all, plain Python is done before numpy has begun."""
_PATIENCE = 6
"""So many times as many steps as expected are waited for the slowest walker."""
_CHECK_EVERY = 8
_WINDOW = 1.6
"""A start is looked for in so many average records. Guesses that find none are left out; their neighbours walk further."""
_MANY_RECORDS = 512
"""In a batch of fewer records, looking for runs of equal ones costs more than it may save."""
_RUN_AT_LEAST = 32
_RUNS_AT_MOST = 8
"""Records of equal content size get longer twice or thrice in a batch, as their offset deltas do."""
_LONG_RECORD = 4096
"""Of records this long (on average) there are too few to be worth guessing."""


def _advances() -> npt.NDArray[np.int64]:
    """By the first two bytes of a record (little-endian): how far the next one is. 0: its length has more than two bytes."""
    first, second = np.arange(65536) & 0xFF, np.arange(65536) >> 8
    two = 2 + ((second << 7 | first & 0x7F) >> 1)
    found: npt.NDArray[np.int64] = np.where(first < 0x80, 1 + (first >> 1), np.where(second < 0x80, two, 0))
    return found


_ADVANCES = _advances()


def record_bounds(data: Bytes, body_starts: Ints, body_ends: Ints, counts: Ints) -> tuple[Ints, Ints]:
    """Start and end of every record, batch by batch. The records of a batch fill its body exactly."""
    first_record = np.cumsum(counts) - counts
    total = int(counts.sum())
    starts = np.empty(total, dtype=np.int64)
    left = np.ones(counts.size, dtype=np.bool_)
    for batch in np.flatnonzero(counts >= _MANY_RECORDS).tolist():
        here = starts[first_record[batch] : first_record[batch] + counts[batch]]
        left[batch] = not _equal_runs(data, int(body_starts[batch]), int(body_ends[batch]), here)
    if int(counts[left].sum()) >= _FEW_RECORDS:
        left = _walk_in_pieces(data, body_starts, body_ends, counts, starts, left)
    view = data.data
    for batch in np.flatnonzero(left).tolist():
        found, arrived = _hop(view, int(body_starts[batch]), int(counts[batch]))
        if arrived != body_ends[batch]:
            raise CorruptBatch("the records of a batch do not end where the batch does")
        position = int(first_record[batch])
        starts[position : position + len(found)] = found
    # A record ends where the next one starts, save the last of each batch.
    ends = np.empty(total, dtype=np.int64)
    ends[:-1] = starts[1:]
    ends[first_record + counts - 1] = body_ends
    # The walks drop the sign bit of the lengths, so negative ones are found here, all at once.
    if (data[starts] & 1).any():
        raise CorruptBatch("a record of negative length")
    return starts, ends


# ---- runs of equal records


def _equal_runs(data: Bytes, cursor: int, end: int, starts: Ints) -> bool:
    """Fill in the starts of a batch whose records come in a few long runs of equal size; False: they do not."""
    done = 0
    for _ in range(_RUNS_AT_MOST):
        advance = int(_ADVANCES[int(data[cursor]) | int(data[cursor + 1]) << 8])
        if not advance or cursor + advance * _RUN_AT_LEAST > end:
            return False
        wanted = starts.size - done
        same = data[cursor : end - 1 : advance][:wanted] == data[cursor]
        same &= data[cursor + 1 : end : advance][:wanted] == data[cursor + 1]
        run = same.size if same.all() else int(same.argmin())
        if run < min(_RUN_AT_LEAST, wanted):
            return False
        starts[done : done + run] = np.arange(cursor, cursor + run * advance, advance)
        cursor += run * advance
        done += run
        if done == starts.size:
            return cursor == end
        if cursor + 1 >= end:
            return False
    return False


# ---- many walkers


def _walk_in_pieces(
    data: Bytes, body_starts: Ints, body_ends: Ints, counts: Ints, starts: Ints, wanted: Bools
) -> Bools:
    """Fill in `starts` for the batches wanted; True for those whose place in it still means nothing."""
    short = wanted & ((body_ends - body_starts) < _LONG_RECORD * counts)
    if not short.any():
        return wanted
    stride = max(_STRIDE_AT_LEAST, int(_STRIDE * math.sqrt(int(counts.sum()))))
    begins, batch_of = _begin(data, body_starts, body_ends, np.where(short, counts, 0), stride)
    # Where each walker has to arrive: at the next one of its batch, or at the end of the batch.
    goals = np.empty(begins.size, dtype=np.int64)
    goals[:-1] = begins[1:]
    last_of_batch = np.append(batch_of[1:] != batch_of[:-1], True)
    goals[last_of_batch] = body_ends[batch_of[last_of_batch]]
    path = _walk(data, begins, goals, _PATIENCE * stride)
    met = path < goals
    records = met.sum(axis=0)
    arrived = np.minimum(records, len(path) - 1)
    good = path[arrived, np.arange(begins.size)] == goals
    done = short
    done[batch_of[~good]] = False
    done &= np.bincount(batch_of, weights=records, minlength=counts.size).astype(np.int64) == counts
    if done.all():
        starts[:] = path.T[met.T]
    else:
        met &= done[batch_of]
        starts[np.repeat(done, counts)] = path.T[met.T]
    return wanted & ~done


def _walk(data: Bytes, begins: Ints, goals: Ints, steps: int) -> npt.NDArray[np.int64]:
    """Row i holds where each walker is after i steps. Those that are past their goal walk on; nobody looks at it."""
    path = np.empty((steps + 1, begins.size), dtype=np.int64)
    path[0] = begins
    behind = data[1:]
    keys = np.empty((2, begins.size), dtype=np.uint16)
    for step in range(steps):
        here = path[step]
        np.left_shift(behind.take(here, mode="clip"), 8, out=keys[0], dtype=np.uint16)
        np.bitwise_or(keys[0], data.take(here, mode="clip"), out=keys[1])
        np.add(here, _ADVANCES.take(keys[1]), out=path[step + 1])
        if step % _CHECK_EVERY == _CHECK_EVERY - 1 and (path[step + 1] >= goals).all():
            return path[: step + 2]
    return path


# ---- where to begin


def _begin(data: Bytes, body_starts: Ints, body_ends: Ints, counts: Ints, stride: int) -> tuple[Ints, Ints]:
    """Where walkers begin, in order, and which batch each is in: the start of every batch, and good guesses within."""
    walkers = np.maximum(counts // stride, np.minimum(counts, 1))
    batch_of = np.repeat(np.arange(counts.size), walkers)
    number = np.arange(batch_of.size) - np.repeat(np.cumsum(walkers) - walkers, walkers)
    sizes = (body_ends - body_starts)[batch_of]
    places = body_starts[batch_of] + sizes * number // walkers[batch_of]
    guessed = np.flatnonzero(number)
    if guessed.size:
        average = int(np.median(sizes[guessed] // counts[batch_of[guessed]]))
        window = int(average * _WINDOW) + 16
        # Windows lie within the data; what comes of one that reaches into the next batch is not kept.
        guessed = guessed[places[guessed] + window + 4 <= data.size]
        found = _first_starts(data, places[guessed], window)
        keep = (found >= 0) & (found < body_ends[batch_of[guessed]])
        chosen = np.zeros(places.size, dtype=np.bool_)
        chosen[guessed[keep]] = True
        places[guessed[keep]] = found[keep]
        chosen |= number == 0
        places, batch_of = places[chosen], batch_of[chosen]
        # Two guesses may have found the same record; walkers begin at different ones.
        fresh = np.append(True, (places[1:] > places[:-1]) | (batch_of[1:] != batch_of[:-1]))
        places, batch_of = places[fresh], batch_of[fresh]
    return places, batch_of


def _first_starts(data: Bytes, places: Ints, window: int) -> Ints:
    """For each place the first position at or behind it that looks like the start of a record; -1: none in the window."""
    found = np.full(places.size, -1, dtype=np.int64)
    if not places.size:
        return found
    # A record has its attributes, always zero, behind a length of one or two bytes.
    windows = np.lib.stride_tricks.sliding_window_view(data, window)[places].ravel()
    zeros = np.flatnonzero(windows == 0)
    before = windows.take(zeros - 1, mode="clip")
    longer = windows.take(zeros - 2, mode="clip") >= 0x80
    zeros = zeros[(longer | (before >= 2 * (MIN_RECORD_BYTES - 1))) & (before < 0x80)]
    which = zeros // window
    at = zeros - which * window - 1
    at -= windows.take(zeros - 2, mode="clip") >= 0x80
    which = which[at >= 0]
    at = at[at >= 0] + places[which]
    following = at + _length(data, at)
    fits = (following - at >= MIN_RECORD_BYTES) & (following < data.size - 8)
    at, which, following = at[fits], which[fits], following[fits]
    alike = data[_attributes(data, following)] == 0
    at, which, following = at[alike], which[alike], following[alike]
    try:
        rises = _offset_bits(data, following) - _offset_bits(data, at) == 2
    except CorruptBatch:
        return found
    at, which = at[rises], which[rises]
    # The first of each window: written last.
    found[which[::-1]] = at[::-1]
    return found


def _length(data: Bytes, at: Ints) -> Ints:
    """From the start of a record to the start of the next; 0 when the length has more than two bytes."""
    keys = data[at].astype(np.uint16) | data.take(at + 1, mode="clip").astype(np.uint16) << np.uint16(8)
    return _ADVANCES[keys]


def _attributes(data: Bytes, at: Ints) -> Ints:
    return at + 1 + (data[at] >= 0x80)


def _offset_bits(data: Bytes, at: Ints) -> Ints:
    """The offset delta (zig-zag) of the records that start there."""
    _, behind_timestamp = gather_varints(data, _attributes(data, at) + 1, 10)
    bits, _ = gather_varints(data, behind_timestamp, 5)
    return bits


# ---- one walker


def _hop(data: memoryview, cursor: int, count: int) -> tuple[list[int], int]:
    """The starts of `count` records that follow each other from `cursor`, and where the last one ends."""
    starts: list[int] = []
    append = starts.append
    try:
        for _ in range(count):
            append(cursor)
            byte = data[cursor]
            if byte < 0x80:
                cursor += 1 + (byte >> 1)
                continue
            second = data[cursor + 1]
            if second < 0x80:
                cursor += 2 + ((second << 7 | byte & 0x7F) >> 1)
                continue
            cursor = _hop_far(data, cursor)
    except IndexError:
        raise CorruptBatch("a record is cut short") from None
    return starts, cursor


def _hop_far(data: memoryview, cursor: int) -> int:
    value = 0
    for index in range(5):
        byte = data[cursor + index]
        value |= (byte & 0x7F) << 7 * index
        if byte < 0x80:
            return cursor + index + 1 + (value >> 1)
    raise CorruptBatch("a varint of more than 32 bits")
