"""Reads a range of one partition as Arrow batches."""

from __future__ import annotations

import time
from collections.abc import Callable, Iterator, Sequence
from dataclasses import replace
from itertools import starmap

import numpy as np
import numpy.typing as npt
import pyarrow as pa
from confluent_kafka import Consumer, KafkaError, Message, TopicPartition

from abs_clients.kafka.attempts import HEADER, FilterResult, refuse_attempts, side_topic
from abs_clients.kafka.certificates import certificate_files
from abs_clients.kafka.codes import CONSUMER_RETRIES, UNHEARD
from abs_clients.kafka.errors import to_abs_error, translate_errors
from abs_core.errors import AbsError, ReplayMismatchError
from abs_core.model import HandleName
from abs_core.patience import Patience
from abs_core.reading import rest_of
from abs_core.source import Reader, Split
from abs_sources.kafka.bounds import DATA_LOSS_REMEDY
from abs_sources.kafka.columns import attempt_of, batch_of, headers_of
from abs_sources.kafka.decoding import Decode
from abs_sources.kafka.lookup import lookup
from abs_sources.kafka.offsets import Partition, Range
from abs_sources.kafka.options import KafkaSourceOptions, log

_LOOK_SECONDS = 0.05
"""How long one call into librdkafka waits for the rest of a batch: it returns what has come by then."""
_BATCH_BYTES = 16 * 1024 * 1024
"""About how much one batch may hold; large records make batches of fewer rows."""
_SHORT_SECONDS = 10.0
"""For how long a partition may end before the range does: a new leader can lag behind the old one."""
_AGAIN_SECONDS = 0.1
"""How long a record that is not decided is left alone before it is looked at again."""
_PIECE = 1000
"""Messages that are turned into columns at a time: so many are still in the processor's cache."""
_FIRST_PIECE = 16
"""The same at the beginning, where their size is not known: a message may hold megabytes."""


Filter = Callable[[pa.BinaryArray], FilterResult]


class KafkaReader(Reader):
    """Reads a range of one partition, on a consumer of its own.

    A range ends at its last offset, not after a number of rows: transaction markers, aborted
    records and compacted records take offsets and give no rows. If nothing follows them, librdkafka
    reports the partition's end as an event.

    The topic's id is compared before the first record and after the last, so it was the same topic
    in between; also before an engine stores a position (``check``), because librdkafka silently
    continues with a recreated topic.

    With ``winners``, a range holds the records that count; an endless reader waits before an
    undecided record.

    Args:
        filter_: which records count with ``winners`` (``attempt_filter.attempt_filter``).
        waits: wait for an undecided record; otherwise it is an error in a range, because the range
            was planned up to what was decided.
        decode: of the columns that have a format.

    Raises:
        ReplayMismatchError: the topic is gone, or was recreated.
    """

    def __init__(
        self,
        options: KafkaSourceOptions,
        part: Range,
        filter_: Filter | None = None,
        *,
        waits: bool | None = None,
        decode: Decode | None = None,
    ) -> None:
        self._options = options
        self._part = part
        here = (part.topic, part.partition)
        self._skipped = [offset for *of, offset in options.skipped if tuple(of) == here]
        self._at = part.start
        self._most = options.batchsize
        self._fitting = min(_PIECE, self._most)
        self._piece = _FIRST_PIECE
        self._short_since: float | None = None
        self._filter = filter_
        self._waits = part.end is None if waits is None else waits
        self._decode = decode
        self.waiting = False
        """Whether the next record is not decided yet."""
        self._checked = False
        self._moved: float | None = None
        """When its place has changed since the topic was looked at."""
        self._check_topic()
        self._files = certificate_files(options.client)
        self._consumer = self._opened()
        self._assign(self._at)

    @property
    def position(self) -> Split:
        return replace(self._part, start=self._at).split

    @property
    def patience(self) -> Patience:
        """With the brokers."""
        return self._options.patience

    @property
    def finished(self) -> bool:
        return self._at_end and self._checked

    @property
    def _at_end(self) -> bool:
        return self._part.end is not None and self._at >= self._part.end

    def at_most(self, rows: int) -> bool:
        # Compaction may remove records of a batch's range.
        self._most = min(self._options.batchsize, rows)
        self._fitting = min(self._fitting, self._most)
        return True

    def read(self, timeout_seconds: float) -> pa.RecordBatch | None:
        """As ``Reader.read``; at most ``batchsize`` or ``at_most`` rows.

        Raises ReplayMismatchError if a record of the range is deleted, or the topic was recreated.
        """
        begin = self._at
        if (
            self._files.replaced()
        ):  # the consumer has read the old ones, and may have to connect again
            self._consumer.close()
            self._consumer = self._opened()
            self._assign(begin)
        try:
            batch = self._read(time.monotonic() + timeout_seconds)
        except AbsError:
            # What was taken and not handed out comes again, if the caller tries again.
            if self._at != begin:
                self._at = begin
                self._assign(begin)
            raise
        if self._at != begin:
            self._moved = time.monotonic()
        return batch

    def _read(self, give_up: float) -> pa.RecordBatch | None:
        pieces: list[pa.RecordBatch] = []
        if self.waiting:
            time.sleep(max(0.0, min(_AGAIN_SECONDS, give_up - time.monotonic())))
            self.waiting = False
        rows = size = 0
        # The size too: records can grow, and Arrow splits what is joined to more than 2 GiB.
        while rows < self._fitting and size < _BATCH_BYTES and not (self._at_end or self.waiting):
            left = 0.0 if pieces else max(0.0, give_up - time.monotonic())
            piece = self._take(self._consume(min(self._piece, self._fitting - rows), left))
            if piece is not None:
                pieces.append(piece)
                rows += piece.num_rows
                size += piece.nbytes
                fitting = _BATCH_BYTES * piece.num_rows // max(1, piece.nbytes)
                self._piece = max(1, min(_PIECE, fitting))
            elif left <= 0:
                break
        if pieces and self._is_of_the_topic():
            batch = self._joined(pieces)
            return batch if self._decode is None else self._decode(batch)
        if self._at_end and not self._checked:
            self._check_topic()
            self._checked = True
        return None

    def _is_of_the_topic(self) -> bool:
        """Whether what was just read may be handed out."""
        part = self._part
        if self._options.fail_on_data_loss or part.end is None:
            return True  # a later look discards it: at the end of the range, or by ``check``
        # librdkafka goes on with a new topic of that name, whose records are planned by themselves.
        if not lookup(self._options).is_still(part.topic, part.topic_id, time.monotonic()):
            self._check_topic()
        return not self._checked

    def check(self) -> None:
        """As ``Reader.check`` says, whatever ``failOnDataLoss`` is: a restart relies on it."""
        if self._moved is None:
            return
        topic = self._part.topic
        if not lookup(self._options).is_still(topic, self._part.topic_id, self._moved):
            raise ReplayMismatchError(
                f"Kafka: the topic {topic} was deleted while it was read. Records read since the "
                "last snapshot may belong to a new topic of that name, and are discarded.",
                remedy=DATA_LOSS_REMEDY,
            )
        self._moved = None

    def close(self) -> None:
        self._consumer.close()

    @property
    def _name(self) -> str:
        return f"{self._part.topic}-{self._part.partition}"

    def _take(self, messages: Sequence[Message]) -> pa.RecordBatch | None:
        """The records before the end as a batch; advances the position."""
        events = []
        if any(map(Message.error, messages)):
            events = [message for message in messages if message.error() is not None]
            messages = [message for message in messages if message.error() is None]
        offsets = np.fromiter(map(Message.offset, messages), np.int64, count=len(messages))
        end = self._part.end
        if end is not None and len(offsets) and offsets[-1] >= end:
            within = int(np.searchsorted(offsets, end))
            messages, offsets = messages[:within], offsets[:within]
            self._at = end
        elif len(offsets):
            self._at = int(offsets[-1]) + 1
        for event in events:
            self._heed(event)
        if self._skipped:
            messages, offsets = self._without_skipped(messages, offsets)
        if not len(offsets):
            return None
        self._short_since = None
        options = self._options
        asked = options.headers or options.winners is not False
        headers = headers_of(messages) if asked else []
        if options.winners is None and any(headers):
            # Planning refuses a topic with a side topic before. So a record of somebody else, whose
            # headers cannot be read, must not end a read that asks for none.
            with_headers = (pair for pair in zip(messages, headers, strict=True) if pair[1])
            refuse_attempts(starmap(attempt_of, with_headers), self._part.topic)
        filtered = None
        if self._filter is not None:
            filtered = self._filter(pa.array(map(attempt_of, messages, headers), pa.binary()))
        if filtered is not None and filtered.undecided is not None:
            messages, stopped = messages[: filtered.stop], int(offsets[filtered.stop])
            offsets, headers = offsets[: filtered.stop], headers[: filtered.stop]
            self._wait_at(stopped, filtered.undecided)
        batch = batch_of(
            messages,
            offsets,
            self._part.topic,
            self._part.partition,
            headers=headers if options.headers else None,
            # It has done its work, and must not be copied with the records to another topic.
            hidden=None if filtered is None else HEADER,
        )
        if filtered is not None:
            batch = batch.filter(filtered.keep.slice(0, filtered.stop))
        return batch if batch.num_rows else None

    def _without_skipped(
        self, messages: Sequence[Message], offsets: npt.NDArray[np.int64]
    ) -> tuple[Sequence[Message], npt.NDArray[np.int64]]:
        """Without the records that ``skipOffsets`` names."""
        out = np.isin(offsets, self._skipped)
        for offset in offsets[out]:
            log.warning(
                "skipOffsets: the record at offset %d of %s is left out", offset, self._name
            )
        kept = [message for message, skip in zip(messages, out, strict=True) if not skip]
        return kept, offsets[~out]

    def _wait_at(self, offset: int, undecided: HandleName) -> None:
        """Wait at the first undecided record until it is decided."""
        if not self._waits:
            raise ReplayMismatchError(
                f"Kafka: at {offset} of {self._name}, an epoch that was decided is undecided now.",
                handle=undecided,
                remedy=f"check whether the topic {side_topic(self._part.topic)} has lost records.",
            )
        log.info(
            "%s waits at offset %d: attempt %s of job %s is not decided. If that job never runs "
            "again: abs in-doubt abort %s --attempts %s",
            self._name,
            offset,
            undecided,
            undecided.job,
            undecided.job,
            self._part.topic,
        )
        self.waiting = True
        self._at = offset
        self._assign(offset)

    def _opened(self) -> Consumer:
        with translate_errors("setting up the consumer"):
            return Consumer(self._options.consumer)

    def _consume(self, most: int, seconds: float) -> Sequence[Message]:
        with translate_errors(f"reading {self._name}"):
            return self._consumer.consume(most, min(seconds, _LOOK_SECONDS))

    def _joined(self, pieces: Sequence[pa.RecordBatch]) -> pa.RecordBatch:
        """One batch; adapts the next batch's rows to the size of these."""
        table = pa.Table.from_batches(pieces)
        row_bytes = max(1, table.nbytes // table.num_rows)
        self._fitting = max(1, min(self._most, _BATCH_BYTES // row_bytes))
        [joined] = pieces if len(pieces) == 1 else table.combine_chunks().to_batches()
        return joined

    def _heed(self, event: Message) -> None:
        """Handle an event of librdkafka: a partition's end, or an error."""
        error = event.error()
        assert error is not None
        code = error.code()
        if code == KafkaError._PARTITION_EOF:
            self._end_of_partition(event.offset() or 0)
        elif code in (KafkaError._AUTO_OFFSET_RESET, KafkaError.OFFSET_OUT_OF_RANGE):
            self._out_of_range()
        elif code in UNHEARD:
            self._check_topic()
        elif code in CONSUMER_RETRIES:
            log.info("reading %s: %s", self._name, error.str())
        else:
            doing = f"reading {self._name} at offset {max(self._at, event.offset() or 0)}"
            raise to_abs_error(error, doing, self._options.client)

    def _end_of_partition(self, offset: int) -> None:
        """Advance to ``offset``: what is left before it are no records."""
        self._at = max(self._at, offset)
        end = self._part.end
        if end is None or self._at >= end:
            self._at = self._at if end is None else end
            self._short_since = None
            return
        if self._may_grow():
            # Reported once; a repeated request is reported again.
            self._assign(self._at)
            return
        self._lost(f"{self._name} ends at {offset}, and the range that was planned at {end}")
        self._at = end

    def _out_of_range(self) -> None:
        partition = (self._part.topic, self._part.partition)
        first = lookup(self._options).first([partition])[partition]
        if first <= self._at:
            self._beyond_the_end(partition)
            return
        self._lost(f"the records {self._at} to {first - 1} of {self._name} are deleted")
        end = self._part.end
        self._at = first if end is None else min(first, end)
        if not self._at_end:
            self._assign(self._at)

    def _beyond_the_end(self, partition: Partition) -> None:
        """The log ends earlier: on a leader that lags behind, or for good."""
        if self._may_grow():
            time.sleep(_AGAIN_SECONDS)
        else:
            end = lookup(self._options).end([partition])[partition]
            self._lost(f"{self._name} ends at {end}, and is to be read from {self._at} on")
            self._at = min(self._at, end) if self._part.end is None else self._part.end
            self._short_since = None
        if not self._at_end:
            self._assign(self._at)

    def _may_grow(self) -> bool:
        """Whether a log that ends too early does so for a short time yet: its leader may lag behind."""
        now = time.monotonic()
        self._short_since = self._short_since or now
        return now - self._short_since < _SHORT_SECONDS

    def _check_topic(self) -> None:
        """Check that the topic exists and is the planned one."""
        topic, planned = self._part.topic, self._part.topic_id
        current = lookup(self._options).topics([topic], {topic: planned}).get(topic)
        if current is not None and current.id == planned:
            return
        self._lost(
            f"the topic {topic} {'is gone' if current is None else 'was deleted and created again'}"
        )
        if self._part.end is not None:
            # The records of another topic are none of this range: they are planned by themselves.
            self._at, self._checked = self._part.end, True

    def _lost(self, loss: str) -> None:
        if self._options.fail_on_data_loss:
            raise ReplayMismatchError(f"Kafka: {loss}.", remedy=DATA_LOSS_REMEDY)
        log.warning("failOnDataLoss=false, so the job continues: %s.", loss)

    def _assign(self, offset: int) -> None:
        with translate_errors(f"reading {self._name}"):
            place = TopicPartition(self._part.topic, self._part.partition, offset)
            self._consumer.assign([place])


def rest_until_undecided(reader: KafkaReader) -> Iterator[pa.RecordBatch]:
    """The batches of the rest of a range, up to an undecided record. Raises as ``rest_of``."""
    return rest_of(reader, reader.patience, lambda: reader.finished or reader.waiting)
