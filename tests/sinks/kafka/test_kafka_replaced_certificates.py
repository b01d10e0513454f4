"""A certificate that is replaced in its file while a job runs: everything connects by the new one.

The new certificate is another principal's, and the old one loses every right at that moment: what still
goes by the old one is refused at once, on connections that there are, too.
"""

from __future__ import annotations

import secrets
import shutil
from collections.abc import Iterator
from contextlib import closing
from dataclasses import replace
from pathlib import Path

import pyarrow as pa
import pytest

from abs_clients.avro.registry import Registry
from abs_clients.avro.settings import RegistrySettings
from abs_clients.kafka.admin import Admin
from abs_clients.kafka.cluster import close_clusters
from abs_clients.kafka.wire import Connection
from abs_core.contracts import Task
from abs_core.errors import AbsError
from abs_core.model import Committable, Outcome
from abs_core.source import Limit
from abs_sinks.kafka import KafkaOptions, KafkaSink
from abs_sinks.kafka.producer_pool import ProducerPool, Use
from abs_sinks.kafka.producer_pools import ProducerPools
from abs_sources.kafka import KafkaSource, KafkaSourceOptions
from abs_sources.kafka.reader import KafkaReader
from abs_testing.case import within
from abs_testing.engine import Run
from tests.kit.kafka import make_topic
from tests.kit.kafka_secured import SecuredKafka
from tests.planted import planted
from tests.sinks.kafka.certificates import Authority, Rotated
from tests.sinks.kafka.secured import SECONDS
from tests.sinks.kafka.test_kafka_secured import TOPIC, given, read, sink_of

pytestmark = [
    pytest.mark.services,
    pytest.mark.campaign,  # one rule is tried in test_kafka_certificates.py
    pytest.mark.skipif(shutil.which("openssl") is None, reason="it makes the certificates"),
]


@pytest.fixture(scope="module")
def authority(tmp_path_factory: pytest.TempPathFactory) -> Authority:
    return Authority(tmp_path_factory.mktemp("certificates") / "known")


@pytest.fixture(scope="module")
def broker(authority: Authority) -> Iterator[SecuredKafka]:
    with SecuredKafka(authority.certificate) as kafka:
        make_topic(KafkaOptions.parse({"kafka.bootstrap.servers": kafka.bootstrap}).kafka, TOPIC, 1)
        yield kafka
        close_clusters()


@pytest.fixture
def rotated(broker: SecuredKafka, authority: Authority, tmp_path: Path) -> Rotated:
    return Rotated(broker, authority, tmp_path)


def test_a_reader_goes_on_by_the_certificate_that_is_in_the_file(
    rotated: Rotated, tmp_path: Path
) -> None:
    """One that is open, and one of a plan that is made after it."""
    sink = sink_of(rotated.client, "2pc")
    more = {"subscribe": TOPIC, "startingOffsets": "latest", "winners": "false"}
    source = KafkaSource(KafkaSourceOptions.parse(given(rotated.client, **more)))
    start = source.initial()
    with closing(sink), closing(_open(source)) as reader:
        run = Run(sink, f"read-{tmp_path.name}")
        for number in range(3):
            run.epoch(number, [(number, "read")])
            assert _rows(reader) == 1
            rotated.rotate()
        end = source.latest(start, Limit(rows=None))
        (split,) = source.splits(start, end)
        with closing(source.open(split)) as planned:
            found = 0
            while not planned.finished:
                batch = planned.read(SECONDS)
                found += 0 if batch is None else batch.num_rows
    assert found == 3


def _open(source: KafkaSource) -> KafkaReader:
    """A reader that reads on."""
    (split,) = source.splits(source.initial(), None)
    reader = source.open(split)
    assert isinstance(reader, KafkaReader)
    return reader


def _rows(reader: KafkaReader) -> int:
    for _ in range(100):
        batch = reader.read(SECONDS / 100)
        if batch is not None:
            return int(batch.num_rows)
    return 0


TASK = Task("0123456789abcdef", "pooled", 1, 0, 0, "ab")


@pytest.mark.parametrize("protocol", ["2pc", "2pc-librdkafka"])
def test_what_is_pre_committed_by_the_old_certificate_is_committed_or_aborted_by_the_new_one(
    rotated: Rotated, protocol: str
) -> None:
    register = secrets.token_hex(8)
    tasks = [replace(TASK, register=register, partition=number) for number in range(4)]
    with closing(sink_of(rotated.client, protocol)) as sink:
        kept, left = (_pre_committed(sink, task) for task in tasks[:2])
        writing = sink.writer(tasks[2])
        writing.write(_batch(2))
        rotated.rotate()
        later = _pre_committed(sink, tasks[3])
        pools = sink._pools()
        older, newer = (set(each.held()) for each in reversed(pools.all()))
        assert older
        assert newer
        assert not older & newer, "an id belongs to one incarnation of a process (I6)"
        sink.committer().abort([left.handle])
        sink.committer().commit([kept, later])
        seen = sink.committer().inspect([kept, left, later])
        assert [seen[one.handle].outcome for one in (kept, later)] == [Outcome.COMMITTED] * 2
        assert seen[left.handle].outcome is not Outcome.COMMITTED
        assert left.handle not in [one.handle for one in sink.committer().in_doubt("pooled")]
        writing.abort()
        settled = replace(tasks[0], epoch=1, frontier=0)
        _pre_committed(sink, settled)
        assert len(pools.all()) == 1, "it holds nothing any more"


def _batch(number: int) -> pa.RecordBatch:
    return pa.record_batch([pa.array([number], pa.int64()), pa.array(["v"])], ["id", "value"])


def _pre_committed(sink: KafkaSink, task: Task) -> Committable:
    writer = sink.writer(task)
    writer.write(_batch(task.partition))
    made = writer.pre_commit()
    assert made is not None
    return made


def test_files_that_do_not_fit_together_yet_are_not_taken(rotated: Rotated) -> None:
    sink = sink_of(rotated.client, "2pc")
    key = rotated.files.key.read_bytes()
    with closing(sink):
        run = Run(sink, f"half-{rotated.files.key.parent.name}")
        run.epoch(0, [(0, "a")])
        for number, half in enumerate((b"", key[: len(key) // 2]), 1):
            rotated.files.key.write_bytes(half)
            run.epoch(number, [(number, "b")])
        rotated.files.key.unlink()
        run.epoch(3, [(2, "c")])
        rotated.rotate()
        run.epoch(4, [(3, "d")])


@pytest.mark.parametrize(
    ("place", "name", "protocol"),
    [
        (Connection, "renew", "2pc"),
        (ProducerPools, "renew", "2pc-librdkafka"),
        (Admin, "close", "source"),
    ],
)
def test_a_client_that_is_not_made_anew_is_found(
    rotated: Rotated, place: type, name: str, protocol: str
) -> None:
    """A planted bug: each of the ways by which a client is made anew is left out."""
    bug = place, name, lambda _: None
    with (
        planted(bug, by=AbsError),
        closing(sink_of(rotated.client, protocol.replace("source", "2pc"))) as sink,
    ):
        run = Run(sink, f"planted-{rotated.files.key.parent.name}")
        run.epoch(0, [(0, "a")])
        assert within(SECONDS, lambda: all(map(_has_one_ready, sink._pools().all())))
        rotated.rotate()
        _go_on(run, rotated.client, protocol)


def _has_one_ready(pool: ProducerPool) -> bool:
    return any(slot.use is Use.READY for slot in pool._slots)


def _go_on(run: Run, client: dict[str, str], protocol: str) -> None:
    """A broker learns a moment later who may do nothing any more."""
    for number in range(1, 100):
        if protocol == "source":
            read(client, winners="false")
        else:
            run.epoch(number, [(number, "b")])


def test_a_registrys_client_is_made_anew(rotated: Rotated) -> None:
    """It connects over HTTP; the client that it has made is another one."""
    files = {f"ssl_{name}_location": str(getattr(rotated.files, at)) for name, at in PLACES}
    registry = Registry(RegistrySettings(url="https://127.0.0.1:1", **files))
    before = registry._client
    assert registry._client is before
    rotated.put(rotated.new())
    assert registry._client is not before


PLACES = (("certificate", "certificate"), ("key", "key"))
