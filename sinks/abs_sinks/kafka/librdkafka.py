"""librdkafka's C interface, as much of it as bulk sending needs. The only place that knows ctypes.

What is relied upon is ``rdkafka.h`` alone, the public header: functions and constants that are there
unchanged since librdkafka 1.4 (transactions), and the layout of ``rd_kafka_message_t``, the same since
0.8. librdkafka keeps its binary interface over all releases of soname 1. Nothing is assumed about the
objects of the Python binding. Its shared object is opened as a library: the symbols found through it
are those of the librdkafka that the binding itself calls, wherever that lies.

No Python function is ever given to C as a callback: what librdkafka tells is fetched as events.
"""

from __future__ import annotations

import ctypes
import platform
from ctypes import POINTER, c_char_p, c_int, c_int32, c_int64, c_size_t, c_void_p
from functools import cache
from typing import Any

import confluent_kafka

from abs_sinks.kafka.private import binding_file

PRODUCER = 0  # RD_KAFKA_PRODUCER
CONF_OK = 0  # RD_KAFKA_CONF_OK
COPY = 0x2  # RD_KAFKA_MSG_F_COPY
PER_MESSAGE_PARTITION = 0x8  # RD_KAFKA_MSG_F_PARTITION
ANY_PARTITION = -1  # RD_KAFKA_PARTITION_UA
DELIVERY, LOG, ERROR = 0x1, 0x4, 0x8  # RD_KAFKA_EVENT_DR, _LOG, _ERROR

TEXT_BYTES = 512
"""Room for what librdkafka says of a bad setting."""


class Message(ctypes.Structure):
    """``rd_kafka_message_t``; pointers are numbers, so that numpy can fill a column of them."""

    _fields_ = (
        ("err", c_int),
        ("rkt", c_size_t),
        ("partition", c_int32),
        ("payload", c_size_t),
        ("len", c_size_t),
        ("key", c_size_t),
        ("key_len", c_size_t),
        ("offset", c_int64),
        ("_private", c_size_t),
    )


_SIGNATURES: dict[str, tuple[Any, tuple[Any, ...]]] = {
    "rd_kafka_version": (c_int, ()),
    "rd_kafka_last_error": (c_int, ()),
    "rd_kafka_conf_new": (c_void_p, ()),
    "rd_kafka_conf_destroy": (None, (c_void_p,)),
    "rd_kafka_conf_set": (c_int, (c_void_p, c_char_p, c_char_p, c_char_p, c_size_t)),
    "rd_kafka_conf_set_events": (None, (c_void_p, c_int)),
    "rd_kafka_new": (c_void_p, (c_int, c_void_p, c_char_p, c_size_t)),
    "rd_kafka_destroy": (None, (c_void_p,)),
    "rd_kafka_set_log_queue": (c_int, (c_void_p, c_void_p)),
    "rd_kafka_topic_new": (c_void_p, (c_void_p, c_char_p, c_void_p)),
    "rd_kafka_topic_name": (c_char_p, (c_void_p,)),
    "rd_kafka_topic_destroy": (None, (c_void_p,)),
    "rd_kafka_metadata": (c_int, (c_void_p, c_int, c_void_p, POINTER(c_void_p), c_int)),
    "rd_kafka_metadata_destroy": (None, (c_void_p,)),
    "rd_kafka_produce_batch": (c_int, (c_void_p, c_int32, c_int, c_void_p, c_int)),
    "rd_kafka_flush": (c_int, (c_void_p, c_int)),
    "rd_kafka_outq_len": (c_int, (c_void_p,)),
    "rd_kafka_init_transactions": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_begin_transaction": (c_void_p, (c_void_p,)),
    "rd_kafka_commit_transaction": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_error_code": (c_int, (c_void_p,)),
    "rd_kafka_error_string": (c_char_p, (c_void_p,)),
    "rd_kafka_error_is_fatal": (c_int, (c_void_p,)),
    "rd_kafka_error_is_retriable": (c_int, (c_void_p,)),
    "rd_kafka_error_txn_requires_abort": (c_int, (c_void_p,)),
    "rd_kafka_error_destroy": (None, (c_void_p,)),
    "rd_kafka_queue_get_main": (c_void_p, (c_void_p,)),
    "rd_kafka_queue_poll": (c_void_p, (c_void_p, c_int)),
    "rd_kafka_queue_destroy": (None, (c_void_p,)),
    "rd_kafka_event_type": (c_int, (c_void_p,)),
    "rd_kafka_event_error": (c_int, (c_void_p,)),
    "rd_kafka_event_error_string": (c_char_p, (c_void_p,)),
    "rd_kafka_event_error_is_fatal": (c_int, (c_void_p,)),
    "rd_kafka_event_message_next": (POINTER(Message), (c_void_p,)),
    "rd_kafka_event_log": (c_int, (c_void_p, POINTER(c_char_p), POINTER(c_char_p), POINTER(c_int))),
    "rd_kafka_event_destroy": (None, (c_void_p,)),
}


@cache
def library() -> Any:
    """The library with its functions declared; None where it cannot be called from here.

    That is on another Python than CPython, where the binding has librdkafka linked in without its
    symbols, and where what is found is not of the version that the binding tells.
    """
    if platform.python_implementation() != "CPython" or (file := binding_file()) is None:
        return None
    try:
        found = ctypes.CDLL(file)
        for name, (result, arguments) in _SIGNATURES.items():
            function = getattr(found, name)
            function.restype, function.argtypes = result, arguments
    except (OSError, AttributeError):
        return None
    return found if found.rd_kafka_version() == confluent_kafka.libversion()[1] else None
