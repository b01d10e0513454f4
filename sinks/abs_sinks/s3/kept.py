"""The dead letters in a folder (``abs_sinks.appended``)."""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from hashlib import blake2b

import pyarrow as pa

from abs_clients.s3.objects import Objects
from abs_sinks.appended import AppendedLetters
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.sink import S3Sink


class S3Letters(AppendedLetters):
    """Args:
    options: of the sink; ``deadletter`` names the folder.
    """

    def __init__(self, options: S3Options) -> None:
        assert options.letters is not None
        self._options = options
        self._folder = options.letters

    @property
    def _place(self) -> str:
        return str(self._folder)

    def _sink(self, schema: pa.Schema) -> S3Sink:
        return S3Sink(self._options, schema)

    def _read(self) -> Iterator[tuple[str, bytes]]:
        options = self._options
        objects = Objects(options.bucket)
        # Whatever protocol the options name: others may have written there.
        common = replace(options.common, protocol="2pc")
        there = replace(options, path=self._folder, statepath=options.state, common=common)
        for key in [found.key for found in committed_files(there)]:
            body = objects.get(key)
            for number, line in enumerate(body.data.splitlines() if body else ()):
                yield blake2b(f"{key} {number}".encode(), digest_size=8).hexdigest(), line
