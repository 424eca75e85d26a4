"""Driver: what happens on this broker."""
