"""A register or objects that are lost between two steps: told, and nothing committed is deleted."""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import pytest

from abs_clients.s3.objects import Objects
from abs_core.errors import FencedError, NotPreparedError, RegisterLostError
from abs_sinks.s3 import S3Register, S3Sink, committed_files
from abs_sinks.s3.idempotent import IdempotentCommitter, Markers
from abs_sinks.s3.testing import FolderHarness
from abs_sinks.s3.uploads import Uploads
from abs_testing import SCHEMA
from abs_testing.case import JOB, Case, rows
from abs_testing.cuts import Cut, Halted
from tests.sinks.s3.proxy import Proxy, Request, by_proxy

pytestmark = pytest.mark.services

LEFT, RIGHT, MORE = rows(0, 3), rows(10, 3), rows(20, 3)

Losing = Callable[[Objects, str, bytes], None]


def deleted(objects: Objects, key: str, older: bytes) -> None:
    objects.delete([key])


def gone_back(objects: Objects, key: str, older: bytes) -> None:
    objects.put(key, older)


@pytest.fixture
def protocol() -> str:
    return "idempotent"


@pytest.mark.parametrize("lose", [deleted, gone_back])
def test_a_sweep_that_finds_its_register_lost_says_so_and_deletes_nothing(
    harness: FolderHarness, case: Case, lose: Losing
) -> None:
    objects, key = Objects(harness.options.bucket), S3Register(harness.options).key(JOB)
    case.run().begin(0)
    older = objects.get(key)
    with pytest.raises(Halted):  # the epoch is committed; its markers stay
        case.run(cut=Cut("forget")).epoch(0, LEFT, RIGHT)
    later = case.run()
    later.coordinator.begin(1)
    newest, files = objects.get(key), harness.keys()
    doubts = Markers(harness.options).list(JOB)
    assert len(doubts) == 2
    assert older is not None
    assert newest is not None
    lose(objects, key, older.data)
    with pytest.raises(RegisterLostError, match=r"register .*\. It was looked for at s3://"):
        later.committer.abort([doubt.handle for doubt in doubts])
    assert harness.keys() == files
    objects.put(key, newest.data)
    case.run().epoch(1, MORE)
    case.finished(LEFT, RIGHT, MORE, when="after the register was restored")


def test_objects_in_doubt_have_their_size_unless_the_register_lists_them(
    harness: FolderHarness, case: Case
) -> None:
    committer = IdempotentCommitter(harness.options, sized=True)
    with pytest.raises(Halted):  # the epoch is committed; its markers stay
        case.run(cut=Cut("forget")).epoch(0, LEFT)
    [committed] = committer.in_doubt(JOB)
    assert (committed.size, committed.detail[:13]) == (0, "a marker only")
    [listed] = committed_files(harness.options)
    objects = Objects(harness.options.bucket)
    case.run().attempt(1).write(*RIGHT).pre_commit()
    [written] = {*harness.keys()} - {listed.key}
    head = objects.head(written)
    assert head is not None
    assert sorted(doubt.size or 0 for doubt in committer.in_doubt(JOB)) == [0, head.size]


def test_objects_that_are_gone_before_the_decision_are_not_decided(
    harness: FolderHarness, case: Case
) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT)
    Objects(harness.options.bucket).delete(harness.keys())
    with pytest.raises(NotPreparedError, match="unknown before its epoch is decided"):
        run.commit(0, shares)
    assert run.state().last_decided is None


def test_a_task_whose_upload_is_swept_while_it_completes_is_fenced(
    harness: FolderHarness, case: Case, proxy: Proxy
) -> None:
    uploads, swept = Uploads(harness.options), list[str]()

    def sweeps(request: Request) -> bool:
        if request.call == "CompleteMultipartUpload" and not swept:
            for upload in uploads.list(harness.options.path.folder):
                uploads.abort(upload.key, upload.upload_id)
                swept.append(upload.key)
        return False

    harness.new_sink = partial(S3Sink, by_proxy(proxy, harness.options, timeout=20.0), SCHEMA)
    proxy.denied = sweeps
    try:
        attempt = case.run().attempt(0).write(*LEFT)
        with pytest.raises(FencedError, match="ended while its task was at work"):
            attempt.pre_commit()
    finally:
        proxy.denied = lambda request: False
    assert swept


def test_a_command_that_finds_no_register_deletes_nothing(
    harness: FolderHarness, case: Case
) -> None:
    """It has seen none that it could miss."""
    case.run().attempt(0).write(*LEFT).pre_commit()
    files, committer = harness.keys(), IdempotentCommitter(harness.options)
    Objects(harness.options.bucket).delete([S3Register(harness.options).key(JOB)])
    with pytest.raises(RegisterLostError, match="is missing"):
        committer.abort([doubt.handle for doubt in committer.in_doubt(JOB)])
    assert harness.keys() == files != []
