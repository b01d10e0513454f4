"""Options of the S3 sink: what is wrong is said, all at once, and nothing else is accepted."""

from __future__ import annotations

import pickle
from collections.abc import Mapping

import pytest

from abs_clients.s3.location import Location
from abs_core.errors import OptionError
from abs_sinks.s3 import S3Options

PATH = {"path": "s3://bucket/some/where"}


def test_defaults_are_those_that_are_documented() -> None:
    options = S3Options.parse(PATH)
    assert options.path == Location("bucket", "some/where")
    assert str(options.path) == "s3://bucket/some/where"
    assert (options.protocol, options.fileformat, options.compression) == (
        "2pc",
        "parquet",
        "snappy",
    )
    assert options.targetfilesize == 128 << 20
    assert str(options.state) == "s3://bucket/some/where/_abs"
    assert options.server.pathstyle is False
    assert S3Options.parse({**PATH, "endpoint": "http://host:1"}).server.pathstyle is True
    assert pickle.loads(pickle.dumps(options)) == options
    assert hash(options) == hash(S3Options.parse({"PATH": "s3a://bucket/some/where/"}))


@pytest.mark.parametrize(
    ("given", "said"),
    [
        ({}, "path is missing"),
        ({"path": "/local"}, "not a place in S3"),
        ({"path": "s3://b"}, "not a place in S3"),
        ({"path": "s3://bucket/a/../b"}, "cannot use"),
        ({"path": "s3://bucket/a/_abs/b"}, "own folder"),
        ({"fileformt": "json"}, "did you mean fileformat"),
        ({"fileformat": "orc"}, "fileformat must be one of"),
        ({"fileformat": "csv", "compression": "snappy"}, "cannot be compressed with snappy"),
        ({"partitionby": "a,,b"}, "partitionby must be column names"),
        ({"partitionby": "a,a"}, "partitionby must be column names"),
        ({"partsize": "4m"}, "partsize must be a size"),
        ({"partsize": "much"}, "partsize must be a size"),
        ({"endpoint": "http://me:secret@host"}, "without credentials"),
        ({"filename": "_x"}, "filename must be"),
        ({"filename": "a.b"}, "filename must be"),
        ({"sse": "none"}, "sse must be"),
        ({"ssekmskeyid": "k"}, "needs sse=aws:kms"),
        ({"statepath": "s3://other/x"}, "different buckets"),
        ({"wal": "s3://bucket/wal"}, "segments are beside the register"),
        ({"partitionby": "day,_hour"}, "names _hour: .* skip folders"),
        ({"partitionby": ".day"}, "skip"),
        ({"secretKey": "hidden"}, "boto3's chain"),
        ({"fs.s3a.endpoint": "x"}, "use endpoint"),
        ({"write": "upsert"}, "abs-postgres does upserts"),
        ({"protocol": "3pc"}, "protocol must be one of"),
    ],
)
def test_what_is_wrong_is_said(given: Mapping[str, str], said: str) -> None:
    with pytest.raises(OptionError, match=said) as raised:
        S3Options.parse({**PATH, **given} if given else {})
    assert "hidden" not in str(raised.value)
    assert "secret@" not in str(raised.value) or "endpoint" in str(raised.value)


def test_all_that_is_wrong_is_said_at_once() -> None:
    with pytest.raises(OptionError) as raised:
        S3Options.parse({"partsize": "1", "fileformat": "orc", "nothing": "x"})
    for name in ("partsize", "fileformat", "nothing", "path"):
        assert name in str(raised.value)
