"""Protocol idempotent: records are sent at once, each with the name of the attempt that wrote it.

They are visible before the epoch is decided, and those of a losing attempt stay. Who reads by the
winners (``abs_clients.kafka.attempts``, our source) sees each record once.
"""

from __future__ import annotations

import pyarrow as pa
from confluent_kafka import Producer

from abs_clients.kafka.attempts import header_of
from abs_clients.kafka.configs import producer_settings
from abs_clients.kafka.errors import translate_errors
from abs_core.contracts import Task
from abs_core.crash import CrashPoint, reached
from abs_core.model import Committable
from abs_sinks.kafka.fit import Fit
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import plan_columns, records_of
from abs_sinks.kafka.sending import Failures, Sender
from abs_sinks.kafka.winners import winners_topic


class AttemptWriter:
    """Sends with an idempotent producer of its own, outside any transaction."""

    def __init__(self, options: KafkaOptions, schema: pa.Schema, task: Task) -> None:
        self._options = options
        self._columns = plan_columns(schema, options.topic)
        self._handle = task.handle
        self._header = header_of(task.handle)
        self._fit = Fit(options)
        self._producer: Producer | None = None
        self._sender: Sender | None = None

    def write(self, batch: pa.RecordBatch) -> None:
        """See ``Writer``.

        Raises:
            PreflightError: the topic is compacted, or its side topic would lose winners.
        """
        if batch.num_rows == 0:
            return
        first = self._sender is None
        done = 0 if self._sender is None else self._sender.rows
        records = records_of(batch, self._columns, done)
        self._fit.check(records, done)
        sender = self._begin() if self._sender is None else self._sender
        sender.send(records, [self._header])
        if first:
            reached(CrashPoint.AFTER_FIRST_BATCH)

    def pre_commit(self) -> Committable | None:
        if self._sender is None:
            return None
        self._sender.flush()
        reached(CrashPoint.BEFORE_PRE_COMMIT)
        found = Committable(
            self._handle, self._sender.rows, self._sender.digest, (("protocol", "idempotent"),)
        )
        self._producer = self._sender = None
        reached(CrashPoint.AFTER_PRE_COMMIT)
        return found

    def abort(self) -> None:
        if self._producer is not None:
            self._producer.purge(in_queue=True, in_flight=False, blocking=False)
            self._producer = self._sender = None

    def _begin(self) -> Sender:
        winners_topic(self._options, self._handle.job)  # refuse before a record is there for good
        failures = Failures(self._options.kafka)
        with translate_errors("opening a producer"):
            self._producer = Producer(
                producer_settings(
                    self._options.kafka, None, failures.report, self._options.patience.seconds
                )
            )
        self._sender = Sender(
            self._producer, failures, self._options.topic, self._options.patience.seconds
        )
        return self._sender
