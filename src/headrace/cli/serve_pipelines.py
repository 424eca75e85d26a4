"""Command: `headrace serve --pipelines`: a supervisor of pipelines beside a broker, for a laptop. It ends before the broker does, and with it;
when it ends by itself it is started again, as other tasks of the broker are."""

from __future__ import annotations

import asyncio
import contextlib
import logging
import sys
from collections.abc import AsyncIterator

from headrace.node.settings import Settings

STOP_S = 60.0
FIRST_S = 1.0
LONGEST_S = 60.0
HEALTHY_S = 60.0
"""One that lived for so long makes up for those before it."""
_log = logging.getLogger(__name__)


@contextlib.asynccontextmanager
async def supervising(bootstrap: str, settings: Settings) -> AsyncIterator[None]:
    words = ["pipeline", "supervise", "-b", bootstrap, "--tied"]
    if not settings.ephemeral:
        words += ["--work-dir", str(settings.directory().absolute() / "pipelines")]
    keeping = asyncio.create_task(_keep(words))
    try:
        yield
    finally:
        keeping.cancel()
        with contextlib.suppress(asyncio.CancelledError):
            await keeping


async def _keep(words: list[str]) -> None:
    """Until it is cancelled. The leases of a supervisor that crashed are over after 15 s, and its runs have ended with it; the next one
    takes them up."""
    loop = asyncio.get_running_loop()
    delay = FIRST_S
    while True:
        since = loop.time()
        process = await asyncio.create_subprocess_exec(
            sys.executable, "-m", "headrace", *words,
            stdin=asyncio.subprocess.PIPE, stdout=asyncio.subprocess.DEVNULL, start_new_session=True,
        )  # fmt: skip
        try:
            code = await process.wait()
        except asyncio.CancelledError:
            await _end(process)
            raise
        delay = FIRST_S if loop.time() - since >= HEALTHY_S else delay
        _log.error(
            "the supervisor of pipelines (pid %d) ended with code %d; starting it again in %.0f s",
            process.pid,
            code,
            delay,
        )
        await asyncio.sleep(delay)
        delay = min(LONGEST_S, delay * 2)


async def _end(process: asyncio.subprocess.Process) -> None:
    with contextlib.suppress(ProcessLookupError):
        process.terminate()
        try:
            async with asyncio.timeout(STOP_S):
                await process.wait()
        except TimeoutError:
            process.kill()
            await process.wait()
