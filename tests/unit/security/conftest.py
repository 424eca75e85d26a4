"""`make security` runs these with many more examples than `make test` does (P6, P7)."""

from __future__ import annotations

import os

from hypothesis import settings

_EXAMPLES = os.environ.get("HEADRACE_SECURITY_EXAMPLES")
if _EXAMPLES:
    settings.register_profile("security", max_examples=int(_EXAMPLES), deadline=None)
    settings.load_profile("security")
