"""Membership, leadership, metadata: the port and its adapters. `port` is the contract, `opening` picks an adapter."""
