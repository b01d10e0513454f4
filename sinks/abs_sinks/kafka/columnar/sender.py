"""The columnar producer: sends whole columns as record batches to one topic.

librdkafka handles each message several times, which is most of a task's CPU time for records of about
100 bytes. Encoding columns in vectorised steps (``encoder``) and sending them over kafka-python's
connections (``transport``) takes about a third of that time.
"""

from __future__ import annotations

import logging
import time
from collections.abc import Callable, Sequence
from functools import partial
from typing import NoReturn

import kafka.errors

from abs_clients.kafka import timeouts
from abs_clients.kafka.cluster import Channel, cluster
from abs_clients.kafka.cluster_facts import request_bytes
from abs_clients.kafka.errors import to_abs_error
from abs_clients.kafka.producer_ids import init_producer_id, new_producer_id
from abs_clients.kafka.routing import MissingPartitionError
from abs_clients.kafka.settings import Settings
from abs_clients.kafka.topics import topic_facts
from abs_clients.kafka.transactions import EndTxn, Reply, end
from abs_core.errors import AbsError, RefusedError, SchemaError, TargetError, UnavailableError
from abs_core.patience import Patience
from abs_sinks.kafka.columnar.encoder import Encoder, pieces
from abs_sinks.kafka.columnar.outbox import Batch, Outbox, Verdict
from abs_sinks.kafka.columnar.recordbatch import ProducerIdentity
from abs_sinks.kafka.columnar.transport import NO_ANSWER, Answer, Transport
from abs_sinks.kafka.headers import Header
from abs_sinks.kafka.records import Records

REQUEST_BYTES = 8 << 20
"""Upper bound of a request, where the broker takes as much; its default is 100 MiB."""

FRAMING = 64 << 10
"""More bytes than a request has besides its batches: names, and a few for each partition."""

FLYING_BYTES = 32 << 20
"""Upper bound of bytes sent and not answered, except for the last request."""

WAITING_BYTES = 16 << 20
"""Upper bound of bytes encoded and not sent; above it ``send`` waits."""

TOO_LARGE = 10
"""The error code MESSAGE_TOO_LARGE, of a whole batch."""

log = logging.getLogger(__name__)


class ColumnarSender:
    """A ``RecordSender`` to one topic.

    Args:
        who: used by no other sender to this topic: sequence numbers are counted here.
        patience: seconds without an acknowledgement after which it gives up.
        more: headers added to each record.
        transport: what sends the batches.
    """

    def __init__(
        self,
        settings: Settings,
        topic: str,
        who: ProducerIdentity,
        patience: float,
        more: Sequence[Header] = (),
        *,
        transport: Callable[[Settings, ProducerIdentity, str], Transport] = Transport,
    ) -> None:
        self.rows = 0
        self.patience = patience
        self._settings = settings
        self._topic = topic
        self._encoder = Encoder(settings, topic, who, more)
        self._added: set[int] = set()
        self._leaders: dict[int, int] = {}
        self._outbox = Outbox()
        self._limit = request_bytes(settings)
        self._transport = transport(settings, who, topic)
        self._pause = Pause()
        self._missing = 0
        self._heard = 0.0  # when a batch was acknowledged last, or the wait began

    def send(self, records: Records) -> None:
        """See ``RecordSender``. Above ``WAITING_BYTES`` unsent it waits for answers."""
        for part in pieces(records):
            self._encoder.gather(part)
            if self._encoder.has_enough:
                self._outbox.add(self._encoder.batches())
                self._serve(lambda: self._outbox.unsent_bytes <= WAITING_BYTES)
        self.rows += records.rows

    def flush(self) -> None:
        self._outbox.add(self._encoder.batches())
        self._serve(lambda: self._outbox.unfinished == 0)

    def abort(self) -> None:
        """See ``RecordSender``. It waits up to ``REQUEST_SECONDS`` for outstanding answers."""
        # A request after its transaction's end could leave a hanging transaction (KIP-890).
        deadline = time.monotonic() + timeouts.REQUEST_SECONDS
        while self._transport.unanswered and (left := deadline - time.monotonic()) > 0:
            self._transport.answer(left)

    def _serve(self, done: Callable[[], bool]) -> None:
        """Send and take answers until ``done``."""
        self._heard = time.monotonic()
        while True:
            while (answer := self._transport.answer(0)) is not None:
                self._take(answer)
            paused = self._pause.left()
            if not paused:
                self._send_what_may_be()
                paused = self._pause.left()
            if done():
                return
            left = self._heard + self.patience - time.monotonic()
            if left <= 0:
                raise self._pause.reason or UnavailableError(
                    f"{self._outbox.unfinished} batches of records to topic {self._topic} are not "
                    f"acknowledged after {self.patience:g} s.",
                    remedy="see whether the brokers are up and in sync; the epoch is tried again.",
                )
            # Until an answer comes, or the pause ends.
            wait = min(left, paused) if paused or not self._outbox.flying_bytes else left
            answer = self._transport.answer(wait)
            if answer is not None:
                self._take(answer)

    def _take(self, answer: Answer) -> None:
        """Process an answer; raises ``AbsError`` if the batch is refused."""
        if answer.error is not None:
            raise answer.error
        batch = answer.batch
        verdict = self._outbox.answered(batch, answer.code)
        if answer.code == TOO_LARGE and batch.count > 1:
            self._grown_too_large(batch)
        if verdict is Verdict.ACKNOWLEDGED:
            self._pause.over()
            self._missing = 0
            self._heard = time.monotonic()
            return
        error = to_abs_error(
            kafka.errors.for_code(answer.code)(answer.text),
            f"delivering {batch.count} records to {self._topic}-{batch.partition}",
            self._settings,
        )
        if verdict is Verdict.REFUSED:
            raise error
        self._leaders.pop(batch.partition, None)
        self._later(error)

    def _later(self, error: AbsError) -> None:
        """Pause after a transient failure; ``SchemaError`` if the topic is gone."""
        missing = _says_missing(error)
        if not missing:
            self._missing = 0
        if not self._pause.longer(error):
            return
        self._missing += missing
        if self._missing > timeouts.MISSING_TRIES:
            raise SchemaError(
                f"Topic {self._topic} existed before and is gone now, or has fewer partitions: "
                f"{timeouts.MISSING_TRIES} lookups in a row did not find it.",
                remedy="find out who deleted it; create it, and start again: nothing of the "
                "epoch is committed.",
            ) from error

    def _grown_too_large(self, batch: Batch) -> NoReturn:
        """Raise the error for a batch above the topic's limit, which was lowered or is not known."""
        size = len(batch.payload)
        sentence = f"Topic {self._topic} does not accept a batch of {size} bytes"
        now = topic_facts(self._settings, [self._topic], again=True).get(self._topic)
        if now is None or now.max_message_bytes is None or now.max_message_bytes >= size:
            raise TargetError(
                f"{sentence}, and its limit is unknown.",
                remedy="set kafka.batch.size below the topic's max.message.bytes; nothing of the "
                "epoch is committed.",
            )
        raise UnavailableError(
            f"{sentence}: its max.message.bytes is {now.max_message_bytes} now.",
            remedy="nothing of the epoch is lost: it is tried again, in smaller batches.",
        )

    def _too_large(self, size: int) -> RefusedError:
        # A broker closes the connection without a word: it would be tried again and again.
        return RefusedError(
            f"A batch of {size} bytes to topic {self._topic} is larger than a request may be: the "
            f"brokers' socket.request.max.bytes is {self._limit}.",
            remedy="set kafka.batch.size below it, or raise it; a record cannot be larger.",
        )

    def _send_what_may_be(self) -> None:
        while self._outbox.flying_bytes < FLYING_BYTES and (
            batches := self._outbox.take(
                min(REQUEST_BYTES, (self._limit or REQUEST_BYTES) - FRAMING)
            )
        ):
            if self._limit is not None and len(batches[0].payload) > self._limit - FRAMING:
                raise self._too_large(len(batches[0].payload))
            passing = self._prepare(batches)
            if passing is not None:
                for batch in batches:
                    self._outbox.answered(batch, NO_ANSWER)
                self._later(passing)
                return
            by_node: dict[int, list[Batch]] = {}
            for batch in batches:
                by_node.setdefault(self._leaders[batch.partition], []).append(batch)
            for node, some in by_node.items():
                self._transport.send(node, some)

    def _prepare(self, batches: Sequence[Batch]) -> AbsError | None:
        """Add partitions to the transaction and find leaders; returns a transient error, if any."""
        new = sorted({batch.partition for batch in batches} - self._added)
        if new:
            passing = self._transport.add(new)
            if passing is not None:
                return passing
            self._added.update(new)
        unknown = [batch.partition for batch in batches if batch.partition not in self._leaders]
        if unknown:
            try:
                # Whoever led it last, at first: one that does not any more refuses the batch.
                remembered = set(unknown) <= set(new)
                self._leaders |= self._transport.leaders(unknown, remembered=remembered)
            except AbsError as error:
                if not error.retryable:
                    raise
                return error
        return None


class ColumnarProducer:
    """A columnar ``TransactionalProducer`` over the process's shared connection.

    Each transaction has an epoch of its own (KIP-360), so a late or repeated EndTxn ends no other.
    After an abort, or a commit without an answer, it is unusable.

    Args, Raises: as ``sending.transactional_producer``.
    """

    def __init__(
        self,
        settings: Settings,
        name: str,
        topic: str | None,
        timeout_ms: int | None = None,
        *,
        two_phase: bool = False,
    ) -> None:
        self._init = partial(init_producer_id, settings, name, timeout_ms, two_phase=two_phase)
        producer_id, epoch = self._init()
        cluster(settings).client(Channel.DATA)
        if topic is not None:
            topic_facts(settings, [topic], again=True)
        self.who = ProducerIdentity(name, producer_id, epoch)
        self._settings = settings
        self._committed = False
        self._senders: dict[str, ColumnarSender] = {}
        self.may_end_late = False

    def begin(self) -> None:
        """See the contract.

        Raises:
            FencedError: another process has initialised the id.
            TargetError: the coordinator refuses, or does not answer.
        """
        if not self._committed:
            return
        name, held = self.who.transactional_id, (self.who.producer_id, self.who.epoch)
        assert name is not None
        producer_id, epoch = self._init(held)
        self.who = ProducerIdentity(name, producer_id, epoch)
        self._senders, self._committed = {}, False

    def to(self, topic: str | None, patience: float) -> ColumnarSender:
        assert topic is not None, "a sender of one topic has the option topic"
        # One for each topic: sequence numbers are counted in each of them.
        if topic not in self._senders:
            self._senders[topic] = ColumnarSender(self._settings, topic, self.who, patience)
        sender = self._senders[topic]
        sender.patience = patience
        return sender

    def commit(self) -> None:
        reply = self._end(commit=True)
        if reply is not Reply.DONE:
            raise UnavailableError(
                f"The commit under {self.who.transactional_id} was refused: {reply}.",
                remedy="nothing of the epoch is lost: the next run looks up its outcome.",
            )
        self._committed = True

    def abort(self) -> bool:
        for sender in self._senders.values():
            sender.abort()
        try:
            self._end(commit=False)
        except AbsError as error:  # whoever opens it next aborts what is open
            log.debug("aborting under %s: %s", self.who.transactional_id, error)
        return False  # a request of this epoch may still be under way

    def _end(self, *, commit: bool) -> Reply:
        who = self.who
        assert who.transactional_id is not None
        ending = EndTxn(who.transactional_id, who.producer_id, who.epoch)
        return end(self._settings, [ending], commit=commit)[who.transactional_id]


def outside_transactions(
    settings: Settings, topic: str, patience: float, more: Sequence[Header]
) -> ColumnarSender:
    """A sender with a producer id of its own; ``TargetError`` if none comes in ``INIT_SECONDS``."""
    trying = Patience(seconds=timeouts.INIT_SECONDS)
    producer_id, epoch = trying.retry(lambda: new_producer_id(settings))
    who = ProducerIdentity(None, producer_id, epoch)
    return ColumnarSender(settings, topic, who, patience, more)


def _says_missing(error: AbsError) -> bool:
    """Whether a broker knows no such topic or partition."""
    return isinstance(error, SchemaError) or isinstance(error.__cause__, MissingPartitionError)


class Pause:
    """The growing pause after transient failures; ``reason`` is the last since an acknowledgement."""

    def __init__(self) -> None:
        self.reason: AbsError | None = None
        self._seconds = 0.0
        self._until = 0.0

    def left(self) -> float:
        return max(0.0, self._until - time.monotonic())

    def longer(self, reason: AbsError) -> bool:
        """Begin a longer pause; False if one is going on, probably for the same failure."""
        if self.left():
            return False
        self.reason = reason
        self._seconds = min(timeouts.MAX_PAUSE, 2 * self._seconds or timeouts.FIRST_PAUSE)
        self._until = time.monotonic() + self._seconds
        return True

    def over(self) -> None:
        self.reason, self._seconds, self._until = None, 0.0, 0.0
