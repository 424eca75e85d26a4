"""Door 2: HTTP."""
