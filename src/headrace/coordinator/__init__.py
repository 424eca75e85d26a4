"""Membership, leadership, metadata: the port and its adapters."""
