"""Driver: which life of a queue a question between brokers is about (F1).

Names are for clients. A queue that was deleted and made again is another queue, and of two brokers one hears of it first. So a question
says the ids of the queue and of the topics that it is about, as the asker knows them, and who is asked compares them with its own
before it does anything. Where they differ one of the two has old news, and nobody knows which: both read the metadata again, the
asked one before it refuses and the asker before it believes the refusal
([decision 0060](../../../../../docs/decisions/0060-brokers-ask-by-id.md)).
"""

from __future__ import annotations

from collections.abc import Iterable
from typing import TypeVar

import msgspec

from headrace.broker.queueing.catalog import QueueCatalog
from headrace.broker.queueing.routing.peer_calls import (
    AskLeftBehind,
    AskMove,
    AskPeek,
    AskScheduled,
    AskSend,
    AskSettle,
    AskShareOffset,
    PeerQuestion,
)
from headrace.cluster.image import ClusterImage
from headrace.core.errors import ErrorKind, Unknown

OTHER_LIFE = ErrorKind.UNKNOWN_TOPIC_ID
"""What a question about another life is refused with; nothing has happened then."""

Q = TypeVar("Q", bound=PeerQuestion[object])


class Lives:
    def __init__(self, image: ClusterImage, catalog: QueueCatalog) -> None:
        self._image = image
        self._catalog = catalog

    def named(self, question: Q) -> Q:
        """The question, with the ids that this broker knows, unless it says already which life it means."""
        spec = self._catalog.reader(question.queue)
        known_id = "" if spec is None else spec.id
        return msgspec.structs.replace(
            question,
            queue_id=question.queue_id or known_id,
            topic_ids=question.topic_ids or self._topic_ids(question),
        )

    def check(self, question: PeerQuestion[object]) -> None:
        """Raises Unknown when it is about another life than the one that there is, as far as is known here. A topic that only one
        of the two brokers knows is such a difference, too: it may be gone, or young."""
        if question.queue_id:
            spec = self._catalog.reader(question.queue)
            if spec is None or spec.id != question.queue_id:
                raise Unknown(OTHER_LIFE, f"{question.queue} here is not the one that was asked about")
        if (question.queue_id or question.topic_ids) and question.topic_ids != self._topic_ids(question):
            raise Unknown(
                OTHER_LIFE, f"the topics of {question.queue} here are not those that were asked about"
            )

    def _topic_ids(self, question: PeerQuestion[object]) -> dict[str, bytes]:
        known = map(self._image.topic, self._topics(question))
        return {topic.name: topic.id for topic in known if topic is not None}

    def _topics(self, question: PeerQuestion[object]) -> Iterable[str]:
        match question:
            case AskSend() | AskShareOffset():
                return (question.topic,)
            case AskSettle() | AskLeftBehind() | AskScheduled():
                return (question.source.topic,)
            case AskPeek() if question.source is not None:
                return (question.source.topic,)
            case AskMove():
                return (*self._read_by(question.queue), *self._read_by(question.destination))
            case _:
                return self._read_by(question.queue)

    def _read_by(self, queue: str) -> Iterable[str]:
        spec = self._catalog.reader(queue)
        return () if spec is None else spec.topics
