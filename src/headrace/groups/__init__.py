"""Consumer groups: classic and KIP-848, offsets. Pure."""
