"""The format ``abs-s3``; see ``abs_sinks.door``. Clients are imported when they are used."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import parse_qsl

import pyarrow as pa

from abs_core.contracts import Committer, Inventory
from abs_core.errors import SchemaError
from abs_core.model import Finding, Guarantee, JobState
from abs_sinks.capabilities import LetterPlaces
from abs_sinks.door import Around, SinkFormat, job_of

if TYPE_CHECKING:
    from abs_sinks.asof import AsOf
    from abs_sinks.deadletters.place import KeptLetters
    from abs_sinks.s3 import S3Options, S3Sink
    from abs_sinks.s3.segments import S3Segments


class LetterFolders(LetterPlaces):
    """Folders of dead letters."""

    def at(
        self, url: str, deadletter: str, table: str | None, more: Mapping[str, str]
    ) -> KeptLetters:
        """See ``LetterPlaces``; the URL says where rows are written again."""
        from abs_sinks.s3.sink import S3Letters

        texts = {**FORMAT._texts_at(url), **more, "deadletter": deadletter}
        options = FORMAT.parse(texts)
        # Users write names in any case, letters in lower case.
        return S3Letters(options, {name.lower(): text for name, text in texts.items()})

    def of(self, options: S3Options) -> KeptLetters:
        from abs_sinks.s3.sink import S3Letters

        return S3Letters(replace(options, deadletter=options.letters or options.path))


class S3Format(SinkFormat):
    """Files in a bucket.

    ``s3://bucket/path`` is the sink's option path, its query other options of the sink
    (``?endpoint=http://host:port&region=...&statepath=...``); credentials come by boto3's chain.
    """

    name = "abs-s3"
    schemes = ("s3", "s3a", "s3n")
    library = "abs_sinks.s3.sink"
    buries = True
    past = True
    audit = "abs_audit.s3:S3Side"

    def parse(self, options: Mapping[str, str]) -> S3Options:
        from abs_sinks.s3.options import S3Options

        return S3Options.parse(options)

    def recognises(self, options: Mapping[str, str]) -> bool:
        """A path in a bucket; one on this machine is none of S3's."""
        return "path" in options and not options["path"].strip().startswith(("/", "file:"))

    def at(self, url: str, table: str | None = None, stateschema: str = "abs") -> S3Options:
        return self.parse(self._texts_at(url))

    def letters(self) -> LetterFolders:
        return LetterFolders()

    def _texts_at(self, url: str) -> dict[str, str]:
        path, _, query = url.partition("?")
        return {**dict(parse_qsl(query)), "path": path}

    def sink(self, options: S3Options, schema: pa.Schema, *, alone: bool = True) -> S3Sink:
        """The same sink in every job: the register and the files never change together."""
        from abs_sinks.s3.sink import S3Sink

        return S3Sink(options, schema)

    def administer(self, options: S3Options) -> tuple[Inventory, Committer]:
        from abs_sinks.s3.register import S3Register, Seen
        from abs_sinks.s3.sink import admin_committer

        # It ends what any protocol left: which one a job used does not matter here.
        seen: Seen = {}
        return S3Register(options, seen), admin_committer(options, seen, sized=True)

    def guarantee(self, options: S3Options) -> Guarantee:
        from abs_sinks.s3.sink import guarantee

        return guarantee(options)

    def where(self, options: S3Options) -> str:
        return str(options.path)

    def identity(self, options: S3Options) -> str:
        return str(options.path)

    def preflight(self, options: S3Options, around: Around) -> Sequence[Finding]:
        from abs_sinks.s3.preflight import preflight

        findings = [*preflight(options, job_of(options))]
        if around.schema is not None:
            try:
                self.sink(options, around.schema)
            except SchemaError as misfit:
                findings.append(Finding.of(misfit))
        return findings

    def logins(self, options: S3Options) -> Sequence[Finding]:
        from abs_clients.s3.client import told_login

        return [told_login(options.server)]

    def segments(self, url: str) -> S3Segments:
        from abs_sinks.s3.segments import S3Segments

        return S3Segments(self.at(url.partition("#")[0]), unsealed=True)

    def forget(
        self, options: S3Options, state: JobState, letters: bool | None = None
    ) -> Sequence[str]:
        """See ``SinkFormat``: the register is all that is left but the letters."""
        return (
            ()
            if letters is None or options.letters is None
            else [f"kept the dead letters in {options.letters}"]
        )

    def as_of(self, mark: str, options: S3Options | None = None) -> AsOf:
        """See ``SinkFormat``: the job's objects, without those of others in the folder."""
        from abs_sinks.s3.lookback import as_of

        return as_of(mark, readable=options is not None)


FORMAT = S3Format()
