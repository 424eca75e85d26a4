"""Consumer groups: classic, KIP-848 and share groups, and committed offsets. Pure.

One `GroupShard` (shard.py) is the machine behind one partition of `__consumer_offsets`. Where to look:

    commands.py, consumer/commands.py, share/commands.py   what can be asked, and the answers
    facts.py, consumer/facts.py, share/facts.py            what can become true
    state.py, consumer/state.py, share/state.py            one group of each kind, and how facts change it
    table.py (+ */apply.py)                                all groups of the shard, and their deadlines
    join, sync, heartbeat, leave, rebalance                classic groups, verb by verb
    consumer/heartbeat, reconcile, assignors               KIP-848: assignment by the coordinator
    consumer/migrate, classic_members                      a group that changes its protocol while it works
    offsets, txn_offsets, offset_table                     commits, fetches, transactions, retention
    journal.py, */journal.py, fields.py                    Kafka's own record formats
    draft.py                                               how a verb looks ahead without changing anything
"""
