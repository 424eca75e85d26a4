"""A headless chromium that is told what to do over a pipe (its DevTools protocol): no driver, no package, only Debian's browser."""

from __future__ import annotations

import itertools
import json
import os
import re
import select
import subprocess
import tempfile
import time
from types import TracebackType
from typing import Any

FLAGS = (
    "--headless", "--no-sandbox", "--disable-gpu", "--disable-quic", "--no-first-run", "--disable-background-networking",
    "--disable-component-update", "--disable-sync", "--disable-dev-shm-usage", "--no-proxy-server",
)  # fmt: skip
PATIENCE_S = 120.0


class PageLeft(Exception):
    """The page on which something was asked is gone."""


class Chromium:
    """`names` all resolve to 127.0.0.1, which is what a rebound name does."""

    def __init__(self, *names: str) -> None:
        self._profile = tempfile.TemporaryDirectory(prefix="headrace-chromium-", ignore_cleanup_errors=True)
        rules = ",".join(f"MAP {name} 127.0.0.1" for name in names)
        its_input, self._to = os.pipe()
        self._from, its_output = os.pipe()
        self._process = subprocess.Popen(
            ["bash", "-c", f'exec "$@" 3<&{its_input} 4>&{its_output}', "bash", "chromium", *FLAGS,
             "--remote-debugging-pipe", f"--user-data-dir={self._profile.name}", f"--host-resolver-rules={rules}",
             "about:blank"],
            pass_fds=(its_input, its_output), stdin=subprocess.DEVNULL, stdout=subprocess.DEVNULL,
            stderr=subprocess.DEVNULL,
        )  # fmt: skip
        os.close(its_input)
        os.close(its_output)
        self._numbers = itertools.count(1)
        self._read = b""
        pages = [one for one in self._send("Target.getTargets")["targetInfos"] if one["type"] == "page"]
        target = (
            pages[0]["targetId"]
            if pages
            else self._send("Target.createTarget", url="about:blank")["targetId"]
        )
        self._session = self._send("Target.attachToTarget", targetId=target, flatten=True)["sessionId"]
        self._page("Page.enable")

    def go(self, url: str) -> None:
        """As a person who types an address, until the page is there."""
        self._page("Page.navigate", url=url)
        deadline = time.monotonic() + PATIENCE_S
        while self._looked("location.href + ' ' + document.readyState") != f"{url} complete":
            assert time.monotonic() < deadline, f"{url} did not load"
            time.sleep(0.05)

    def before_each_page(self, script: str) -> None:
        """Runs before anything of a page does, from the next page on."""
        self._page("Page.addScriptToEvaluateOnNewDocument", source=script)

    def until(self, script: str) -> Any:
        """The value of an expression once it is true."""
        deadline = time.monotonic() + PATIENCE_S
        while not (found := self._looked(script)):
            assert time.monotonic() < deadline, f"never: {script}\n{self.run('document.body.innerText')}"
            time.sleep(0.05)
        return found

    def _looked(self, script: str) -> Any:
        """None while one page takes the place of another."""
        try:
            return self.run(script)
        except PageLeft:
            return None

    def until_text(self, *texts: str) -> None:
        """Until the page shows all of them."""
        wanted = json.dumps(texts)
        self.until(f"{wanted}.every((text) => document.body.innerText.includes(text))")

    def resize(self, width: int, height: int = 900) -> None:
        self._page(
            "Emulation.setDeviceMetricsOverride",
            width=width,
            height=height,
            deviceScaleFactor=1,
            mobile=False,
        )

    def press(self, key: str) -> None:
        """One key, as from a keyboard; a letter also types itself."""
        text = {"Enter": "\r"}.get(key, key if len(key) == 1 else "")
        code = {"Enter": 13, "Escape": 27, "Tab": 9}.get(
            key, ord(key.upper()) if key.isalnum() and len(key) == 1 else 0
        )
        fields: dict[str, Any] = {"key": key, "windowsVirtualKeyCode": code}
        self._page(
            "Input.dispatchKeyEvent",
            type="keyDown" if text else "rawKeyDown",
            **fields,
            **({"text": text} if text else {}),
        )
        self._page("Input.dispatchKeyEvent", type="keyUp", **fields)

    def run(self, script: str) -> Any:
        """The value of an expression on the page; of a promise, what it comes to."""
        got = self._page("Runtime.evaluate", expression=script, awaitPromise=True, returnByValue=True)
        assert "exceptionDetails" not in got, got["exceptionDetails"]
        return got["result"].get("value")

    def _page(self, method: str, **params: Any) -> dict[str, Any]:
        return self._send(method, self._session, **params)

    def _send(self, method: str, session: str | None = None, **params: Any) -> dict[str, Any]:
        number = next(self._numbers)
        message = {"id": number, "method": method, "params": params}
        if session is not None:
            message["sessionId"] = session
        os.write(self._to, json.dumps(message).encode() + b"\0")
        deadline = time.monotonic() + PATIENCE_S
        while True:
            answer = self._next(deadline)
            if answer.get("id") == number:
                if "error" in answer and re.search(
                    "navigated|context was destroyed|Cannot find context", str(answer)
                ):
                    raise PageLeft(str(answer["error"]))
                assert "error" not in answer, (method, answer["error"])
                result: dict[str, Any] = answer["result"]
                return result

    def _next(self, deadline: float) -> dict[str, Any]:
        while b"\0" not in self._read:
            ready, _, _ = select.select([self._from], [], [], max(0.0, deadline - time.monotonic()))
            piece = os.read(self._from, 1 << 20) if ready else b""
            assert piece, (
                "chromium does not answer: is the Debian package chromium installed (make test does it)?"
            )
            self._read += piece
        line, _, self._read = self._read.partition(b"\0")
        found: dict[str, Any] = json.loads(line)
        return found

    def close(self) -> None:
        os.close(self._to)
        self._process.kill()
        self._process.wait()
        os.close(self._from)
        self._profile.cleanup()

    def __enter__(self) -> Chromium:
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.close()
