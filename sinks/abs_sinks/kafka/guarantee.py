"""What each protocol promises, in words for the person who starts the job."""

from __future__ import annotations

from abs_core.model import Guarantee
from abs_sinks.kafka.options import KafkaOptions

_READ_COMMITTED = (
    "isolation.level=read_committed (librdkafka's default; the Java client's is read_uncommitted, "
    "and shows rows of epochs that never commit)"
)

_VISIBILITY = {
    "2pc": "per task: when the epoch is committed, its tasks' records appear one transaction after "
    "another, within milliseconds of each other",
    "wal": "whole epoch: all of its records, of all partitions and topics, are one transaction",
    "idempotent": "per task, and before the epoch is decided: only a reader that knows the winners "
    "(our source abs-kafka) sees each record once",
}

_READER = {
    "2pc": _READ_COMMITTED,
    "wal": _READ_COMMITTED,
    "idempotent": "our source abs-kafka, which drops the records of attempts that lost",
}

_LIMITS = {
    "2pc": (
        (
            "Between pre-commit and commit a transaction is open: readers with read_committed wait "
            "at its first record. One left behind by a killed process holds them up until the next "
            "epoch's task on its machine, the job's next start, or kafka.transaction.timeout.ms."
        ),
        (
            "The broker aborts a transaction that is older than kafka.transaction.timeout.ms. If the "
            "job is down for longer between decision and commit, the records of that epoch are "
            "lost; the job then stops and names them."
        ),
        "Order within a partition holds within a task, not between the tasks of an epoch.",
    ),
    "wal": ("The records of an epoch pass through the driver, in one transaction.",),
    "idempotent": ("Compacted topics cannot be written: a loser could be the newest value.",),
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
