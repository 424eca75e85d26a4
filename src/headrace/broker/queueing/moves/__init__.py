"""Driver: messages from one queue to another, in one transaction."""
