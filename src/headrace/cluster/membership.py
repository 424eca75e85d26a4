"""Machine: how a broker joins, is fenced, is let back in and says goodbye, and how a controller is chosen.

A broker registers behind a fence. Only the controller lifts it, and only after the broker has been taken out of every
ISR and leadership it held in an earlier life (R4), and out of the ELR where its logs may have lost something (R29).
Invariant: a loss is carried from fence to fence until the controller has acted on it.
"""

from __future__ import annotations

from dataclasses import dataclass
from typing import NamedTuple

from headrace.cluster import keys
from headrace.cluster.changes import Change, DeleteKey, Expect, Op, PutKey, absent, controller_is
from headrace.cluster.image import ClusterImage
from headrace.cluster.state import (
    BrokerRegistration,
    ControllerState,
    Fence,
    FenceReason,
    Life,
    Loss,
    NextProducerId,
    encode,
)
from headrace.cluster.topic_configs import TopicConfig
from headrace.core.errors import ErrorKind
from headrace.core.plan import Rejected

PRODUCER_IDS_PER_BLOCK = 1_000


class PreviousLife(NamedTuple):
    """What the data directory remembers: written and synced after each registration, before the logs are used (R33)."""

    broker_epoch: int
    clean: bool
    """It holds a clean-shutdown marker of exactly that epoch."""
    incarnations: tuple[str, ...] = ()
    """Lives that tried to register from this directory since, which may have died before they learnt their epoch."""


def register(
    image: ClusterImage,
    broker_id: int,
    registration: BrokerRegistration,
    *,
    lease: int,
    previous: PreviousLife | None,
    durable: bool,
) -> Change | Rejected:
    """Join the cluster, fenced. `image` must be freshly read (R2); the transaction checks what was read.

    The broker epoch is the revision of this transaction. `durable` asserts that topics with headrace.flush=commit are
    synced before they are acknowledged, so that a crash costs only the others (R29). A registration that is still there
    is replaced only by the same process, or by the owner of the data directory it was made with: holding that directory's
    lock proves that the other process is gone.
    """
    held = image.broker(broker_id)
    if (
        held is not None
        and held.registration.incarnation != registration.incarnation
        and (previous is None or not _was_ours(previous, held.epoch, held.registration.incarnation))
    ):
        return Rejected(
            ErrorKind.DUPLICATE_BROKER_REGISTRATION,
            f"broker {broker_id} is already registered from {held.registration.host}:{held.registration.port}; "
            "give this one another id, or wait until the other one's lease ends",
        )
    fence = image.fence(broker_id)
    loss = _loss(image, broker_id, registration, previous, durable=durable)
    if fence is not None:
        loss = max(loss, fence.loss)
    previous_epoch = image.mod_revision(keys.epoch(broker_id))
    return Change(
        compares=(
            Expect(keys.broker(broker_id), "mod", image.mod_revision(keys.broker(broker_id))),
            Expect(keys.epoch(broker_id), "mod", previous_epoch),
            Expect(keys.fence(broker_id), "mod", image.mod_revision(keys.fence(broker_id))),
        ),
        ops=(
            # First, so that a watcher never sees the registration without its fence.
            PutKey(keys.fence(broker_id), encode(Fence(FenceReason.STARTING, previous_epoch, loss))),
            PutKey(keys.epoch(broker_id), encode(Life(registration.incarnation))),
            PutKey(keys.broker(broker_id), encode(registration), lease),
        ),
        why=f"broker {broker_id} registers",
    )


def _loss(
    image: ClusterImage,
    broker_id: int,
    registration: BrokerRegistration,
    previous: PreviousLife | None,
    *,
    durable: bool,
) -> Loss:
    life = image.life(broker_id)
    if life is None:
        # A new broker, unless its directory says otherwise: then the cluster has forgotten it (see `unregister`).
        return Loss.NOTHING if previous is None or not previous.broker_epoch else Loss.EVERYTHING
    if life.incarnation == registration.incarnation:
        return Loss.NOTHING
    if previous is None or not _was_ours(
        previous, image.mod_revision(keys.epoch(broker_id)), life.incarnation
    ):
        # Another disk than that of the last life, or one that never learnt of it.
        return Loss.EVERYTHING
    if previous.clean and previous.broker_epoch == image.mod_revision(keys.epoch(broker_id)):
        return Loss.MEMORY
    return Loss.UNSYNCED if durable else Loss.EVERYTHING


def _was_ours(previous: PreviousLife, epoch: int, incarnation: str) -> bool:
    """The data directory belonged to that life. One that died before it learnt its epoch never used the logs."""
    return previous.broker_epoch == epoch or incarnation in previous.incarnations


def loses(config: TopicConfig, loss: Loss) -> bool:
    """Whether a replica of a topic may have lost something it once held (R29)."""
    if config.is_memory:
        return loss >= Loss.MEMORY
    if config.flush != "commit":
        return loss >= Loss.UNSYNCED
    return loss >= Loss.EVERYTHING


def fence_suspect(image: ClusterImage, broker_id: int, controller_epoch: int) -> Change | None:
    """Peers saw the broker's connections break: fence it now instead of waiting for its lease (R8 makes that safe).

    A broker that finds itself fenced while it lives registers again with the same incarnation. When the suspect is the
    controller it is deposed in the same transaction, or nobody could act on the fence until its lease ends; a deposed
    controller's transactions are refused (R1).
    """
    broker = image.broker(broker_id)
    if broker is None or broker.fence is not None:
        return None
    ops: tuple[Op, ...] = (PutKey(keys.fence(broker_id), encode(Fence(FenceReason.SUSPECTED, broker.epoch))),)
    if image.controller is not None and image.controller.broker_id == broker_id:
        ops = (*ops, DeleteKey(keys.CONTROLLER))
    return Change(
        compares=(
            controller_is(controller_epoch),
            Expect(keys.broker(broker_id), "mod", broker.epoch),
            absent(keys.fence(broker_id)),
        ),
        ops=ops,
        why=f"broker {broker_id} is suspected",
    )


def announce_stop(image: ClusterImage, broker_id: int) -> Change | None:
    """Controlled shutdown (R33), written by the broker itself: the controller moves its leaderships away."""
    broker = image.broker(broker_id)
    if broker is None:
        return None
    loss = broker.fence.loss if broker.fence is not None else Loss.NOTHING
    return Change(
        compares=(
            Expect(keys.broker(broker_id), "mod", broker.epoch),
            Expect(keys.fence(broker_id), "mod", image.mod_revision(keys.fence(broker_id))),
        ),
        ops=(PutKey(keys.fence(broker_id), encode(Fence(FenceReason.STOPPING, broker.epoch, loss))),),
        why=f"broker {broker_id} is stopping",
    )


def unregister(image: ClusterImage, broker_id: int, controller_epoch: int) -> Change | Rejected:
    """Forget a broker that is gone for good (KIP-631). Should its disk come back, it counts as having lost everything.

    One that lives would just register again, and one that still has replicas may be the only one that has their data:
    both are refused, though Kafka takes them.
    """
    if image.is_live(broker_id):
        return Rejected(ErrorKind.INVALID_REQUEST, f"broker {broker_id} is alive; stop it first")
    if image.broker(broker_id) is None and image.life(broker_id) is None:
        return Rejected(ErrorKind.BROKER_ID_NOT_REGISTERED, f"there is no broker {broker_id}")
    held = [
        f"{topic.name}-{number}"
        for topic, number, partition in image.all_partitions()
        if broker_id in partition.replicas
    ]
    if held:
        more = f" and {len(held) - 3} more" if len(held) > 3 else ""
        detail = (
            f"broker {broker_id} has replicas of {', '.join(held[:3])}{more}; move them off first (drain)"
        )
        return Rejected(ErrorKind.INVALID_REQUEST, detail)
    names = (
        keys.broker(broker_id), keys.epoch(broker_id), keys.fence(broker_id), keys.broker_config(broker_id)
    )  # fmt: skip
    return Change(
        compares=(
            controller_is(controller_epoch),
            *(Expect(name, "mod", image.mod_revision(name)) for name in names[:3]),
        ),
        ops=tuple(DeleteKey(name) for name in names),
        why=f"broker {broker_id} is forgotten",
    )


def must_register_again(image: ClusterImage, broker_id: int, broker_epoch: int | None = None) -> bool:
    """A broker that lives but whose registration ended, was fenced on suspicion, or is not the one it knows (F10)."""
    broker = image.broker(broker_id)
    if broker is None or (broker_epoch is not None and broker.epoch != broker_epoch):
        return True
    return broker.fence is not None and broker.fence.reason is FenceReason.SUSPECTED


def unfence(image: ClusterImage, broker_id: int, controller_epoch: int) -> Change | None:
    """Let a starting broker in, once no partition counts on its earlier life (R4). None while one does.

    `image` must have been read afresh after the registration: the partitions can't all be compared in one transaction.
    They can't come back either, because only an unfenced broker is added to an ISR (R14).
    """
    broker = image.broker(broker_id)
    if broker is None or broker.fence is None or broker.fence.reason is not FenceReason.STARTING:
        return None
    for topic, _, partition in image.all_partitions():
        if broker_id == partition.leader or broker_id in partition.isr:
            return None
        if (
            broker_id in partition.elr
            and len(partition.replicas) > 1
            and loses(topic.config, broker.fence.loss)
        ):
            return None
    return Change(
        compares=(
            controller_is(controller_epoch),
            Expect(keys.broker(broker_id), "mod", broker.epoch),
            Expect(keys.fence(broker_id), "mod", image.mod_revision(keys.fence(broker_id))),
        ),
        ops=(DeleteKey(keys.fence(broker_id)),),
        why=f"broker {broker_id} is let in",
    )


def become_controller(image: ClusterImage, broker_id: int, broker_epoch: int, lease: int) -> Change | None:
    """Stand for controller: whoever creates the key first is it. A fenced broker may be controller: it lets itself in."""
    if image.controller is not None:
        return None
    return Change(
        compares=(absent(keys.CONTROLLER), Expect(keys.broker(broker_id), "mod", broker_epoch)),
        ops=(PutKey(keys.CONTROLLER, encode(ControllerState(broker_id, broker_epoch)), lease),),
        why=f"broker {broker_id} becomes controller",
    )


@dataclass(frozen=True, slots=True)
class ReservedProducerIds:
    """`count` ids from `first` on: yours once `change` is committed, never before (R37). Unused ones are lost for ever."""

    first: int
    count: int
    change: Change


def reserve_producer_ids(
    image: ClusterImage,
    broker_id: int,
    broker_epoch: int,
    count: int = PRODUCER_IDS_PER_BLOCK,
    *,
    above: int = 0,
) -> ReservedProducerIds:
    """The next block of the cluster; not below `above`, where this broker has handed out ids already."""
    first = max(above, image.producer_ids.next_producer_id if image.producer_ids is not None else 0)
    change = Change(
        compares=(
            Expect(keys.PRODUCER_IDS, "mod", image.mod_revision(keys.PRODUCER_IDS)),
            Expect(keys.broker(broker_id), "mod", broker_epoch),
        ),
        ops=(PutKey(keys.PRODUCER_IDS, encode(NextProducerId(first + count))),),
        why=f"broker {broker_id} takes producer ids {first}..{first + count - 1}",
    )
    return ReservedProducerIds(first, count, change)
