"""What became of an upload, by what the server says of its parts and its object; none is asked."""

from __future__ import annotations

from collections.abc import Iterator, Sequence
from dataclasses import dataclass, field, replace
from hashlib import md5
from typing import Any

import pytest
from awscrt.checksums import crc64nvme
from botocore.client import BaseClient
from botocore.exceptions import ClientError

from abs_clients.s3.objects import Head
from abs_core.errors import ContentionError, TargetError
from abs_core.model import HandleName, Outcome
from abs_sinks.s3 import S3Options, upload_commit
from abs_sinks.s3.manifests import ManifestName
from abs_sinks.s3.upload_commit import PendingUploads
from abs_sinks.s3.uploads import HANDLE, Completed, Refusal, Upload, Uploads
from abs_testing.case import raises

NAME = HandleName("0123456789abcdef", "job", 1, 0, 0, "abc")
CONTENT = (b"one", b"second")
ETAGS = tuple(md5(part, usedforsecurity=False).hexdigest() for part in CONTENT)
WHOLE = b"".join(CONTENT)
UPLOAD = Upload("folder/file", "id", len(WHOLE), f"{crc64nvme(WHOLE):016x}", ETAGS)
_DIGESTS = md5(b"".join(map(bytes.fromhex, ETAGS)), usedforsecurity=False).hexdigest()

OURS = Head(len(WHOLE), f'"{_DIGESTS}-2"', UPLOAD.crc, {HANDLE: str(NAME)})
HEADS = {
    "none": (None, False),
    "ours": (OURS, True),
    "ours by its ETag": (replace(OURS, crc64nvme=None), True),
    "ours by its content": (replace(OURS, crc64nvme=None, etag='"x"'), True),
    "of another handle": (replace(OURS, metadata={HANDLE: "abs1:other"}), False),
    "of another size": (replace(OURS, size=len(WHOLE) + 1), False),
    "of another checksum": (replace(OURS, crc64nvme="0" * 16), False),
}
PARTS = {
    "gone": (None, False),
    "whole": ({(1, ETAGS[0]): 3, (2, ETAGS[1]): 6}, True),
    "with an older one": ({(1, "x"): 9, (1, ETAGS[0]): 3, (2, ETAGS[1]): 6}, True),
    "one lacks": ({(1, ETAGS[0]): 9}, False),
    "one is another": ({(1, ETAGS[0]): 3, (2, "x"): 6}, False),
    "one is shorter": ({(1, ETAGS[0]): 3, (2, ETAGS[1]): 5}, False),
    "in another order": ({(2, ETAGS[0]): 3, (1, ETAGS[1]): 6}, False),
}
Patch = pytest.MonkeyPatch
REFUSED = Refusal("Conflict", 409)


@dataclass
class Server:
    """Says this of the upload and of its object.

    Args:
        answers: to each try to complete; after one that succeeds the object is there.
    """

    found: Head | None
    known: dict[tuple[int, str], int] | None
    answers: list[Completed | Refusal] = field(default_factory=list)
    tries: list[bool] = field(default_factory=list)
    content: Sequence[bytes] = CONTENT

    def head(self, _: str) -> Head | None:
        return self.found

    def chunks(self, _: str) -> Iterator[bytes]:
        return iter(self.content)

    def parts(self, *_: str) -> dict[tuple[int, str], int] | None:
        return self.known

    def complete(self, _: Upload, if_absent: bool = True) -> Completed | Refusal:
        self.tries.append(if_absent)
        answer = self.answers.pop(0)
        if isinstance(answer, Completed) and not if_absent:
            self.found = OURS
        return answer


def pending(server: Server) -> PendingUploads:
    made: Any = PendingUploads(S3Options.parse({"path": "s3://bucket/folder"}))
    made._objects = made._uploads = server
    return made  # type: ignore[no-any-return]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("head", HEADS)
def test_an_upload_is_prepared_with_all_its_parts_and_committed_with_its_own_object(
    head: str, parts: str
) -> None:
    (found, ours), (known, whole) = HEADS[head], PARTS[parts]
    outcome = pending(Server(found, known)).inspect(NAME, UPLOAD)
    assert outcome is (
        Outcome.PREPARED if whole else Outcome.COMMITTED if ours else Outcome.UNKNOWN
    )
    assert pending(Server(found, known)).is_there(NAME, UPLOAD) is ours


@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("crc", [UPLOAD.crc, None, "0" * 16])
def test_a_completed_upload_is_committed_by_its_checksum_or_by_its_object(
    crc: str | None, head: str
) -> None:
    found, ours = HEADS[head]
    server = Server(found, None, [Completed(crc)])
    committed = crc == UPLOAD.crc or ours
    outcome = pending(server).complete(NAME, UPLOAD)
    assert outcome is (Outcome.COMMITTED if committed else Outcome.UNKNOWN)
    assert server.tries == [True]


@pytest.mark.parametrize("parts", PARTS)
@pytest.mark.parametrize("head", HEADS)
@pytest.mark.parametrize("again", [Completed(None), REFUSED], ids=["done", "refused"])
def test_a_refused_upload_is_completed_again_only_where_it_is_whole_and_no_object_there(
    again: Completed | Refusal, head: str, parts: str, monkeypatch: Patch
) -> None:
    monkeypatch.setattr(upload_commit, "LOOK_SECONDS", 0.0)
    (found, ours), (known, whole) = HEADS[head], PARTS[parts]
    server = Server(found, known, [REFUSED, again])
    sent_again = found is None and whole
    if sent_again and again is REFUSED:
        raises(ContentionError, lambda: pending(server).complete(NAME, UPLOAD))
    else:
        committed = Outcome.COMMITTED if ours or sent_again else Outcome.UNKNOWN
        assert pending(server).complete(NAME, UPLOAD) is committed
    assert server.tries == [True, False][: 1 + sent_again]


def _refusing(code: str, status: int, monkeypatch: Patch) -> Uploads:
    """Uploads of a server that answers so to each call."""
    said: Any = {
        "Error": {"Code": code, "Message": "on purpose"},
        "ResponseMetadata": {"HTTPStatusCode": status},
    }

    def call(_: BaseClient, name: str, given: object) -> None:
        raise ClientError(said, name)

    monkeypatch.setattr(BaseClient, "_make_api_call", call)
    monkeypatch.setenv("AWS_ACCESS_KEY_ID", "key")
    monkeypatch.setenv("AWS_SECRET_ACCESS_KEY", "secret")
    # Nothing answers there: not to what is sent past boto3 either.
    nowhere = {"endpoint": "http://127.0.0.1:1", "region": "us-east-1"}
    return Uploads(S3Options.parse({"path": "s3://bucket/folder", **nowhere}))


@pytest.mark.parametrize(
    ("code", "status", "told"),
    [
        ("InvalidPart", 400, True),
        ("NoSuchUpload", 404, True),
        ("ConditionalRequestConflict", 409, True),
        ("PreconditionFailed", 412, True),
        ("RequestTimeout", 400, False),
        ("OperationAborted", 409, False),
        ("NoSuchBucket", 404, False),
        ("AccessDenied", 403, False),
        ("SlowDown", 503, False),
    ],
)
def test_a_refusal_says_something_of_the_upload_or_is_an_error(
    code: str, status: int, told: bool, monkeypatch: Patch
) -> None:
    server = _refusing(code, status, monkeypatch)
    if told:
        refusal = server.complete(UPLOAD, if_absent=False)
        assert refusal == Refusal(code, status, "on purpose")
    else:
        raises(TargetError, lambda: server.complete(UPLOAD, if_absent=False))


@pytest.mark.parametrize(("code", "gone"), [("NoSuchUpload", True), ("NoSuchKey", False)])
def test_an_upload_is_gone_only_where_the_server_says_so(
    code: str, gone: bool, monkeypatch: Patch
) -> None:
    server = _refusing(code, 404, monkeypatch)
    if gone:
        assert server.parts("folder/file", "id") is None
        server.abort("folder/file", "id")
    else:
        raises(TargetError, lambda: server.parts("folder/file", "id"))
        raises(TargetError, lambda: server.abort("folder/file", "id"))


def test_an_object_without_a_checksum_is_ours_by_its_content_only() -> None:
    bare = replace(OURS, crc64nvme=None, etag='"x"')
    for content, ours in ((CONTENT, True), ((b"one", b"secone"), False), ((), False)):
        server = Server(bare, None, content=content)
        assert pending(server).is_there(NAME, UPLOAD) is ours


@pytest.mark.parametrize("number", range(4))
@pytest.mark.parametrize("written", ["0{}", "00", "+{}", ""])
def test_a_manifest_has_one_name(number: int, written: str) -> None:
    numbers = ["0", "1", "2", "3"]
    name = "-".join([*numbers, "0123456789abcdef"])
    assert str(ManifestName.parse(name)) == name
    numbers[number] = written.format(numbers[number])
    assert ManifestName.parse("-".join([*numbers, "0123456789abcdef"])) is None
