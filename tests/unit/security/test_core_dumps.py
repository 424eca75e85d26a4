"""A35: a broker with secrets leaves no core dump, not even by a program that core_pattern names."""

from __future__ import annotations

import subprocess
import sys

import pytest

PROGRAM = """
import ctypes, resource, sys
from headrace.node.core_dumps import keep_memory_private
from headrace.node.settings import Settings
keep_memory_private(Settings(secrets_key_file=sys.argv[1]))
print(ctypes.CDLL(None).prctl(3, 0, 0, 0, 0), resource.getrlimit(resource.RLIMIT_CORE)[1] == 0)
"""


@pytest.mark.skipif(sys.platform != "linux", reason="prctl")
@pytest.mark.parametrize(("secret", "said"), [("secrets.key", "0 True"), ("", "1 ")])
def test_a35_who_has_secrets_is_not_dumped(secret: str, said: str) -> None:
    done = subprocess.run(
        [sys.executable, "-c", PROGRAM, secret], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.startswith(said), done.stdout
