"""Headrace beside its peers: obtain them, give all the same work in turns, and write a table (`make bench-peers`)."""
