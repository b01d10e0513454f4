"""Dead letters of S3: rows that files cannot hold are in another folder, under the same decision."""

from __future__ import annotations

from collections.abc import Iterable, Mapping
from dataclasses import replace
from decimal import Decimal
from functools import partial
from random import Random
from typing import Any
from urllib.parse import urlencode

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from abs_clients.s3.objects import Objects
from abs_core.contracts import Task
from abs_core.crash import CrashPoint
from abs_core.errors import MiscountError, OptionError, RowError, SchemaError
from abs_core.model import Outcome, Wrote
from abs_services import S3Service
from abs_sinks.deadletters import writer
from abs_sinks.deadletters.letter import schema_of, why_bad
from abs_sinks.deadletters.row import rows_of
from abs_sinks.door import format_at
from abs_sinks.refusals import find_bad_rows
from abs_sinks.s3 import twophase
from abs_sinks.s3 import wal as wal_of_s3
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.formats import check_values, doubtful, to_try, try_encoding
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Letters, S3Sink
from abs_sinks.s3.testing import open_folder
from abs_sinks.s3.twophase import TwoPhaseCommitter, TwoPhaseWriter
from abs_sinks.s3.wal import WalWriter
from abs_sinks.s3.writer import StreamingWriter, letters_files
from abs_testing.case import Case, rows
from abs_testing.cuts import Halted
from abs_testing.engine import Run
from tests import sample
from tests.kit.any_arrays import any_array, any_type
from tests.planted import Bug, Plant, planted
from tests.sinks.dead_letters import *  # noqa: F403 - the suite
from tests.sinks.dead_letters import Opener, Way, check_lost, finds, in_each
from tests.sinks.s3.buried import NOTED, Buried, buried

pytestmark = pytest.mark.services

TASK = Task("0123456789abcdef", "job", 1, 0, 0, "ab")
CELLS = {
    "2pc": ("2pc", False),
    "2pc-inside": ("2pc", True),
    "wal": ("wal", False),
    "idempotent": ("idempotent", False),
    "idempotent-inside": ("idempotent", True),
}

KILLS = {
    "2pc": (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.AFTER_DECIDE, CrashPoint.BETWEEN_COMMITS),
    "idempotent": (CrashPoint.AFTER_PRE_COMMIT, CrashPoint.INSIDE_CO_COMMIT),
}

pytest_generate_tests = in_each([Way(name, KILLS.get(name, ())) for name in CELLS])


@pytest.fixture
def path(store: S3Service, prefix: str) -> str:
    return f"s3://{store.bucket}/{prefix}"


@pytest.fixture
def opener(path: str, given: Mapping[str, str], name: str) -> Opener:
    protocol, inside = CELLS[name]
    return partial(buried, path, {**given, "protocol": protocol}, inside=inside)


@pytest.fixture
def buries_at_once() -> Bug:
    def at_once(writer: StreamingWriter | WalWriter, letters: pa.RecordBatch) -> None:
        files = letters_files(writer._options, writer._handle)
        files.write(letters)
        committer = TwoPhaseCommitter(writer._options)
        for upload in files.finish():
            committer._store.complete(writer._handle, upload)

    def bug(plant: Plant) -> None:
        for kind in (StreamingWriter, WalWriter):
            plant(kind, "_bury", at_once)

    return bug


@pytest.fixture
def drops_a_bad_row() -> Bug:
    return lambda plant: plant(writer, "why_bad", lambda bad: why_bad(bad)[1:])


KINDS: dict[str, tuple[str, dict[str, object]]] = {
    "nul-character": ("json", {"text": "a\0b"}),
    "encoding": ("json", {"text": None}),
    "too-long": ("parquet", {"folder": "x" * 1100}),
}
FULL = pa.schema([("text", pa.string()), ("folder", pa.string()), ("id", pa.int64())])


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_each_kind_of_refusal_is_a_dead_letter_that_reads_back(
    path: str, given: Mapping[str, str], protocol: str, kind: str
) -> None:
    fileformat, changed = KINDS[kind]
    more = {"fileformat": fileformat, "partitionby": "folder", "deadletter": f"{path}/_dead"}
    options = S3Options.parse({**given, **more, "protocol": protocol, "path": path})
    row: dict[str, object] = {"text": "t", "folder": "f", "id": 1}
    batch = pa.RecordBatch.from_pylist([row, {**row, **changed}, row], FULL)
    if kind == "encoding":
        invalid = pa.array([b"t", b"\xff", b"t"]).view(pa.string())
        batch = pa.RecordBatch.from_arrays([invalid, *batch.columns[1:]], schema=FULL)
    sink = S3Sink(options, FULL)
    writer = sink.writer(TASK)
    writer.write(batch)
    made = writer.pre_commit()
    assert made is not None
    assert made.rows == 3
    committer = sink.committer()
    committer.commit(list(committer.compose([made])))
    kept = S3Letters(options)
    (letter,) = kept.shown([each["id"] for each in kept.found()])
    assert letter["code"] == kind
    read = rows_of([letter["row"]], schema_of(letter["schema"]))
    assert read.equals(batch.slice(1, 1))


@pytest.mark.parametrize("fileformat", ["parquet", "arrow", "json", "csv"])
def test_columns_that_need_no_trial_are_never_refused(fileformat: str) -> None:
    """Extreme values of each type that is trusted can be encoded; a NULL that may not be is tried."""
    options = S3Options.parse({"path": "s3://bkt/data", "fileformat": fileformat})
    edges = pa.table(
        {
            "long": pa.array([-(2**63), 2**63 - 1, None], pa.int64()),
            "double": pa.array([float("nan"), float("inf"), None]),
            "flag": pa.array([True, False, None]),
            "number": pa.array([Decimal("9" * 38), Decimal(0), None], pa.decimal128(38, 0)),
            "text": pa.array([b"a\0b", b"\xff", None]).view(pa.string()),
            "bytes": pa.array([b"\0", b"", None]),
            "day": pa.array([-(2**31), 2**31 - 1, None], pa.date32()),
            "at": pa.array([-(2**63), 2**63 - 1, None], pa.timestamp("us", "UTC")),
        }
    )
    trusted = [name for name in edges.column_names if name not in doubtful(edges, fileformat)]
    assert len(trusted) == (8 if fileformat in ("parquet", "arrow") else 4)
    try_encoding(edges.select(trusted), options)
    needed = pa.table([[1, None]], pa.schema([pa.field("id", pa.int64(), nullable=False)]))
    assert doubtful(needed, fileformat) == ["id"]


MANY = pa.table(
    {
        "text": pa.array([b"a", b"\xff", b"a\0b", '\u00fc\n"'.encode(), None, b"", b"a,b"]).view(
            pa.string()
        ),
        "day": pa.array([0, 1, 2, 2_932_897, None, -719_162, -719_163], pa.date32()),
        "at": pa.array(
            [0, 253_402_300_799_999_999, 1, 2, None, -(2**63), 5], pa.timestamp("us", "UTC")
        ),
        "clock": pa.array([0, 1, 2, 3, None, 253_402_300_800_000_000, 5], pa.timestamp("us")),
        "pair": [{"a": "x"}, None, {"a": "\0"}, {"a": ""}, None, {"a": "y"}, {"a": None}],
    }
)


@pytest.mark.parametrize("fileformat", ["parquet", "arrow", "json", "csv"])
@pytest.mark.parametrize("rows", [7, 1])
def test_the_cheap_check_refuses_what_the_format_refuses(fileformat: str, rows: int) -> None:
    """Both name the same rows for the same reasons, whatever columns and rows are together."""
    options = S3Options.parse({"path": "s3://bkt/data", "fileformat": fileformat})
    names = [name for name in MANY.column_names if (fileformat, name) != ("csv", "pair")]
    for chosen in [names, *([name] for name in names)]:
        for first in range(0, MANY.num_rows, rows):
            table = MANY.select(chosen).slice(first, rows)
            by_trial = find_bad_rows(table, lambda part: try_encoding(part, options))
            by_check = find_bad_rows(table, lambda part: check_values(part, options))
            assert by_check.which.tolist() == by_trial.which.tolist()
            assert by_check.reasons == by_trial.reasons


def test_good_texts_and_times_are_not_encoded_twice() -> None:
    assert to_try(MANY.slice(0, 1), "json") == ["pair"]
    assert to_try(MANY.slice(2, 1), "json") == ["text", "pair"], "planted: a text with NUL is tried"


@pytest.mark.parametrize("protocol", ["2pc", "wal"])
def test_without_the_option_the_message_names_it(
    path: str, given: Mapping[str, str], protocol: str
) -> None:
    with open_folder(path, {**given, "fileformat": "json", "protocol": protocol}) as harness:
        sink = S3Sink(harness.options, NOTED)
        writer = sink.writer(TASK)
        batch = pa.RecordBatch.from_pylist([{"id": 1, "note": "a\0b"}], NOTED)

        def write() -> None:
            writer.write(batch)
            made = writer.pre_commit()
            sink.committer().compose([made] if made else [])

        with pytest.raises(RowError, match="NUL character") as caught:
            write()
        writer.abort()
        assert "name a folder in the option deadletter" in caught.value.remedy


@pytest.mark.parametrize(
    ("more", "told"),
    [
        (
            {"protocol": "idempotent", "deadletter": "sink:dead"},
            "protocol=idempotent gives no dead letters to another sink",
        ),
        ({"deadletter": "s3://bkt/data/dead"}, "readers of the path would read"),
        ({"deadletter": "s3://bkt/data"}, "readers of the path would read"),
        ({"deadletter": "s3://bkt"}, "readers of the path would read"),
        ({"deadletter": "s3://other/dead"}, "different buckets"),
        ({"deadlettercolumns": "a"}, "no meaning without deadletter"),
    ],
)
def test_options_that_cannot_be_kept_are_refused(more: dict[str, str], told: str) -> None:
    with pytest.raises(OptionError, match=told):
        S3Options.parse({"path": "s3://bkt/data", **more})


@pytest.mark.parametrize("name", ["wal"])
def test_a_compose_without_the_letters_is_found(opener: Opener) -> None:
    apart = wal_of_s3._apart

    def without(batch: Any, schema: Any) -> Any:
        rows, letters = apart(batch, schema)
        return rows, letters.slice(0, 0)

    finds(opener, lambda plant: plant(wal_of_s3, "_apart", without))


@pytest.mark.parametrize("name", ["2pc"])
@pytest.mark.parametrize("point", ["", "commit", "pre_commit"])
def test_replayed_letters_are_written_and_marked_once(
    opener: Opener, monkeypatch: pytest.MonkeyPatch, point: str
) -> None:
    with opener() as harness, Case(harness) as case:
        case.run().epoch(0, rows(0, 10))
        kept = S3Letters(harness.options)
        ids = [letter["id"] for letter in kept.found()]
        with pytest.raises(RowError, match="NUL"):
            kept.replay(ids)
        assert len(kept.found()) == 2
        # Parquet holds a NUL.
        roomy = S3Letters(replace(harness.options, fileformat="parquet", compression="none"))

        def dies(*_: object) -> None:
            raise Halted

        if point:
            with monkeypatch.context() as planted:
                where = TwoPhaseCommitter if point == "commit" else TwoPhaseWriter
                planted.setattr(where, point, dies)
                with pytest.raises(Halted):
                    roomy.replay(ids)
        assert roomy.replay(ids) == (0 if point == "commit" else 2)
        assert roomy.replay(ids) == 0
        assert kept.found() == []
        seen = harness.keys()
        parquet = [key for key in seen if key.endswith(".parquet")]
        assert len(parquet) == 1


def replays(path: str, given: Mapping[str, str], job: str, named: str, fileformat: str) -> None:
    """A letter of a job of one protocol is replayed by one that the command's URL names, or by none."""
    dead = f"{path}-dead"
    common = {**given, "path": path, "deadletter": dead, "deadlettermax": "1", "fileformat": "json"}
    options = S3Options.parse({**common, "protocol": job})
    run = Run(S3Sink(options, FULL), "job")
    state, _ = run.begin(0)
    row: dict[str, object] = {"text": "t", "folder": "f", "id": 1}
    writer = run.sink.writer(Task(state.register, "job", state.generation, 0, 0, "a1"))
    writer.write(pa.RecordBatch.from_pylist([row, {**row, "text": "a\0b"}], FULL))
    run.commit(0, [Wrote(2, writer.pre_commit())])
    texts = {**given, "fileformat": fileformat, **({"protocol": named} if named else {})}
    url = f"{path}?{urlencode(texts)}"
    places = format_at(url).letters()
    assert places is not None
    kept = places.at(url, dead, None, {})
    ids = [letter["id"] for letter in kept.found()]
    assert (kept.replay(ids), kept.replay(ids), kept.found()) == (1, 0, [])
    # A reader of another protocol than the job's is one that the user has chosen.
    seen = [file.key.rpartition(".")[2] for file in committed_files(options)]
    assert sorted(seen) == sorted(["json", fileformat])


NAMED = [
    (job, named)
    for job in ("2pc", "wal", "idempotent")
    for named in ("", "2pc", "wal", "idempotent")
    if job != "idempotent" or named in ("", "idempotent")
]


@sample.cases(3)
@pytest.mark.parametrize(("job", "named"), NAMED)
@pytest.mark.parametrize("fileformat", ["parquet", "csv", "arrow"])
def test_a_letter_is_replayed_by_each_protocol_to_each_format(
    path: str, given: Mapping[str, str], job: str, named: str, fileformat: str
) -> None:
    replays(path, given, job, named, fileformat)


def test_a_replay_that_readers_of_the_job_leave_out_is_found(
    path: str, given: Mapping[str, str]
) -> None:
    with planted((S3Options, "written", property(lambda self: {}))):
        replays(path, given, "idempotent", "", "parquet")


def composed(path: str, given: Mapping[str, str], numbers: Iterable[int]) -> int:
    """Write rows of any types under wal with dead letters; how many files hold all that were good."""
    held = 0
    for number in numbers:
        random = Random(f"segment {number} {sample.seed()}")
        kinds = [any_type(random) for _ in range(2)]
        columns = [pa.array(range(8)), *(any_array(random, kind, 8) for kind in kinds)]
        batch = pa.RecordBatch.from_arrays(columns, names=["id", "a", "b"])
        place = {"path": f"{path}/{number}", "deadletter": f"{path}/{number}-dead"}
        more = {"protocol": "wal", "fileformat": "parquet", "deadlettermax": "1"}
        options = S3Options.parse({**given, **place, **more})
        try:
            sink = S3Sink(options, batch.schema)
        except SchemaError:
            continue
        run = Run(sink, f"job-{number}")
        state, _ = run.begin(0)
        task = Task(state.register, run.job, state.generation, 0, 0, "a1")
        writer = sink.raw_writer(task)
        good = batch.num_rows - len(why_bad(writer.bad_rows(batch)))
        writer.write(batch)
        run.commit(0, [Wrote(batch.num_rows, writer.pre_commit())])
        bodies = [Objects(options.bucket).get(file.key) for file in committed_files(options)]
        rows = [pq.read_metadata(pa.BufferReader(body.data)).num_rows for body in bodies if body]
        assert (sum(rows), len(S3Letters(options).found())) == (good, batch.num_rows - good)
        held += 1
    return held


@pytest.mark.parametrize(
    "numbers", [range(2), pytest.param(range(2, 80), marks=pytest.mark.campaign)]
)
def test_rows_of_any_type_pass_a_segment_with_letters(
    path: str, given: Mapping[str, str], numbers: range
) -> None:
    composed(path, given, numbers)


@pytest.mark.campaign
def test_a_segment_that_does_not_give_back_a_layout_is_found(
    path: str, given: Mapping[str, str]
) -> None:
    bug = wal_of_s3, "taken", lambda rows, places: rows.take(places)
    with planted(bug, by=pa.ArrowException):
        composed(path, given, range(80))


def lose_prepared(harness: Buried) -> None:
    assert harness.options.letters is not None
    for pending in list(harness._uploads.list(harness.options.letters.folder)):
        harness._uploads.abort(pending.key, pending.upload_id)


@sample.cases(1)
@pytest.mark.parametrize("name", ["2pc", "wal"])
def test_letters_that_go_between_decision_and_finish_are_an_error_that_names_them(
    opener: Opener,
) -> None:
    """Under ``idempotent`` the put of the register is decision and commit in one."""
    check_lost(opener, lose_prepared)


@pytest.mark.parametrize("name", ["2pc"])
def test_a_lost_upload_that_is_taken_for_committed_is_found(opener: Opener) -> None:
    """Planted: a handle counts as committed where one of its files is."""

    def together(outcomes: set[Outcome]) -> Outcome:
        return max(outcomes, key=lambda each: each is Outcome.COMMITTED)

    bug = twophase, "_together", together
    with planted(bug, by=pytest.fail.Exception, match="DID NOT RAISE"):
        check_lost(opener, lose_prepared)


@sample.cases(1)
@pytest.mark.parametrize("name", ["2pc", "idempotent"])
def test_a_dead_letter_that_is_not_in_its_file_leaves_the_epoch_undecided(
    opener: Opener,
) -> None:
    """Rows that pass = rows written + rows dead, by the files."""
    bury = StreamingWriter._bury
    bug = StreamingWriter, "_bury", lambda self, letters: bury(self, letters.slice(1))
    with opener() as harness, Case(harness) as case:
        run = case.run()
        with planted(bug, by=MiscountError, match="2 dead letters were counted"):
            run.epoch(0, rows(0, 10))
        assert run.state().last_decided is None
        case.run().epoch(0, rows(0, 10))
        assert len(harness.letters()) == 2
