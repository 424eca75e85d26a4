"""Codec: which queue a name means in a region, and back (decision 0082). Every name that enters or leaves the SQS door passes here.

Shared: a name is a queue, whatever region the caller claims. Separate: a queue of the broker's own region is a topic of its name, one of
another region is the topic `<region>.<name>`. No name that CreateQueue takes has a dot, but for its end `.fifo`.
"""

from __future__ import annotations

import re
from typing import NamedTuple

_is_region = re.compile(r"[a-z]{2,8}(-[a-z]{2,12}){1,3}-[0-9]{1,2}").fullmatch
"""As AWS names them. What only looks like a first part of a topic's name, as in shop.orders, is none."""
_RESERVED = "fifo"
"""`eu-west-1.fifo` is a FIFO queue of our own region, and so no queue of eu-west-1."""


class Regions(NamedTuple):
    own: str = "us-east-1"
    separate: bool = False

    def inside(self, region: str, name: str) -> str | None:
        """What the cluster calls a queue that is called so in a region; None: no queue of that region is."""
        if not self.separate:
            return name
        if region == self.own:
            return name if self.split(name)[0] == region else None
        return f"{region}.{name}" if name and name != _RESERVED and _is_region(region) else None

    def split(self, name: str) -> tuple[str, str]:
        """The region of a queue, and what it is called there."""
        region, _, rest = name.partition(".")
        if not self.separate or region == self.own or rest in ("", _RESERVED) or not _is_region(region):
            return self.own, name
        return region, rest
