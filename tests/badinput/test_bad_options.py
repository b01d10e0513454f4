"""Options as nobody should write them: one typed error that says what to do, or accepted; nothing else.

About 3,000 sets of options over all formats: names that are known, unknown, or
another connector's; values that are empty, huge, of another type, or no text at all. Accepted means:
what is derived from the options works, too. Nothing is written, and nobody is connected to.
"""

from __future__ import annotations

import pickle
from collections.abc import Callable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from random import Random

import pytest

from abs_clients.options import Option, options_of
from abs_clients.s3.server import Server
from abs_core.errors import OptionError
from abs_core.model import job_key
from abs_sinks.delta import DeltaOptions
from abs_sinks.door import format_names
from abs_sinks.iceberg import IcebergOptions
from abs_sinks.kafka import options as kafka
from abs_sinks.kafka.options import KafkaOptions
from abs_sinks.lake import options as lake
from abs_sinks.lake.options import LakeOptions
from abs_sinks.options import COMMON
from abs_sinks.postgres import options as postgres
from abs_sinks.postgres.options import PostgresOptions
from abs_sinks.s3 import options as s3
from abs_sinks.s3.options import S3Options
from abs_sinks.wal import segment_store
from abs_sources.files import options as files
from abs_sources.files.options import FileOptions
from abs_sources.kafka import options as kafka_source
from abs_sources.kafka.options import KafkaSourceOptions
from tests import sample

VALUES: tuple[str, ...] = (
    "",
    " ",
    "\t\n",
    "\0",
    "a\0b",
    "\ud800",
    "x\udcffy",
    "0",
    "1",
    "-1",
    "10",
    "0x10",
    "1e3",
    "010",
    "1_000",
    "\u0661",
    "3.5",
    "9" * 19,
    "9" * 5000,
    "NaN",
    "inf",
    "1e999",
    "true",
    "TRUE",
    "yes",
    "null",
    "id",
    "id,value",
    "id,,value",
    'id,"a b"',
    '"',
    "a;b",
    "~nobody/x",
    "~nosuchuser/x",
    "/nowhere/at/all",
    "../up",
    "a" * 300,
    "a" * 100_000,
    "%",
    "%zz",
    "%00",
    "{",
    "[" * 2000,
    '{"t": {"0": 12}}',
    '{"t": {"0": -7}}',
    '{"t": {"\u0661": 1}}',
    '{"t": ' + "[" * 2000,
    '{"t": {"0": ' + "9" * 5000 + "}}",
    '{"t": [0, 1]}',
    '{"\\ud800": {"0": 1}}',
    "(",
    "(?P<a>x)(?P=a)",
    "file:///tmp/x",
    "file:///a%00b",
    "file://[::1",
    "file://host/x",
    "http://[::1",
    "https://user:secret@host",
    "s3://bucket/prefix",
    "s3://",
    "s3://b",
    "s3://bucket/../x",
    "s3://bucket/a\tb",
    "s3a://bucket/x?endpoint=http://[",
    "s3://[::1/x",
    "postgresql://host/db",
    "postgresql://[::1/db",
    "postgresql://host:port/db",
    "jdbc:postgresql://host/db?x=y",
    "jdbc:oracle:thin:@x",
    "host=h dbname='",
    "2pc",
    "wal",
    "idempotent",
    "upsert",
    "append",
    "parquet",
    "csv",
    "earliest",
    "latest",
    "10s",
    "128m",
    "128MiB",
    "columnar",
    "zstd",
    "aws:kms",
)
_KAFKA = (
    "bootstrap.servers batch.size message.max.bytes transaction.timeout.ms default.topic.config acks "
    "logger error_cb max.in.flight max.in.flight.requests.per.connection compression.type "
    "compression.level linger.ms retries enable.idempotence sasl.password sasl.jaas.config "
    "ssl.ca.location ssl.keystore.location client.id isolation.level group.id partitioner"
)
KAFKA = tuple(f"kafka.{name}" for name in [*_KAFKA.split(), "no.such.setting", "", "\ud800"])
_STRANGE = (
    "nosuchoption",
    "",
    " ",
    "PROTOCOL",
    "Path",
    "\ud800",
    "a\0b",
    "x" * 1000,
    "kafka",
    "true",
)


@dataclass(frozen=True, slots=True)
class Format:
    """A format as a user names it.

    Args:
        whole: options that are accepted.
        names: that may be given besides.
        parse: reads them, and touches what follows from them.
    """

    name: str
    whole: Mapping[str, str]
    names: Sequence[str]
    parse: Callable[[Mapping[str, str]], object]
    cases: int = 600


def _names(own: Sequence[Option], elsewhere: Mapping[str, str]) -> list[str]:
    return [*(option.name for option in own), *elsewhere]


def _job(common: object) -> None:
    """What an engine makes of job and epoch."""
    job, epoch = getattr(common, "job", None), getattr(common, "epoch", None)
    if job is not None:
        job_key(job, epoch)


def _postgres(given: Mapping[str, str]) -> object:
    found = PostgresOptions.parse(given)
    _job(found.common)
    return found


def _kafka(given: Mapping[str, str]) -> object:
    found = KafkaOptions.parse(given)
    assert found.kafka.batch_size_bytes > 0
    assert found.kafka.message_max_bytes > 0
    assert found.kafka.transaction_timeout_ms > 0
    if found.wal is not None:
        segment_store(found.wal)
    _job(found.common)
    return found


def _s3(given: Mapping[str, str]) -> object:
    found = S3Options.parse(given)
    assert found.state.key("register")
    _job(found.common)
    return found


def _kafka_source(given: Mapping[str, str]) -> object:
    KafkaSourceOptions.parse(given)
    return KafkaSourceOptions.parse(given, batch=True)


def _files(given: Mapping[str, str]) -> object:
    FileOptions.parse(given, streaming=False)
    return FileOptions.parse({"log": "/nowhere/log", **given}, streaming=True)


def _lake(kind: type[DeltaOptions | IcebergOptions]) -> Callable[[Mapping[str, str]], object]:
    def parse(given: Mapping[str, str]) -> object:
        found = kind.parse(given)
        assert found.files("/folder").partsize == found.partsize
        assert found.patience.seconds > 0
        _job(found.common)
        return found

    return parse


def _lake_names(kind: type[LakeOptions], *more: str) -> list[str]:
    return [*_names((*COMMON, *options_of(kind), *options_of(Server)), lake._ELSEWHERE), *more]


FORMATS = (
    Format(
        "abs-postgres",
        {"url": "postgresql://host/db", "dbtable": "t"},
        _names((*COMMON, *postgres.OPTIONS), postgres._ELSEWHERE),
        _postgres,
    ),
    Format(
        "abs-kafka",
        {"kafka.bootstrap.servers": "host:9092", "topic": "t"},
        [*_names((*COMMON, *kafka.OPTIONS), kafka._ELSEWHERE), *KAFKA],
        _kafka,
    ),
    Format(
        "abs-s3",
        {"path": "s3://bucket/prefix"},
        _names((*COMMON, *s3.OPTIONS), s3._ELSEWHERE),
        _s3,
    ),
    Format(
        "abs-delta",
        {"path": "/nowhere/at/all"},
        _lake_names(DeltaOptions),
        _lake(DeltaOptions),
        300,
    ),
    Format(
        "abs-iceberg",
        {"table": "db.t"},
        _lake_names(IcebergOptions, "catalog.type", "catalog.uri", "catalog.", "catalog"),
        _lake(IcebergOptions),
        300,
    ),
    Format(
        "abs-kafka source",
        {"kafka.bootstrap.servers": "host:9092", "subscribe": "t"},
        [*_names(kafka_source.OPTIONS, kafka_source._ELSEWHERE), *KAFKA],
        _kafka_source,
    ),
    Format(
        "abs-files",
        {"path": "/nowhere/at/all"},
        _names(files.OPTIONS, files._ELSEWHERE),
        _files,
    ),
)


def _cases(of: Format, chance: Random) -> Iterator[dict[str, str]]:
    """Every name with a value, then sets of names with values."""
    for number in range(of.cases):
        given = dict(of.whole)
        for _ in range(chance.choice((1, 1, 1, 2, 3))):
            strange = chance.random() < 0.15
            name = chance.choice(_STRANGE if strange else of.names)
            given[chance.choice((name, name.lower(), name.upper()))] = chance.choice(VALUES)
        if number % 20 == 0:
            del given[chance.choice(sorted(of.whole))]
        yield given


def problem(of: Format, given: Mapping[str, str]) -> str | None:
    """What is wrong with the way these options are read; None: accepted, or a typed error."""
    try:
        found = of.parse(given)
    except OptionError as error:
        if not error.remedy.strip():
            return f"no remedy: {str(error)[:300]}"
        if "hidden-secret" in str(error):
            return "a secret is shown"
        str(error).encode()
        return None
    except Exception as error:  # noqa: BLE001 - this is what is looked for
        return f"{type(error).__name__}: {str(error)[:300]}"
    if pickle.loads(pickle.dumps(found)) != found:
        return "other options once they were pickled"
    repr(found).encode()
    return None


def _smallest(of: Format, given: Mapping[str, str]) -> dict[str, str]:
    """Without every option that it is wrong without."""
    left = dict(given)
    for name in given:
        fewer = {n: v for n, v in left.items() if n != name}
        if problem(of, fewer) is not None:
            left = fewer
    return left


@pytest.mark.parametrize("of", FORMATS, ids=lambda of: of.name)
def test_options_are_accepted_or_refused_by_an_error_with_a_remedy(
    of: Format, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert problem(of, of.whole) is None
    for given in _cases(of, Random(f"{sample.seed()}:{of.name}")):
        wrong = problem(of, given)
        if wrong is not None:
            least = {name: value[:100] for name, value in _smallest(of, given).items()}
            raise AssertionError(f"{of.name} {least!a}: {wrong} (ABS_TEST_SEED={sample.seed()})")
    assert list(tmp_path.iterdir()) == [], "something was written"


SEEN = (
    ("abs-kafka", {"kafka.batch.size": "0x10"}, "plain digits"),
    ("abs-kafka", {"kafka.default.topic.config": "x"}, "object of Python"),
    ("abs-kafka", {"protocol": "wal", "wal": "~nosuchuser/x"}, "home folder"),
    ("abs-kafka", {"kafka.transaction.timeout.ms": "9" * 5000}, "plain digits"),
    ("abs-kafka", {"kafka.client.id": "\ud800"}, "unpaired surrogate"),
    ("abs-postgres", {"user": "\ud800"}, "unpaired surrogate"),
    ("abs-postgres", {"password": "hidden-secret\ud800"}, "unpaired surrogate"),
    ("abs-postgres", {"batchsize": "9" * 5000}, "whole number"),
    ("abs-s3", {"region": "a\0b"}, "zero byte"),
    ("abs-s3", {"partsize": "9" * 5000}, "size from"),
    ("abs-kafka source", {"startingOffsets": "[" * 2000}, "startingOffsets must be"),
    ("abs-kafka source", {"kafka.default.topic.config": "x"}, "an object of Python"),
)
"""What an audit of 315a560 found, or this generator since."""


@pytest.mark.parametrize(("name", "given", "said"), SEEN)
def test_what_was_found_once_is_refused_by_name(
    name: str, given: Mapping[str, str], said: str
) -> None:
    of = next(each for each in FORMATS if each.name == name)
    with pytest.raises(OptionError, match=said) as raised:
        of.parse({**of.whole, **given})
    assert raised.value.remedy
    assert "hidden-secret" not in str(raised.value)


def test_there_are_three_thousand_cases_and_some_of_each_sink() -> None:
    assert sum(of.cases for of in FORMATS) > 3_000
    assert {of.name for of in FORMATS} >= set(format_names())
