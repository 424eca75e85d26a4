"""Driver: to the broker that has it."""
