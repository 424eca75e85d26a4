"""Door: what of a message a person sees (W19). Masks are a topic's config, `headrace.console.mask`, and hold for whoever looks at messages over REST
and could not take the config away: without the right to alter the topic's configs. Consumers, of any protocol, get what was written."""

from __future__ import annotations

from collections.abc import Callable
from functools import lru_cache

from headrace.cluster.image import ClusterImage
from headrace.http.messages import Request
from headrace.records.build import Record
from headrace.records.masks import Mask
from headrace.security.rights import TOPIC, Operation

MaskOf = Callable[[str], Mask | None]


@lru_cache(maxsize=1_000)
def _mask(paths: tuple[str, ...]) -> Mask:
    return Mask(paths)


def masks_for(request: Request, image: ClusterImage) -> MaskOf:
    """By topic. In mode open everybody may do everything, so nothing is hidden."""
    access = request.access

    def of(topic: str) -> Mask | None:
        if access is None:
            return None
        known = image.topic(topic)
        paths = () if known is None else known.config.console_mask
        if not paths or access.may(Operation.ALTER_CONFIGS, TOPIC, topic):
            return None
        return _mask(paths)

    return of


def seen(masks: MaskOf, topic: str, record: Record) -> Record:
    mask = masks(topic)
    return record if mask is None else mask.apply(record)
