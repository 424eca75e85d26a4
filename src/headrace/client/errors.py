"""Adapter: librdkafka's errors as our own. Broker codes are the same numbers; local ones get the nearest meaning."""

from __future__ import annotations

from confluent_kafka import KafkaError

from headrace.core.errors import ErrorKind, HeadraceError

_LOCAL = {
    KafkaError._TRANSPORT: ErrorKind.BROKER_NOT_AVAILABLE,
    KafkaError._ALL_BROKERS_DOWN: ErrorKind.BROKER_NOT_AVAILABLE,
    KafkaError._RESOLVE: ErrorKind.BROKER_NOT_AVAILABLE,
    KafkaError._TIMED_OUT: ErrorKind.REQUEST_TIMED_OUT,
    KafkaError._TIMED_OUT_QUEUE: ErrorKind.REQUEST_TIMED_OUT,
    KafkaError._MSG_TIMED_OUT: ErrorKind.REQUEST_TIMED_OUT,
    KafkaError._WAIT_COORD: ErrorKind.COORDINATOR_NOT_AVAILABLE,
    KafkaError._UNKNOWN_TOPIC: ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError._UNKNOWN_PARTITION: ErrorKind.UNKNOWN_TOPIC_OR_PARTITION,
    KafkaError._UNKNOWN_GROUP: ErrorKind.GROUP_ID_NOT_FOUND,
    KafkaError._AUTHENTICATION: ErrorKind.SASL_AUTHENTICATION_FAILED,
    KafkaError._FENCED: ErrorKind.PRODUCER_FENCED,
    KafkaError._AUTO_OFFSET_RESET: ErrorKind.OFFSET_OUT_OF_RANGE,
    KafkaError.MSG_SIZE_TOO_LARGE: ErrorKind.MESSAGE_TOO_LARGE,
    KafkaError._INVALID_ARG: ErrorKind.INVALID_PARAMETER,
}
_KINDS = {kind.value: kind for kind in ErrorKind}


def headrace_error(error: KafkaError) -> HeadraceError:
    code = error.code()
    kind = _LOCAL.get(code) or _KINDS.get(code) or ErrorKind.UNKNOWN_SERVER_ERROR
    # librdkafka puts "Broker: " and "Local: " in front; what a person needs comes after.
    text = error.str() or error.name()
    for prefix in ("Broker: ", "Local: "):
        text = text.removeprefix(prefix)
    hint = "" if kind is ErrorKind.UNKNOWN_SERVER_ERROR else kind.info.hint
    detail = text[:1].lower() + text[1:] if text[1:2].islower() else text
    return HeadraceError(kind, detail, hint)
