"""Schemas of messages: what they say, whether one can read what another has written, and which subjects have which of them."""
