"""Leader and follower of one partition: ISR and high watermark. Pure.

    events      what a leader is told and what it wants done
    leader      one leader epoch: who is in sync, what is committed
    progress    what a leader knows of one follower
    follower    what to ask the leader for, and what to do with its answer
    acks        producers that wait for a commit

Not obvious:

- An ISR change is a proposal until the coordinator has it; until then the high watermark waits for the old and the new
  ISR. A proposal whose outcome is unknown stays in mind until a newer revision of the partition is seen; if none comes,
  the leader writes the partition as it is, which settles it.
- Nothing is committed while the partition's ELR holds anyone outside the ISR, even if the ISR is large enough (after
  min.insync.replicas was lowered).
- A follower's fetch offset says that it holds everything below for good, so with headrace.flush=commit it fetches on
  only when that is synced.
- When a replica starts to follow, epochs that its log has begun without writing (R10) are void and must be dropped from
  its cache; another leader's older batches may go where they began.
"""
