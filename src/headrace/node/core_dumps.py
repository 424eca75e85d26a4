"""Driver: a broker that has secrets in its memory leaves none of it in a core dump (A35)."""

from __future__ import annotations

import resource
import sys

from headrace.node.settings import Settings

_PR_SET_DUMPABLE = 4


def keep_memory_private(settings: Settings) -> None:
    """Where there is nothing secret but what clients send, a core dump may help somebody, and nothing is changed."""
    if not (settings.secure or settings.tls_key or settings.secrets_key_file or settings.sqs_credentials):
        return
    resource.setrlimit(resource.RLIMIT_CORE, (0, 0))
    if sys.platform == "linux":
        import ctypes  # 5 ms of a start that others need not pay

        # The limit counts for files alone: a core_pattern that is a program is asked all the same, and this forbids that too,
        # and that other processes of this user look into our memory.
        ctypes.CDLL(None).prctl(_PR_SET_DUMPABLE, 0, 0, 0, 0)
