"""The printed guarantee of each protocol."""

from __future__ import annotations

from abs_core.model import Guarantee
from abs_sinks.kafka.options import KafkaOptions

_READ_COMMITTED = (
    "set isolation.level=read_committed (librdkafka's default; the Java client's default is "
    "read_uncommitted, which shows records of epochs that never commit)"
)

_VISIBILITY = {
    "2pc": "per task: when the epoch is committed, its transactions become visible one after "
    "another, within milliseconds",
    "wal": "whole epoch: all its records, in all partitions and topics, are one transaction",
    "idempotent": "per task, before the epoch is decided: only readers that read the side topic "
    "(the source abs-kafka with winners=true) see each record once",
}

_READER = {
    "2pc": _READ_COMMITTED,
    "wal": _READ_COMMITTED,
    "idempotent": "use the source abs-kafka with winners=true, which drops losing attempts",
}

_LIMITS = {
    "2pc": (
        (
            "Between pre-commit and commit a transaction is open: readers with read_committed wait "
            "at its first record. An open transaction of a killed process is ended by the next "
            "epoch's task on its machine, the job's next start, or kafka.transaction.timeout.ms."
        ),
        (
            "The broker aborts a transaction that is older than kafka.transaction.timeout.ms. If the "
            "job is down for longer between decision and commit, the records of that epoch are "
            "lost; the job then stops and names them."
        ),
        "Within a partition, records of one task keep their order; records of different tasks do not.",
    ),
    "wal": ("The driver sends all records of an epoch, in one transaction.",),
    "idempotent": (
        "Compacted topics are refused: a losing attempt could hold the newest value of a key.",
    ),
}


def guarantee(options: KafkaOptions) -> Guarantee:
    """The guarantee that follows from the options."""
    return Guarantee(
        protocol=options.protocol,
        write="append",
        visibility=_VISIBILITY[options.protocol],
        reader=_READER[options.protocol],
        limits=_LIMITS[options.protocol],
        notes=(options.choice.text,),
    )
