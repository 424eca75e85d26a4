"""Metadata image, configs, placement, election, reassignment. Pure.

    keys, state        where each thing lives in the coordinator, and what it looks like there
    changes            what a decision asks of the coordinator: compares and operations
    image              what this broker knows of the cluster; what changed
    config_keys, topic_configs, broker_configs, configs    the tables, which value counts and why, alterations
    membership         registration, fences, controller, producer ids
    election           who leads and who is in sync, as functions from one PartitionState to the next
    reassignment       moving partitions: grow, catch up, shrink; drain and spread as plans
    placement          which brokers hold which partition
    topics             create, grow, delete, configure
    controller         all that a controller has to do about the cluster as it is now

Not obvious:

- A broker obeys a leadership only if the partition was written after its registration (`leads_in_this_life`), and every
  write of a partition compares the registration of the leader it names. Together they keep a leader that restarted
  within its lease from going on with a log that may have lost its tail.
- A broker registers behind a fence. The fence carries what its logs may have lost, adds up over lives, and is lifted by
  the controller only when no partition counts on the earlier life. That pass needs a freshly read image.
- ISR and ELR together are what may be elected. The ISR can become empty; then its last members are in the ELR.
- A topic that does not fit into one transaction is written hidden first and shown last.
"""
