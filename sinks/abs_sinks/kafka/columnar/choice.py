"""Chooses the producer, columnar or librdkafka, from the options alone; nothing is connected.

The columnar producer (``columnar``) costs a third of the CPU time, and writes to one topic only.
librdkafka sends each record on its own, to any topic; a setting that only librdkafka has selects it.
"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import dataclass

from abs_clients.kafka.setting_table import EVERYWHERE, TWO_PHASE
from abs_clients.kafka.settings import PREFIX, Settings
from abs_core.errors import OptionError
from abs_sinks.kafka.columnar.compression import Compression
from abs_sinks.kafka.columnar.transport import missing_for_producer

AUTO, COLUMNAR, LIBRDKAFKA = PRODUCERS = ("auto", "columnar", "librdkafka")
"""Values of the option ``producer``."""

_PARTITIONERS = ("murmur2_random", "random")

_SECURITY = ("ssl.", "sasl.", "enable.ssl.", "enable.sasl.")
"""Prefixes of settings that must not be ignored silently."""


@dataclass(frozen=True, slots=True)
class Refusal:
    """A reason against the columnar producer, and its remedy.

    Args:
        warns: whether ``producer=auto`` warns of it.
    """

    what: str
    remedy: str
    warns: bool = False


@dataclass(frozen=True, slots=True)
class Choice:
    """The chosen producer.

    Args:
        text: choice and reason, printed with the guarantee.
        warning: the fault without which the columnar producer would have been chosen.
    """

    columnar: bool
    text: str
    warning: str = ""


def choose(producer: str, topic: str | None, settings: Settings) -> Choice:
    """Choose the producer.

    Args:
        producer: one of ``PRODUCERS``.
        topic: of all records; None: the column ``topic`` names it.

    Raises:
        OptionError: ``columnar`` is given, or needed, and not possible.
    """
    if settings.two_phase:
        return _by_columns_only(producer, topic, settings)
    if producer == LIBRDKAFKA:
        return _by_librdkafka("producer=librdkafka")
    refusals = list(refusals_of(topic, settings))
    if producer == COLUMNAR:
        if refusals:
            raise OptionError(
                " ".join(f"producer=columnar {refusal.what}." for refusal in refusals),
                remedy=" ".join(refusal.remedy for refusal in refusals),
            )
        return Choice(True, "Records are sent column by column: producer=columnar.")
    if refusals:
        first = refusals[0]
        return _by_librdkafka(f"producer=columnar {first.what}", first.what if first.warns else "")
    if names := sorted(_only_librdkafkas(settings)):
        return _by_librdkafka(f"only librdkafka has {PREFIX}{names[0]}")
    return Choice(True, f"Records are sent column by column: all of them go to topic {topic}.")


def _by_columns_only(producer: str, topic: str | None, settings: Settings) -> Choice:
    chosen = choose(producer, topic, settings.without(TWO_PHASE))
    if chosen.columnar:
        return chosen
    raise OptionError(
        f"{PREFIX}{TWO_PHASE}=true needs the columnar producer: librdkafka has no such setting. "
        f"{chosen.text}",
        remedy="set the option topic and producer=columnar, and leave out what only librdkafka has; or "
        f"leave {PREFIX}{TWO_PHASE} out.",
    )


def refusals_of(topic: str | None, settings: Settings) -> Iterator[Refusal]:
    """The reasons against the columnar producer."""
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
    for name, _ in settings.pairs:
        if name.startswith(_SECURITY) and name not in EVERYWHERE:
            yield Refusal(f"does not heed kafka.{name}", f"leave that out, {instead}")
    if (lacking := missing_for_producer()) is not None:
        yield Refusal(
            f"cannot send with the kafka-python that is installed: {lacking}",
            f"install a version that the package asks for, {instead}",
            warns=True,
        )


def compression_of(settings: Settings) -> Compression:
    """The compression of librdkafka's settings.

    Raises:
        ValueError: unknown codec or level.
    """
    return Compression.parse(_codec(settings), settings.get("compression.level"))


def _codec(settings: Settings) -> str | None:
    return settings.get("compression.type") or settings.get("compression.codec")


def _only_librdkafkas(settings: Settings) -> Iterator[str]:
    """The given settings that only librdkafka has."""
    yield from (name for name, _ in settings.pairs if name not in EVERYWHERE)
    level = settings.get("compression.level")
    if level not in (None, "-1") and compression_of(settings).level is None:
        yield "compression.level"  # of a codec that has none here


def _by_librdkafka(why: str, warning: str = "") -> Choice:
    sentence = f"Records are sent one by one, by librdkafka: {why}."
    return Choice(False, sentence, f"{sentence} That is slower." if warning else "")
