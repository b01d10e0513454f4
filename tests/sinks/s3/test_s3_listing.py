"""Lists that the server gives in several answers are read to their end, or are an error."""

from __future__ import annotations

from collections.abc import Callable

import pytest

from abs_clients.s3.objects import Objects
from abs_core.errors import CorruptionError
from abs_sinks.s3 import S3Options, uploads
from abs_sinks.s3.testing import FolderHarness
from abs_sinks.s3.uploads import Uploads
from tests.sinks.s3.proxy import Fault, Plan, Proxy, by_proxy

pytestmark = pytest.mark.services

Reading = Callable[[S3Options], object]

READINGS: dict[str, tuple[str, Reading]] = {
    "ListMultipartUploads": (
        "ListMultipartUploadsResult",
        lambda options: list(Uploads(options).list(options.path.folder)),
    ),
    "ListObjectsV2": (
        "ListBucketResult",
        lambda options: list(Objects(options.bucket).list(options.path.folder)),
    ),
    "ListParts": ("ListPartsResult", lambda options: Uploads(options).parts("key", "upload")),
}
"""By call: the root of its answer, and how the sink reads it."""


@pytest.fixture
def protocol() -> str:
    return "2pc"


def test_a_list_of_uploads_in_several_answers_is_read_to_its_end(
    harness: FolderHarness, monkeypatch: pytest.MonkeyPatch
) -> None:
    keys = [harness.options.path.key(f"file{number}") for number in range(5)]
    for key in keys:
        Uploads(harness.options).create(key, {})
    monkeypatch.setattr(uploads, "MAX_LISTED", 2)
    assert sorted(harness.uploads()) == keys


@pytest.mark.parametrize("call", READINGS)
def test_a_list_that_the_server_cuts_without_saying_where_is_an_error(
    call: str, harness: FolderHarness, proxy: Proxy
) -> None:
    root, read = READINGS[call]
    cut = f"<?xml version='1.0'?><{root}><IsTruncated>true</IsTruncated></{root}>".encode()
    proxy.plan = Plan(call, Fault.LIED, times=9, answer=(200, cut))
    with pytest.raises(CorruptionError, match="did not say where the rest begins") as refused:
        read(by_proxy(proxy, harness.options))
    assert "maker of the store" in refused.value.remedy
