"""Command: `headrace serve --pipelines`: a supervisor of pipelines beside a broker, for a laptop. It ends before the broker does, and with it."""

from __future__ import annotations

import asyncio
import contextlib
import sys
from collections.abc import AsyncIterator

from headrace.node.settings import Settings

STOP_S = 60.0


@contextlib.asynccontextmanager
async def supervising(bootstrap: str, settings: Settings) -> AsyncIterator[None]:
    words = ["pipeline", "supervise", "-b", bootstrap, "--tied"]
    if not settings.ephemeral:
        words += ["--work-dir", str(settings.directory().absolute() / "pipelines")]
    process = await asyncio.create_subprocess_exec(
        sys.executable, "-m", "headrace", *words,
        stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True,
    )  # fmt: skip
    try:
        yield
    finally:
        with contextlib.suppress(ProcessLookupError):
            process.terminate()
            try:
                async with asyncio.timeout(STOP_S):
                    await process.wait()
            except TimeoutError:
                process.kill()
                await process.wait()
