"""Topics as a replayable source: the engine stores the offsets, Kafka stores the records."""

from __future__ import annotations

from collections.abc import Collection, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Self

import pyarrow as pa

from abs_clients.kafka.admin import fits
from abs_clients.kafka.attempts import side_topic
from abs_clients.kafka.cluster import cluster
from abs_core.errors import ConfigError, OptionError, RefusedError, ReplayMismatchError
from abs_core.patience import Patience
from abs_core.source import Limit, Offsets, Reader, Source, Split
from abs_sources.kafka.attempt_filter import attempt_filter, decided_until
from abs_sources.kafka.bounds import DATA_LOSS_REMEDY, LATEST, Bound, resolve
from abs_sources.kafka.columns import SCHEMA, SCHEMA_WITH_HEADERS
from abs_sources.kafka.decoding import decoder, read_schema, with_pins
from abs_sources.kafka.lookup import lookup
from abs_sources.kafka.offsets import Partition, Range, TopicOffsets
from abs_sources.kafka.options import KafkaSourceOptions, log
from abs_sources.kafka.planning import Facts, advance, begins, losses, ranges
from abs_sources.kafka.reader import KafkaReader


@dataclass(frozen=True)
class KafkaSource(Source):
    """Reads topics, with the columns of Spark's own Kafka source (``columns.SCHEMA``).

    A range always reads the same, or raises ``ReplayMismatchError``: if its records were deleted,
    its topic was recreated, or the log ends before it. Under ``read_committed`` (the default) it
    holds the records of committed transactions and non-transactional ones, up to the last stable
    offset. Compaction is not detected: a compacted topic guarantees only the newest record of each
    key.

    No consumer group is joined and no offset is committed to Kafka. A split is a part of one
    partition; ``Limit.rows`` counts offsets, including transaction markers; other limits are
    ignored. New partitions are read from their first record; the embedded runtime, whose splits are
    endless, finds them when the job restarts.

    Args:
        closed: the end, for a closed source.
    """

    options: KafkaSourceOptions
    closed: Offsets | None = None

    @property
    def schema(self) -> pa.Schema:
        """``columns.SCHEMA``, or ``SCHEMA_WITH_HEADERS``, with the columns that are decoded."""
        raw = SCHEMA_WITH_HEADERS if self.options.headers else SCHEMA
        return read_schema(self.pinned().options.formats, raw)

    def pinned(self) -> Self:
        """This source with the schemas that the registry has now, for readers elsewhere.

        Raises:
            SchemaError: the registry has none.
            TargetError: the registry does not answer.
        """
        named = [topic for topic, _ in self.options.assign or ()] or self.options.subscribe or ()
        formats = with_pins(self.options.formats, sorted(set(named)))
        return replace(self, options=replace(self.options, formats=formats))

    @property
    def patience(self) -> Patience:
        return self.options.patience

    def initial(self) -> Offsets:
        """The offsets of ``startingOffsets`` and its variants now.

        Raises OptionError for partitions or times that do not exist, RefusedError for a missing
        topic.
        """
        facts, option = self._facts(), "startingOffsets or startingTimestamp"
        start = self._resolved(self.options.start, facts, self.options.without_time, option)
        for (topic, number), offset in sorted(start.items()):
            first, end = facts.first[topic, number], facts.end[topic, number]
            if not first <= offset <= end:
                raise OptionError(
                    f"startingOffsets: {topic}-{number} has offsets from {first} to {end}, not "
                    f"{offset}.",
                    remedy="take one of those; -2 is the first and -1 the last.",
                )
        return TopicOffsets(facts.ids, start).text

    def latest(self, start: Offsets, limit: Limit) -> Offsets:
        """The end that can be read now; in a batch read, that of ``endingOffsets``.

        Raises ReplayMismatchError if the records after ``start`` are gone or have changed.
        """
        begin = TopicOffsets.parse(start)
        facts = self._facts(begin)
        self._report(start, losses(begin, facts))
        if self.options.end is not None:
            facts = replace(facts, end=self._ending(facts, begins(begin, facts)))
        closed = None if self.closed is None else TopicOffsets.parse(self.closed)
        return self._decided(begin, advance(begin, facts, limit.rows, closed)).text

    def splits(self, start: Offsets, end: Offsets | None) -> Sequence[Split]:
        """Parts of partitions; without an end, all partitions of now, endless.

        Raises ReplayMismatchError if the records after ``start`` have changed since ``end`` was
        planned. An engine may have asked for the end without its start (Spark 4.1).
        """
        begin = TopicOffsets.parse(start)
        if end is not None:
            until = TopicOffsets.parse(end)
            self._report(
                start, losses(begin, Facts(until.ids, dict.fromkeys(until.next, 0), until.next))
            )
            parts = ranges(
                begin,
                until,
                at_least=self.options.min_partitions,
                most_records=self.options.most_records,
            )
            return [part.split for part in parts]
        facts = self._facts(begin)
        self._report(start, losses(begin, facts))
        whole = ranges(begin, replace(facts.ends, next=dict.fromkeys(facts.end, 2**63 - 1)))
        return [replace(part, end=None).split for part in whole]

    def open(self, split: Split) -> Reader:
        """Raises ReplayMismatchError if the topic is gone, was recreated, or is not in the options."""
        part = Range.of(split)
        if not self._reads((part.topic, part.partition)):
            raise ReplayMismatchError(
                f"Kafka: {split.source} has unread records, but the source no longer reads it.",
                remedy="name it again until it is read; or give the source another id, and allow "
                "`drop_state` for the unread rest of the old one.",
            )
        filter_ = attempt_filter(self.options, part.topic).filter if self.options.winners else None
        decode = decoder(self.pinned().options.formats)
        return KafkaReader(self.options, part, filter_, decode=decode)

    def resumed(self, left: Sequence[Split]) -> Sequence[Split]:
        """As ``Source.resumed``, with all present partitions and topics."""
        if not left or any(split.end is not None for split in left):
            raise ConfigError(
                "Kafka: the source was started as `bounded`, and cannot be continued without an "
                "end.",
                remedy="keep it bounded; or give it another id, set startingOffsets, and allow "
                "`drop_state` for the unread rest of the old one.",
            )
        parts = [Range.of(split) for split in left]
        place = TopicOffsets(
            {part.topic: part.topic_id for part in parts},
            {(part.topic, part.partition): part.start for part in parts},
        )
        now = self.splits(place.text, None)
        there = {Range.of(split).topic for split in now}
        # What is away keeps its place, as in ``advance``.
        away = [
            split
            for split, part in zip(left, parts, strict=True)
            if part.topic not in there and self._reads((part.topic, part.partition))
        ]
        return [*now, *away]

    def until_now(self) -> Source:
        return replace(self, closed=self._facts().ends.text)

    def _reads(self, partition: Partition) -> bool:
        """Whether the options name it."""
        options, (topic, _) = self.options, partition
        if options.assign is not None:
            return partition in options.assign
        if options.pattern is not None:
            return fits(options.pattern, topic)
        return topic in (options.subscribe or ())

    def _facts(self, place: TopicOffsets | None = None) -> Facts:
        """The topics to read now; those of ``place`` may be missing."""
        options, ask = self.options, lookup(self.options)
        ids_known = {} if place is None else place.ids
        if options.pattern is not None:
            topics = ask.matching(options.pattern, ids_known)
        else:
            names = options.subscribe or {topic for topic, _ in options.assign or ()}
            topics = ask.topics(names, {name: ids_known.get(name) for name in names})
        self._check_winners(topics)
        there = [(name, n) for name, topic in topics.items() for n in topic.partitions]
        if options.assign is not None:
            there = [partition for partition in there if partition in options.assign]
        self._check_there(topics, there, ids_known)
        ids = {name: topic.id for name, topic in topics.items()}
        now, before = TopicOffsets(ids), place or TopicOffsets()
        read = {p: at for p, at in before.next.items() if before.same_topic(now, p[0])}
        return Facts(ids, ask.first(there), ask.end(there, read))

    def _check_winners(self, topics: Collection[str]) -> None:
        if self.options.winners is not None:
            return
        try:
            sides = lookup(self.options).topics(map(side_topic, topics))
        except RefusedError as error:
            raise RefusedError(
                f"{error.what} So it is unknown whether protocol=idempotent has written "
                f"{', '.join(sorted(topics))}.",
                remedy="allow DESCRIBE on the side topic (prefixed ACLs cover it); or set "
                "winners=false where no job writes these topics with protocol=idempotent.",
            ) from error
        written = sorted(topic for topic in topics if side_topic(topic) in sides)
        if written:
            raise OptionError(
                f"Kafka: {', '.join(written)} was written by protocol=idempotent: it can contain "
                "a record several times, of which one counts.",
                remedy="set winners=true to read those that count; winners=false reads them all.",
            )

    def _decided(self, start: TopicOffsets, end: TopicOffsets) -> TopicOffsets:
        """With ``winners``, the place up to which all records are decided."""
        if not self.options.winners:
            return end
        nexts = dict(end.next)
        for part in ranges(start, end):
            nexts[part.topic, part.partition] = decided_until(self.options, part)
        return replace(end, next=nexts)

    def _check_there(
        self, topics: Collection[str], there: list[Partition], ids: Collection[str]
    ) -> None:
        partitions = set(self.options.assign or ()) - set(there)
        asked = {(topic, f"partition {topic}-{number}") for topic, number in partitions}
        names = set(self.options.subscribe or ()) - set(topics)
        asked |= {(topic, f"topic {topic}") for topic in names}
        missing = sorted(name for topic, name in asked if topic not in ids)
        if missing:
            raise RefusedError(
                f"Kafka: there is no {' and no '.join(missing)}.",
                remedy="create the topic, or check subscribe, assign and the ACLs (DESCRIBE).",
            )

    def _ending(self, facts: Facts, starts: Mapping[Partition, int]) -> dict[Partition, int]:
        assert self.options.end is not None
        option = "endingOffsets or endingTimestamp"
        offsets = self._resolved(self.options.end, facts, LATEST, option)
        for (topic, number), offset in sorted(offsets.items()):
            first, end = starts[topic, number], facts.end[topic, number]
            if not first <= offset <= end:
                raise OptionError(
                    f"{option}: {topic}-{number} is read from {first} on and ends at {end} now; it "
                    f"cannot be read up to {offset}.",
                    remedy="take an offset that is there (-1 is the end); older records may have "
                    "been deleted by the topic's retention.",
                )
        return offsets

    def _resolved(
        self, bound: Bound, facts: Facts, without: int | None, option: str
    ) -> dict[Partition, int]:
        at = lookup(self.options).at
        return resolve(bound, facts.first, facts.end, at, without=without, option=option)

    def _report(self, start: Offsets, losses: Sequence[str]) -> None:
        if not losses:
            return
        if self.options.fail_on_data_loss:
            raise ReplayMismatchError(f"Kafka: {'; '.join(losses)}.", remedy=DATA_LOSS_REMEDY)
        # Once for a place: an engine asks again and again while there is nothing new.
        shared_cluster = cluster(self.options.client)
        key, loss = ("told of loss", repr(self.options)), (start, *losses)
        if shared_cluster.learnt(key) != loss:
            shared_cluster.learn(key, loss)
            log.warning("failOnDataLoss=false, so the job continues: %s.", "; ".join(losses))
