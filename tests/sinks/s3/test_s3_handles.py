"""What a handle says of its uploads reads back, an older release's too; anything else is refused."""

from __future__ import annotations

import json

import pytest

from abs_core.errors import CorruptionError
from abs_sinks.s3.uploads import Upload, uploads_from_text, uploads_to_text

UPLOAD = Upload("a/b.parquet", "id", 7, "0" * 16, ("e1", "e2"), ("1" * 16, "2" * 16))


def test_uploads_read_back() -> None:
    lean = Upload("a/c.parquet", "id", 7, "0" * 16, ())
    assert uploads_from_text(uploads_to_text([UPLOAD, lean])) == (UPLOAD, lean)


def test_a_handle_of_a_release_that_kept_no_checksums_of_parts_reads_back() -> None:
    older = json.dumps([["a/b.parquet", "id", 7, "0" * 16, "e1 e2"]])
    (upload,) = uploads_from_text(older)
    assert upload == Upload("a/b.parquet", "id", 7, "0" * 16, ("e1", "e2"))


@pytest.mark.parametrize(
    "text",
    ["", "{}x", "[[]]", '[["k", "i", 7, "0", "e1 e2", "1"]]', '[["k", "i", "x", "0", "e"]]'],
)
def test_what_is_no_list_of_uploads_is_refused(text: str) -> None:
    with pytest.raises(CorruptionError, match="cannot be read"):
        uploads_from_text(text)
