"""For every test: properties are about values, never about how fast a busy machine finds them (specs/style.md);
and what a test starts hears Ctrl-C, though a shell that ran us in the background (scripts/test) had us not hear it."""

import signal

from hypothesis import settings

signal.signal(signal.SIGINT, signal.default_int_handler)

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
