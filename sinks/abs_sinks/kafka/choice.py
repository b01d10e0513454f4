"""Who sends the records, column by column or librdkafka: decided here, once, from the options.

Column by column (``columnar``) costs a third of the CPU time, and is for records that all go to one
topic. librdkafka takes each record on its own, to whatever topic, and has settings that the other has
not: where a job gives one of those, it means librdkafka. Nothing is connected here, so the choice is
known, and said with the guarantee, before a job begins.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from abs_clients.kafka.format.compression import Compression
from abs_clients.kafka.producer.transport import lacking_to_produce
from abs_clients.kafka.settings import PREFIX, Settings
from abs_core.errors import OptionError

AUTO, COLUMNAR, LIBRDKAFKA = PRODUCERS = ("auto", "columnar", "librdkafka")
"""What the option ``producer`` may be."""

_PARTITIONERS = ("murmur2_random", "random")

_HEEDED = (
    "bootstrap.servers client.id security.protocol sasl.mechanism sasl.mechanisms sasl.username "
    "sasl.password sasl.kerberos.service.name ssl.ca.location ssl.ca.pem ssl.certificate.location "
    "ssl.certificate.pem ssl.key.location ssl.key.pem ssl.key.password "
    "ssl.endpoint.identification.algorithm enable.ssl.certificate.verification compression.type "
    "compression.codec compression.level batch.size message.max.bytes partitioner "
    "transaction.timeout.ms acks request.required.acks enable.idempotence"
)
"""Settings that mean the same column by column."""

_SECURITY = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
"""What begins so and is not heeded would be a guard that is left out in silence."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """Why records cannot be sent column by column, and what to do where that is asked for.

    Args:
        warns: whether people should know that it is so, besides what is printed at every start.
    """

    what: str
    remedy: str
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """What was decided.

    Args:
        columnar: whether records are sent column by column.
        text: what, and why, for people.
        warning: what is amiss, where the other way would have been taken but for that.
    """

    columnar: bool
    text: str
    warning: str = ""


def choose(producer: str, topic: str | None, settings: Settings) -> Choice:
    """Who sends the records of a job with these options.

    Args:
        producer: one of ``PRODUCERS``.
        topic: of all records; None: the column ``topic`` says.

    Raises:
        OptionError: ``columnar`` is asked for where it cannot be.
    """
    if producer == LIBRDKAFKA:
        return _by_librdkafka("producer=librdkafka")
    refusals = list(refusals_of(topic, settings))
    if producer == COLUMNAR:
        if refusals:
            raise OptionError(
                " ".join(f"producer=columnar {each.what}." for each in refusals),
                remedy=" ".join(each.remedy for each in refusals),
            )
        return Choice(True, "Records are sent column by column: producer=columnar.")
    if refusals:
        first = refusals[0]
        return _by_librdkafka(f"producer=columnar {first.what}", first.what if first.warns else "")
    if given := sorted(_only_librdkafkas(settings)):
        return _by_librdkafka(f"only librdkafka has {PREFIX}{given[0]}")
    return Choice(True, f"Records are sent column by column: all of them go to topic {topic}.")


def refusals_of(topic: str | None, settings: Settings) -> Iterator[Refusal]:
    """What keeps records from being sent column by column."""
    instead = f"or set producer={LIBRDKAFKA}."
    if topic is None:
        yield Refusal("writes to one topic", f"set the option topic, {instead}")
    partitioner = settings.get("partitioner")
    if partitioner is not None and partitioner not in _PARTITIONERS:
        yield Refusal(
            f"does not know kafka.partitioner={partitioner}",
            f"take one of {', '.join(_PARTITIONERS)}, {instead}",
        )
    try:
        compression_of(settings)
    except ValueError as error:
        yield Refusal(
            f"cannot compress by kafka.compression.type={_codec(settings)}: {error}",
            f"correct kafka.compression.*, {instead}",
        )
    heeded = _HEEDED.split()
    for name, _ in settings.pairs:
        if name.startswith(_SECURITY) and name not in heeded:
            yield Refusal(f"does not heed kafka.{name}", f"leave that out, {instead}")
    if (lacking := lacking_to_produce()) is not None:
        yield Refusal(
            f"cannot send with the kafka-python that is installed: {lacking}",
            f"install a version that the package asks for, {instead}",
            warns=True,
        )


def compression_of(settings: Settings) -> Compression:
    """As librdkafka's settings say.

    Raises:
        ValueError: there is no such codec or level here.
    """
    return Compression.parse(_codec(settings), settings.get("compression.level"))


def _codec(settings: Settings) -> str | None:
    return settings.get("compression.type") or settings.get("compression.codec")


def _only_librdkafkas(settings: Settings) -> Iterator[str]:
    """Settings that were given and that mean something to librdkafka alone."""
    heeded = _HEEDED.split()
    yield from (name for name, _ in settings.pairs if name not in heeded)
    level = settings.get("compression.level")
    if level not in (None, "-1") and compression_of(settings).level is None:
        yield "compression.level"  # of a codec that has none here


def _by_librdkafka(why: str, warning: str = "") -> Choice:
    told = f"Records are sent one by one, by librdkafka: {why}."
    return Choice(False, told, f"{told} That is slower." if warning else "")
