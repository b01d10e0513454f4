"""The common base of the three protocols' writers: it checks records before they are sent."""

from __future__ import annotations

import time
from abc import abstractmethod
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.topics import AFTER, BEFORE, NO_LIMIT, TopicFacts, topics_in_time
from abs_core.contracts import Task
from abs_core.errors import RowError, SchemaError
from abs_core.model import Committable
from abs_sinks.checking import CheckingWriter
from abs_sinks.kafka.changes import plan_changes
from abs_sinks.kafka.formats import encoding
from abs_sinks.kafka.keys import no_topic
from abs_sinks.kafka.letters import letter_records
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.kafka.records import (
    Records,
    plan_columns,
    records_of,
    refuse_wall_clock,
)
from abs_sinks.kafka.sizes import Sizes
from abs_sinks.refusals import BadValuesError, Code, Reason, refuse

CLOCKS_MS = 60_000
"""How far this machine's clock may be from a broker's."""


class RecordWriter(CheckingWriter):
    """A ``Writer`` that checks each batch before it keeps any of its records.

    Args:
        more_bytes: added to each record.
    """

    def __init__(
        self, options: KafkaOptions, schema: pa.Schema, task: Task, *, more_bytes: int = 0
    ) -> None:
        super().__init__(options, task, options.topic or "*", ("key",))
        self._options = options
        self._encoding = encoding(options, schema, task)
        self._columns = plan_columns(self._encoding.schema, options.topic)
        refuse_wall_clock(self._encoding.schema, self._columns)
        self._changes = plan_changes(schema, options)
        self._encoded: pa.RecordBatch | None = None  # what was checked last
        self._patience = replace(options.patience, job=task.job)
        self._sizes = Sizes(options.kafka, options.choice.columnar, more_bytes)

    offers = "a topic"

    def write(self, batch: pa.RecordBatch) -> None:
        for part in self._encoding.parts(batch):
            super().write(part)

    def pre_commit(self) -> Committable | None:
        return self._encoding.noted(super().pre_commit())

    @abstractmethod
    def _keep_checked(self, batch: pa.RecordBatch | None, checked: Records) -> None:
        """Keep a checked batch; ``checked`` are its rows. None: they are dead letters."""

    def _checked(self, batch: pa.RecordBatch) -> Records:
        """See ``CheckingWriter``.

        Raises:
            SchemaError: the option's topic does not exist.
            BadValuesError: a row names a topic that does not exist, is internal, or holds registers or
                winners; names a missing partition, is too large, has a time that the topic does not
                take, or has no key for a compacted topic.
        """
        if self._changes is not None:
            self._changes.check(batch)
            batch = self._changes.applied(batch)
        batch = self._encoded = self._encoding.encoded(batch)
        records = records_of(batch, self._columns)
        self._check(records)
        return records

    def _bury(self, letters: pa.RecordBatch) -> None:
        topic = self._options.letters
        assert topic is not None
        records = letter_records(letters, topic, self._task.partition)
        try:
            self._check(records)
        except BadValuesError as error:
            raise RowError(
                f"A dead letter cannot be written to topic {topic}. {error.what}",
                remedy=error.remedy,
                job=self._task.job,
                epoch=self._task.epoch,
            ) from None
        self._keep_checked(None, records)

    def _check(self, records: Records) -> None:
        if records.topics is None:
            assert self._options.topic is not None
            facts = self._of([self._options.topic])
            if not facts:
                raise no_topic(self._options.topic)
            self._check_one(records, facts[self._options.topic], None)
            return
        self._refuse_own(records.topics)
        names = pc.unique(records.topics).to_pylist()
        facts = self._of(names)
        present = pa.array(list(facts), pa.string())
        unknown = pc.invert(pc.is_in(records.topics, present))
        missing = sorted(set(names) - set(facts))
        why = f"name a topic that does not exist ({', '.join(missing[:3])})"
        remedy = "create it, or correct the column topic"
        refuse(Reason(Code.TOPIC, "topic", why, remedy), unknown)
        for name in names:
            self._check_one(records, facts[name], pc.equal(records.topics, name))

    def _refuse_own(self, topics: pa.StringArray) -> None:
        """Refuse rows for registers or side topics: a copy of all topics would contain such rows."""
        register = self._options.registertopic
        own: Any = pc.or_(pc.equal(topics, register), pc.ends_with(topics, side_topic("")))
        why = (
            f"name a topic that is this sink's own ({register}, or one that ends with "
            f"{side_topic('')})"
        )
        remedy = "filter such rows out; their content is of no use in another cluster"
        refuse(Reason(Code.TOPIC, "topic", why, remedy), own)

    def _of(self, names: list[str], *, again: bool = False) -> dict[str, TopicFacts]:
        look = partial(topics_in_time, self._options.kafka, names, again=again)
        return self._patience.retry(look)

    def _check_one(
        self, records: Records, topic: TopicFacts, among: pa.BooleanArray | None
    ) -> None:
        """Check the records of one topic; ``among`` is true for them, None if all are."""
        times = records.timestamps
        if topic.stamps_itself and times is not None and times.null_count < len(times):
            raise SchemaError(
                f"Topic {topic.name} gives each record the time of its arrival "
                "(message.timestamp.type=LogAppendTime): the values of the column timestamp would be "
                "replaced.",
                remedy="drop the column timestamp, or set message.timestamp.type=CreateTime.",
            )
        for wrong in (_nul_in_header, _internal, self._too_large, _misplaced, _keyless, _untimely):
            problem = wrong(records, topic, among)
            if problem is None or not pc.any(problem.rows).as_py():
                continue
            # Read the topic's facts again: its limits may have been raised.
            now = self._of([topic.name], again=True).get(topic.name)
            if now is None:
                raise RowError(f"Topic {topic.name} has gone.", remedy="create it again.")
            if (problem := wrong(records, now, among)) is not None:
                refuse(problem.reason, problem.rows)

    def _too_large(
        self, records: Records, topic: TopicFacts, among: pa.BooleanArray | None
    ) -> _Wrong | None:
        problem = self._sizes.too_large(records, topic, among)
        if problem is None:
            return None
        return _Wrong(problem.rows, Reason(Code.TOO_LARGE, "", problem.why, problem.remedy))


@dataclass(frozen=True, slots=True)
class _Wrong:
    """What is wrong with the rows that are true in ``rows``."""

    rows: pa.BooleanArray
    reason: Reason


def _nul_in_header(
    records: Records, topic: TopicFacts, among: pa.BooleanArray | None
) -> _Wrong | None:
    if records.headers is None:
        return None
    keys = records.headers.flatten().field(0)
    # Not as a regular expression, which costs more.
    if not pc.any(pc.match_substring(keys, "\0")).as_py():
        return None
    lengths = pc.list_value_length(records.headers).fill_null(0).to_numpy(zero_copy_only=False)
    owners = np.repeat(np.arange(records.rows), lengths)
    bad = owners[pc.match_substring(keys, "\0").to_numpy(zero_copy_only=False)]
    rows = pa.array(np.isin(np.arange(records.rows), bad))
    why = "hold a header whose key has a NUL, where clients in C end it"
    reason = Reason(Code.MALFORMED, "headers", why, "correct the header's key")
    return _Wrong(_both(rows, among), reason)


def _internal(records: Records, topic: TopicFacts, among: pa.BooleanArray | None) -> _Wrong | None:
    if not topic.internal:
        return None
    rows = pa.repeat(True, records.rows) if among is None else among
    why = f"go to topic {topic.name}, which the brokers keep for themselves"
    remedy = "filter the rows of such topics out, or write to another topic"
    return _Wrong(rows, Reason(Code.TOPIC, "" if records.topics is None else "topic", why, remedy))


def _untimely(records: Records, topic: TopicFacts, among: pa.BooleanArray | None) -> _Wrong | None:
    if records.timestamps is None or topic.time_limits is None:
        return None
    before, after = topic.time_limits
    # Within the slack the broker decides, whose clock may differ from this machine's.
    now = time.time_ns() // 1_000_000
    early = pc.less(records.timestamps, now - before - CLOCKS_MS)
    late = pc.greater(records.timestamps, min(now + after + CLOCKS_MS, NO_LIMIT))
    why = f"are times that topic {topic.name} does not take: {BEFORE} is {before}, {AFTER} {after}"
    remedy = "correct them, or raise that setting of the topic; null is the time of sending"
    untimely = _both(pc.or_(early, late).fill_null(False), among)
    return _Wrong(untimely, Reason(Code.OUT_OF_RANGE, "timestamp", why, remedy))


def _misplaced(records: Records, topic: TopicFacts, among: pa.BooleanArray | None) -> _Wrong | None:
    if records.partitions is None:
        return None
    beyond = pc.greater_equal(records.partitions, topic.partitions).fill_null(False)
    why = f"name a partition that topic {topic.name} does not have (it has {topic.partitions})"
    remedy = "correct the column partition, or add partitions"
    return _Wrong(_both(beyond, among), Reason(Code.PARTITION, "partition", why, remedy))


def _keyless(records: Records, topic: TopicFacts, among: pa.BooleanArray | None) -> _Wrong | None:
    if not topic.compacted:
        return None
    keyless = pc.is_null(pa.nulls(records.rows) if records.keys is None else records.keys)
    why = f"have no key, and topic {topic.name} is compacted"
    remedy = "give each a key, or set cleanup.policy=delete"
    return _Wrong(_both(keyless, among), Reason(Code.KEY_MISSING, "", why, remedy))


def _both(wrong: pa.BooleanArray, among: pa.BooleanArray | None) -> pa.BooleanArray:
    return wrong if among is None else pc.and_(wrong, among)
