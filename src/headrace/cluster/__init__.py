"""Metadata image, configs, placement, election, reassignment. Pure."""
