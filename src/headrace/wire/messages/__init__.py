"""Codec: one module per API, in the notation of wire/schema.py; requests, responses and the structs inside."""
