"""Driver: filters the source's batches for views, off the event loop (X12), one piece at a time, in turn.

Whoever waits for a strip says where; wishes are served round robin, so a view that is costly delays the others by one
piece at most. A piece is read on the loop like any fetch, filtered in a thread, and lands in the strip. The thread gives up
the interpreter twice in a millisecond, because the event loop would otherwise wait five for it each time it wakes.
"""

from __future__ import annotations

import logging
from collections import OrderedDict
from functools import partial
from typing import NamedTuple

from headrace.broker.partition import Partition
from headrace.broker.queueing.local.delayed import without_waiting
from headrace.broker.runtime import Runtime
from headrace.broker.views.strips import Block, Strip
from headrace.broker.views.tag_index import Stretch, Tagged, TagIndex
from headrace.cluster.views import ViewSpec
from headrace.core.errors import ErrorKind
from headrace.core.limits import MAX_DECOMPRESSED_BYTES, MIB
from headrace.core.plan import Rejected
from headrace.core.ports import Buffer, Stopwatch
from headrace.records.batch import scan
from headrace.records.selection import RecordPlaces, SiftedBatches, sift
from headrace.records.tag_mask import mask_of

log = logging.getLogger(__name__)

PIECE_BYTES = 1 * MIB
"""Of the source, read and filtered in one go."""

PIECE_SECONDS = 0.05
"""After that long a piece ends with the batch at hand, and others have their turn."""

BATCH_SECONDS = 10.0
"""Of CPU. A batch that takes longer is not filtered: the view is out of order there until its filter or the batch is gone."""

TROUBLE_MS = 60_000
MAX_WISHES = 10_000
MAX_STRETCHES = 32
"""Of batches that may match, with others between them, in one piece."""

_WORK_SECONDS = 0.0005
_PAUSE_SECONDS = 0.0001


class TooCostly(Exception):
    """One batch takes more time than any view may have."""


class Breath:
    """Lets the event loop have the interpreter now and then, and knows when it is enough.

    A batch is measured in the CPU time of its thread: on a busy machine the clock on the wall says little of a filter.
    """

    __slots__ = ("_batch_ends_cpu", "_watch", "_works_until")

    def __init__(self, watch: Stopwatch) -> None:
        self._watch = watch
        self._works_until = _WORK_SECONDS
        self._batch_ends_cpu: float | None = None

    def breathe(self) -> None:
        if self._watch.elapsed_s() < self._works_until:
            return
        cpu = self._watch.cpu_s()
        if self._batch_ends_cpu is None:
            self._batch_ends_cpu = cpu + BATCH_SECONDS
        elif cpu > self._batch_ends_cpu:
            raise TooCostly
        self._watch.rest(_PAUSE_SECONDS)
        self._works_until = self._watch.elapsed_s() + _WORK_SECONDS

    def enough(self) -> bool:
        """Asked after each batch."""
        self._batch_ends_cpu = None
        return self._watch.elapsed_s() > PIECE_SECONDS


class ScanPiece(NamedTuple):
    """What is filtered in one go."""

    data: Buffer
    new_from: int | None
    """Where the data begins, when the tag index does not know it yet."""
    covers_to: int | None
    """Once all of it is filtered, everything below this is known; None: where the data ends."""


class Lens:
    """One view of one partition: its strip, and what is needed to fill it."""

    __slots__ = ("partition", "place", "spec", "strip", "tag_mask", "tags", "trouble_until_ms")

    def __init__(
        self, spec: ViewSpec, partition: Partition, place: RecordPlaces, strip: Strip, tags: TagIndex
    ) -> None:
        self.spec = spec
        self.partition = partition
        self.place = place
        self.strip = strip
        self.tags = tags
        wanted = spec.filter.needs.tags
        self.tag_mask = None if wanted is None else mask_of(wanted)
        """None: this filter does not ask for tags."""
        self.trouble_until_ms = 0

    def refresh(self) -> tuple[bytes, int, int]:
        """Forget what was true of another history of the log. The state that counts now is returned."""
        partition = self.partition
        state = (partition.topic_id, partition.leader_epoch, partition.log.generation)
        self.strip.valid_for(state)
        self.tags.valid_for(state)
        return state


class Scanner:
    def __init__(self, runtime: Runtime) -> None:
        self._runtime = runtime
        self._wishes: OrderedDict[tuple[int, int], tuple[Lens, int]] = OrderedDict()
        self._busy: tuple[int, int] | None = None
        self._at_work = False
        self.source_bytes = self.skipped_batches = self.pieces = self.matched = 0
        """What was filtered, what the tag index saved, and how much was found."""

    def want(self, lens: Lens, offset: int) -> None:
        """Somebody waits for what comes at `offset`; the strip wakes when more is known."""
        key = (id(lens), offset)
        if key != self._busy and key not in self._wishes and len(self._wishes) < MAX_WISHES:
            self._wishes[key] = (lens, offset)
            if not self._at_work:
                self._at_work = True
                self._runtime.spawn(self._work(), "filter for views")

    async def _work(self) -> None:
        try:
            while self._wishes:
                self._busy, (lens, offset) = self._wishes.popitem(last=False)
                has_news = await self._serve(lens, offset)
                self._busy = None
                if has_news:
                    lens.strip.wake()
        finally:
            self._busy = None
            self._at_work = False

    async def _serve(self, lens: Lens, offset: int) -> bool:
        """Whether there is anything to look at again for those who wait."""
        state = lens.refresh()
        partition = lens.partition
        upto = partition.high_watermark
        if not partition.is_leader or not partition.log.start_offset <= offset < upto:
            return False
        piece = self._gather(lens, offset, upto)
        if piece is None:
            return False
        if not piece.data:
            covered = upto if piece.covers_to is None else piece.covers_to
            lens.strip.add(Block(offset, covered, partition.leader_epoch, b"", (), ()))
            return True
        breath = Breath(self._runtime.stopwatch())
        work = partial(
            sift,
            piece.data,
            lens.spec.filter,
            lens.place,
            max_bytes=MAX_DECOMPRESSED_BYTES,
            with_tags=lens.tag_mask is not None,
            breathe=breath.breathe,
            enough=breath.enough,
        )
        try:
            sifted = await self._runtime.run_blocking(work)
        except TooCostly:
            log.error(
                "%s of %s: filtering one batch at %d takes more than %d s: %s",
                lens.place.topic,
                partition.tp,
                offset,
                BATCH_SECONDS,
                lens.spec.where,
            )
            lens.trouble_until_ms = self._runtime.clock.now_ms() + TROUBLE_MS
            return True
        except Exception:
            log.exception("%s of %s: the filter fails at %d", lens.place.topic, partition.tp, offset)
            lens.trouble_until_ms = self._runtime.clock.now_ms() + TROUBLE_MS
            return True
        if lens.refresh() == state:
            self._keep(lens, offset, piece, sifted)
        return True

    def _gather(self, lens: Lens, offset: int, upto: int) -> ScanPiece | None:
        """About PIECE_BYTES from `offset` on, without what the tag index says can't match. None: it can't be read."""
        parts: list[Buffer] = []
        position, size = offset, 0
        for _ in range(MAX_STRETCHES):
            stretch = Stretch(position, None, 0)
            if lens.tag_mask is not None:
                stretch = lens.tags.next_stretch(position, lens.tag_mask, PIECE_BYTES - size, upto)
                self.skipped_batches += stretch.skipped
                position = stretch.offset
            is_new = stretch.read_bytes is None
            if position >= upto or stretch.read_bytes == 0 or (is_new and parts):
                break
            data = lens.partition.read(position, stretch.read_bytes or PIECE_BYTES, upto)
            if isinstance(data, Rejected):
                return None
            lens.partition.bytes_out -= len(data)  # it has not left
            if lens.partition.config.delay_enabled:
                data = without_waiting(data)
            if is_new:
                return ScanPiece(data, position, upto if not data else None)
            if not data:
                return ScanPiece(b"".join(parts), None, upto)
            parts.append(data)
            size += len(data)
            for _, header in scan(data):
                position = header.next_offset
            if size >= PIECE_BYTES:
                break
        return ScanPiece(b"".join(parts), None, position)

    def _keep(self, lens: Lens, offset: int, piece: ScanPiece, sifted: SiftedBatches) -> None:
        for unreadable, problem in sifted.unreadable:
            lens.partition.step_over(unreadable, problem)
        self.pieces += 1
        self.matched += sifted.records
        done = sum(size for _, size, _ in sifted.seen)
        self.source_bytes += done
        end = sifted.next_offset
        if piece.covers_to is not None and done == len(piece.data):
            end = piece.covers_to
        lens.strip.add(Block(offset, end, sifted.epoch, sifted.data, sifted.lasts, sifted.positions))
        lens.strip.forget_below(lens.partition.log.start_offset)
        if lens.tag_mask is not None and piece.new_from is not None:
            lens.tags.add(piece.new_from, [Tagged(*entry) for entry in sifted.seen])

    def is_in_trouble(self, lens: Lens) -> ErrorKind | None:
        in_trouble = lens.trouble_until_ms > self._runtime.clock.now_ms()
        return ErrorKind.UNKNOWN_SERVER_ERROR if in_trouble else None
