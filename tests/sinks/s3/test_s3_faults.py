"""Requests that are lost, delayed, doubled or answered with a lie: no row is lost, none is doubled."""

from __future__ import annotations

import secrets
from collections.abc import Iterator, Mapping
from dataclasses import replace
from functools import partial

import pytest
from awscrt.checksums import crc64nvme

from abs_clients.s3.objects import Objects
from abs_core.errors import HandleLostError, NotPreparedError, UnavailableError
from abs_core.model import Outcome
from abs_services import S3Service
from abs_sinks.s3 import S3Options, S3Sink, twophase
from abs_sinks.s3.preflight import preflight
from abs_sinks.s3.testing import FolderHarness
from abs_sinks.s3.uploads import Uploads, uploads_of
from abs_testing import SCHEMA
from abs_testing.case import Case, rows
from abs_testing.cuts import Cut, Halted
from tests import sample
from tests.sinks.s3.proxy import Fault, Plan, Proxy, by_proxy, running

pytestmark = pytest.mark.services

LEFT, RIGHT, NEXT = rows(0, 3), rows(10, 3), rows(20, 3)
CALLS = (
    "CreateMultipartUpload",
    "UploadPart",
    "CompleteMultipartUpload",
    "AbortMultipartUpload",
    "ListMultipartUploads",
    "ListParts",
    "GetObject",
    "PutIf",
)
ON_OBJECTS = ("PutObject", "HeadObject", "GetObject", "ListObjectsV2", "DeleteObject")
MADE = {
    "2pc": CALLS,
    # A segment's size comes with its first bytes: nobody asks for it.
    "wal": (*CALLS, *(call for call in ON_OBJECTS if call != "HeadObject")),
    # Uploads are completed at pre-commit: nobody asks for their parts.
    "idempotent": (*(call for call in CALLS if call != "ListParts"), *ON_OBJECTS, "DeleteObjects"),
}
"""Every call that a job of the protocol makes on its way, and to sweep."""

WORST = {("2pc", "CompleteMultipartUpload"), ("2pc", "PutIf"), ("idempotent", "PutIf")}
"""What changes what readers or other runs see."""

LOST = (Fault.DROPPED, Fault.UNANSWERED, Fault.DELAYED, Fault.DOUBLED)
ONCE, ALWAYS = 1, 6
"""Fewer times than the client tries, and more."""


def error(code: str) -> bytes:
    return f"<?xml version='1.0'?><Error><Code>{code}</Code><Message>no</Message></Error>".encode()


@pytest.fixture
def protocol(request: pytest.FixtureRequest) -> str:
    """2pc, where a test says nothing else."""
    return str(getattr(request, "param", "2pc"))


@pytest.fixture(scope="module")
def proxy(store: S3Service) -> Iterator[Proxy]:
    with running(store.endpoint) as proxy:
        yield proxy


@pytest.fixture
def faulty(harness: FolderHarness, proxy: Proxy) -> Iterator[FolderHarness]:
    """The harness's sinks go through the proxy; it looks at the server without it."""
    options = by_proxy(proxy, harness.options, timeout=5.0)
    harness.new_sink = partial(S3Sink, options, SCHEMA)
    yield harness
    proxy.plan = None
    proxy.delayed.clear()


def live(case: Case, lives: int = 4) -> None:
    """A job of two epochs that its engine starts again when it fails."""
    for left in reversed(range(lives)):
        try:
            run = case.run()
            run.epoch(0, LEFT, RIGHT)
            run.epoch(1, NEXT)
            case.run().begin(2)  # a start sweeps
        except (UnavailableError, NotPreparedError):
            if not left:
                raise
        else:
            return


@sample.cases(2, of="fault")
@pytest.mark.parametrize("times", [ONCE, pytest.param(ALWAYS, marks=pytest.mark.campaign)])
@pytest.mark.parametrize("fault", LOST, ids=lambda fault: fault.name)
@pytest.mark.parametrize(
    ("protocol", "call"),
    [
        pytest.param(way, call, marks=() if (way, call) in WORST else pytest.mark.campaign)
        for way, calls in MADE.items()
        for call in dict.fromkeys(calls)
    ],
    indirect=["protocol"],
)
def test_a_call_that_goes_wrong_loses_and_doubles_nothing(
    call: str, fault: Fault, times: int, faulty: FolderHarness, proxy: Proxy
) -> None:
    case = Case(faulty)
    if call == "AbortMultipartUpload":
        with pytest.raises(Halted):  # for the sweep
            case.run(cut=Cut("co_commit" if case.co_commits else "compare_and_set")).epoch(0, LEFT)
    proxy.plan = Plan(call, fault, times=times)
    live(case)
    assert proxy.plan.met, f"{call} was not called"
    proxy.plan = None
    case.holds(LEFT, RIGHT, NEXT, when=f"after {call}: {fault.value}")
    proxy.deliver()
    case.holds(LEFT, RIGHT, NEXT, when=f"after {call} took effect late")
    case.run().begin(2)
    case.finished(LEFT, RIGHT, NEXT, when=f"after {call}: {fault.value}, and one more start")


LIES = {
    "200 with an error in its body": (Fault.LIED, 200, "InternalError"),
    "200 with an error in its body, and it is done": (Fault.LIED_AFTER, 200, "InternalError"),
    "409": (Fault.LIED, 409, "ConditionalRequestConflict"),
    "409, and it is done": (Fault.LIED_AFTER, 409, "ConditionalRequestConflict"),
    "412, and it is done": (Fault.LIED_AFTER, 412, "PreconditionFailed"),
    "412 of nothing": (Fault.LIED, 412, "PreconditionFailed"),
    "404, and it is done": (Fault.LIED_AFTER, 404, "NoSuchUpload"),
    "503": (Fault.LIED, 503, "SlowDown"),
    "500, and it is done": (Fault.LIED_AFTER, 500, "InternalError"),
    "400": (Fault.LIED, 400, "RequestTimeout"),
}


@pytest.mark.parametrize("lie", LIES)
def test_every_answer_to_complete_is_understood(
    lie: str, faulty: FolderHarness, proxy: Proxy
) -> None:
    fault, status, code = LIES[lie]
    case = Case(faulty)
    proxy.plan = Plan("CompleteMultipartUpload", fault, answer=(status, error(code)))
    live(case, lives=1)
    assert proxy.plan.met == 1
    case.finished(LEFT, RIGHT, NEXT, when=f"after {lie}")


def test_a_store_that_slows_down_is_waited_for(faulty: FolderHarness, proxy: Proxy) -> None:
    case = Case(faulty)
    proxy.plan = Plan("UploadPart", Fault.LIED, times=2, answer=(503, error("SlowDown")))
    live(case, lives=1)
    case.finished(LEFT, RIGHT, NEXT, when="after two times 503")


def decided(case: Case) -> tuple[Case, list[str]]:
    """An epoch that is decided and not committed; the keys of its uploads."""
    with pytest.raises(Halted):
        case.run(cut=Cut("commit")).epoch(0, LEFT, RIGHT)
    assert isinstance(case.harness, FolderHarness)
    return case, case.harness.uploads()


def test_an_upload_that_was_aborted_behind_the_decision_is_lost_and_said_so(
    harness: FolderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr("abs_sinks.s3.upload_commit.LOOK_SECONDS", 0.5)
    case, keys = decided(Case(harness))
    uploads = Uploads(harness.options)
    first = next(found for found in uploads.list(keys[0]))
    uploads.abort(first.key, first.upload_id)  # as a lifecycle rule does
    with pytest.raises(HandleLostError, match="does not tell whether"):
        case.run().epoch(0, LEFT, RIGHT)
    assert case.run().state().open
    assert len(harness.keys()) == 1, "what could be committed is"


def test_somebody_elses_object_under_our_key_is_never_taken_for_ours(
    harness: FolderHarness,
) -> None:
    case, keys = decided(Case(harness))
    Objects(harness.options.bucket).put(keys[0], b"something else")
    with pytest.raises(HandleLostError):
        case.run().epoch(0, LEFT, RIGHT)
    body = Objects(harness.options.bucket).get(keys[0])
    assert body is not None
    assert body.data == b"something else", "nobody's object is overwritten"


def test_an_object_with_our_name_and_another_content_is_never_taken_for_ours(
    harness: FolderHarness,
) -> None:
    run = Case(harness).run()
    share = run.attempt(0).write(*LEFT).pre_commit()
    assert share.committable is not None
    handle = share.committable.handle
    (key,) = harness.uploads()
    (upload,) = uploads_of(share.committable)
    other = b"x" * upload.size  # of the same size: only the content tells
    Objects(harness.options.bucket).put(key, other, metadata={"abs-handle": str(handle)})
    run.committer.abort([handle])
    assert run.committer.commit([share.committable]) == {handle: Outcome.UNKNOWN}


def test_a_part_that_was_changed_is_never_committed(harness: FolderHarness, case: Case) -> None:
    run = case.run()
    shares = run.tasks(0, LEFT)
    (found,) = Uploads(harness.options).list(harness.options.path.folder)
    other = b"something else"
    Uploads(harness.options).put_part(found.key, found.upload_id, 1, crc64nvme(other), other)
    try:
        run.commit(0, shares)  # a server that keeps both parts completes what was sent
    except NotPreparedError:
        case.hides_all("after a part was changed")
        case.run().epoch(0, LEFT)
    case.finished(LEFT, when="after a part was changed")


def test_an_upload_without_a_part_decides_nothing(harness: FolderHarness) -> None:
    run = Case(harness).run()
    share = run.attempt(0).write(*LEFT).pre_commit()
    assert share.committable is not None
    uploads = uploads_of(share.committable)
    first = uploads[0]
    more = replace(first, etags=(*first.etags, "0" * 32), crcs=(*first.crcs, "0" * 16))
    lacking = twophase.committable(share.committable.handle, 3, [more])
    found = run.committer.inspect([lacking])
    assert found[lacking.handle].outcome is Outcome.UNKNOWN
    assert run.committer.commit([lacking]) == {lacking.handle: Outcome.UNKNOWN}
    assert harness.keys() == []


@pytest.mark.parametrize(
    ("status", "header"), [(200, "If-None-Match"), (200, "If-Match")], ids=["create", "change"]
)
def test_a_store_that_ignores_conditions_is_refused(
    status: int, header: str, given: dict[str, str], proxy: Proxy, store: S3Service, prefix: str
) -> None:
    proxy.plan = Plan(
        "PutIf", Fault.LIED, skip=1 if header == "If-None-Match" else 2, answer=(status, b"")
    )
    options = S3Options.parse(
        {**given, "endpoint": proxy.endpoint, "path": f"s3://{store.bucket}/{prefix}"}
    )
    found = preflight(options, "job")
    proxy.plan = None
    assert [f.severity.value for f in found] == ["error"]
    assert header in found[0].what
    assert preflight(options, "job") == []
    assert list(Objects(options.bucket).list(options.path.folder)) == []


def test_a_bucket_that_is_not_there_is_told_and_not_made(given: Mapping[str, str]) -> None:
    options = S3Options.parse({**given, "path": f"s3://nosuch-{secrets.token_hex(6)}/x"})
    for _ in range(2):  # the first look must not have made it
        (found,) = preflight(options, "job")
        assert "does not exist" in found.what
