"""For every test: properties are about values, never about how fast a busy machine finds them (specs/style.md)."""

from hypothesis import settings

settings.register_profile("headrace", deadline=None)
settings.load_profile("headrace")
