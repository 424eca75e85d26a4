"""Share groups, the membership side (KIP-932): who is in, and which partitions each member fetches from. Pure.

What is delivered, locked and acknowledged is not here: that is the queue engine's.
"""
