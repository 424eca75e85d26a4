"""Kernel: ids, errors, limits, units, plans and the ports every other package stands on. Pure."""
