"""The small Python SDK: publish, subscribe, and one knob for delivery semantics."""
