"""Queues on this broker and across brokers: queues.py is what doors see; decision 0032 has the plan of the rooms."""
