"""REST as a test asks it: JSON in, JSON out, and waiting for what takes a while behind the door."""

from __future__ import annotations

import json
import time
import urllib.error
import urllib.request
from collections.abc import Callable
from typing import Any

from headrace.testing.broker_process import BrokerProcess


def wait_until(look: Callable[[], Any]) -> Any:
    """What it comes to, once it is so behind the door."""
    deadline = time.monotonic() + 240
    while not (found := look()):
        assert time.monotonic() < deadline
        time.sleep(0.05)
    return found


class Api:
    def __init__(self, broker: BrokerProcess) -> None:
        self.url = broker.url

    def __call__(self, method: str, path: str, body: Any = None, *, status: int | None = None) -> Any:
        data = None if body is None else json.dumps(body).encode()
        request = urllib.request.Request(self.url + path, data, method=method)
        request.add_header("content-type", "application/json")
        request.add_header("x-headrace-client", "test")
        try:
            with urllib.request.urlopen(request, timeout=120) as response:
                raw, found = response.read(), response.status
        except urllib.error.HTTPError as refused:
            raw, found = refused.read(), refused.code
        assert found == status if status is not None else found < 300, raw
        return json.loads(raw) if raw else None

    def peek(self, queue: str) -> list[Any]:
        items: list[Any] = self("GET", f"/queues/{queue}/messages?peek&max=100")["items"]
        return items

    def moved(self, queue: str, **body: Any) -> Any:
        task = self("POST", f"/api/v1/queues/{queue}/moves", body)

        def ended() -> Any:
            known = self("GET", f"/api/v1/queues/{queue}/moves")["items"]
            one = next(each for each in known if each["id"] == task["id"])
            return one if one["status"] not in ("running", "cancelling") else None

        return wait_until(ended)
