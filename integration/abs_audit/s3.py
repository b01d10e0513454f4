"""Objects under a prefix of an S3 bucket as a relation, found by listing."""

from __future__ import annotations

import contextlib
import tempfile
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager
from dataclasses import dataclass, field, replace
from datetime import UTC, datetime
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

import boto3
from boto3.exceptions import RetriesExceededError
from botocore.config import Config
from botocore.exceptions import BotoCoreError, ClientError
from duckdb import DuckDBPyConnection, DuckDBPyRelation

from abs_audit.contracts import Relation, Side
from abs_audit.families import Type
from abs_audit.files import Copy, Files, endings, folders_of
from abs_audit.locate import without_table
from abs_audit.report import LeftBehind, Pending
from abs_clients.hidden import FOLDER_MARKERS, is_hidden
from abs_clients.s3.errors import code_of, to_abs_error
from abs_clients.s3.location import Location
from abs_clients.s3.objects import OBJECTS, UPLOADS, pages
from abs_core.durable import disk_errors
from abs_core.errors import ConfigError, OptionError, UnavailableError
from abs_core.model import HandleName, JobState
from abs_sinks.deadletters.place import KeptLetters
from abs_sinks.s3.committed import committed_files
from abs_sinks.s3.layout import FileName
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import S3Register
from abs_sinks.urls import parts_of

_ABSENT = (None, None, None)


def needs_manifest(key: str) -> HandleName | None:
    """The handle of a file that only a manifest commits; None: it is there for every reader."""
    name = FileName.parse(key.rpartition("/")[2])
    return name.handle if name is not None and name.by_manifest else None


def is_over(handle: HandleName, state: JobState) -> bool:
    """Whether no manifest can name the handle's files any more."""
    if handle.generation != state.generation:
        return handle.generation < state.generation
    return state.frontier is not None and handle.epoch <= state.frontier


class S3Side(Side):
    """See ``Side``."""

    def at(self, url: str, table: str | None, null: str | None, stateschema: str) -> S3Files:
        without_table(table)
        parts = parts_of(url)
        query = dict(parse_qsl(parts.query))
        endpoint, region, statepath = map(query.pop, ("endpoint", "region", "statepath"), _ABSENT)
        if query or not parts.netloc or "@" in f"{parts.netloc}{endpoint or ''}":
            raise OptionError(
                "This is not a prefix of a bucket.",
                remedy="write s3://bucket/prefix?endpoint=http://host:port&region=name, and "
                "statepath=s3://... if the job has that option; credentials come from the "
                "environment, as boto3 finds them.",
            )
        return S3Files(parts.netloc, parts.path.strip("/"), endpoint, region, null, statepath)

    def letters(
        self, url: str, deadletter: str, table: str | None, stateschema: str
    ) -> tuple[KeptLetters | None, Callable[[str], bool]]:
        """See ``Side``."""
        path = str(Location.parse(url.partition("?")[0]))
        return self._kept(url, deadletter, table), path.__eq__

    def refused_by(self, options: S3Options) -> Callable[[str], bool]:
        """See ``Side``."""
        return str(options.path).__eq__

    def of(self, options: S3Options) -> S3Files:
        if options.fileformat == "csv" and not options.header:
            raise ConfigError(
                f"Files of {options.path} have no header, so nothing names their columns.",
                remedy="take its `audit` out of the file of --sinks, and compare its files by hand; "
                "a folder of a job with header=true can be audited.",
            )
        path, server = options.path, options.server
        return S3Files(
            path.bucket,
            path.folder.rstrip("/"),
            server.endpoint,
            server.region,
            statepath=None if options.statepath is None else str(options.statepath),
        )


@dataclass(frozen=True, slots=True)
class S3Files(Relation):
    """Listed objects: each read lists anew, fetches all objects, and reads them as ``Files``.

    Hidden names are skipped, as in Spark. Of the files of ``protocol=idempotent``, which a manifest
    commits, those count that one names, as for ``spark.read.format("abs-s3")``; for them, credentials
    come from boto3's chain.

    Args:
        prefix: of the keys; without a slash at its end.
        endpoint: of a server that is not Amazon's.
        region: if the chain has none.
        null: as for ``Files``.
        statepath: of the job, if it has that option.
        secrets: ``AWS_ACCESS_KEY_ID`` and ``AWS_SECRET_ACCESS_KEY``, if not from the chain.
    """

    bucket: str
    prefix: str
    endpoint: str | None = None
    region: str | None = None
    null: str | None = None
    statepath: str | None = None
    secrets: Mapping[str, str] = field(default_factory=dict, repr=False, hash=False)

    @property
    def name(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def columns(self, connection: DuckDBPyConnection) -> Mapping[str, Type]:
        with self._fetched() as files:
            return files.columns(connection)

    @contextlib.contextmanager
    def rows(
        self, connection: DuckDBPyConnection, names: Sequence[str]
    ) -> Iterator[DuckDBPyRelation]:
        with self._fetched() as files, files.rows(connection, names) as rows:
            yield rows

    def left_behind(self) -> LeftBehind:
        """Multipart uploads under the prefix that are neither completed nor aborted; and files that a
        manifest may commit yet."""
        now = datetime.now(UTC)
        with self._mapped():
            client = self._client()
            uploads = self._listed(client.list_multipart_uploads, UPLOADS, "uploads", "Uploads")
            pending = [
                Pending(
                    f"upload of {upload['Key']}",
                    max(0.0, (now - upload["Initiated"]).total_seconds()),
                )
                for upload in uploads
            ]
            undecided = self._undecided(self._named(client))
        return LeftBehind(pending=(*pending, *undecided))

    @property
    def _folder(self) -> str:
        return f"{self.prefix}/" if self.prefix else ""

    @contextlib.contextmanager
    def _fetched(self) -> Iterator[Files]:
        with contextlib.ExitStack() as held:
            copies = {}
            with self._mapped(), self._on_disk():
                root = Path(held.enter_context(tempfile.TemporaryDirectory(prefix="abs-audit-")))
                client = self._client()
                for number, key in enumerate(self._keys(client)):
                    # Not under the key's own name: parts of it may be "..", or too long for a disk.
                    *folders, name = key.removeprefix(self._folder).split("/")
                    there = root / f"{number:08d}{''.join(endings(name))}"
                    copies[there] = Copy(f"s3://{self.bucket}/{key}", folders_of(folders))
                    self._copy(client, key, there)
            if not copies:
                raise ConfigError(
                    f"{self.name}: there is no object to read.", remedy="correct the path."
                )
            yield Files((str(root),), self.null, copies, self.name)

    def _copy(self, client: Any, key: str, there: Path) -> None:
        try:
            client.download_file(self.bucket, key, str(there))
        except ClientError as error:
            if code_of(error) not in ("NoSuchKey", "404"):
                raise
            raise UnavailableError(
                f"s3://{self.bucket}/{key} was removed while {self.name} was read.",
                remedy="audit again while nothing is removed there.",
            ) from error

    def _on_disk(self) -> AbstractContextManager[None]:
        """Map errors of the copies."""
        return disk_errors(
            f"Local disk in {tempfile.gettempdir()}, for copies of the objects of {self.name},",
            room="make room, or name another folder by TMPDIR",
        )

    def _keys(self, client: Any) -> list[str]:
        """Of the objects that readers get."""
        keys = self._named(client)
        named = self._committed(keys)
        return [key for key in keys if needs_manifest(key) is None or key in named]

    def _named(self, client: Any) -> list[str]:
        """Of all objects that are not hidden."""
        entries = self._listed(client.list_objects_v2, OBJECTS, "objects", "Contents")
        return [entry["Key"] for entry in entries if not self._hidden(entry["Key"])]

    def _committed(self, keys: Sequence[str]) -> set[str]:
        """Those that manifests name; asks for them only if one of these needs it."""
        if not any(map(needs_manifest, keys)):
            return set()
        return {file.key for file in committed_files(self._options)}

    def _undecided(self, keys: Sequence[str]) -> Iterator[Pending]:
        named = self._committed(keys)
        unnamed = (needs_manifest(key) for key in keys if key not in named)
        handles = dict.fromkeys(filter(None, unnamed))
        if not handles:
            return
        places = dict.fromkeys((None, self._options.statepath))
        registers = [S3Register(replace(self._options, statepath=place)) for place in places]
        stored = [cell.state for register in registers for cell in register.jobs()]
        states = {state.register: state for state in stored}
        for handle in handles:
            state = states.get(handle.register)
            if state is None or not is_over(handle, state):
                yield Pending(
                    f"files of {handle}: no manifest names them, so readers do not see them"
                )

    @property
    def _options(self) -> S3Options:
        texts = {"endpoint": self.endpoint, "region": self.region, "statepath": self.statepath}
        set_ = {name: value for name, value in texts.items() if value is not None}
        return S3Options.parse({"path": self.name, **set_})

    def _listed(
        self, call: Callable[..., Any], markers: Mapping[str, str], kind: str, field: str
    ) -> Iterator[Mapping[str, Any]]:
        below = f"{kind} below {self.name}"
        for page in pages(call, markers, below, Bucket=self.bucket, Prefix=self._folder):
            yield from page.get(field, ())

    def _hidden(self, key: str) -> bool:
        parts = key.removeprefix(self._folder).split("/")
        return key.endswith(FOLDER_MARKERS) or any(map(is_hidden, parts))

    def _client(self) -> Any:
        style = {"addressing_style": "path"} if self.endpoint else {}
        return boto3.client(
            "s3",
            endpoint_url=self.endpoint,
            region_name=self.region,
            aws_access_key_id=self.secrets.get("AWS_ACCESS_KEY_ID"),
            aws_secret_access_key=self.secrets.get("AWS_SECRET_ACCESS_KEY"),
            config=Config(s3=style, retries={"mode": "standard", "max_attempts": 5}),
        )

    @contextlib.contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except (ClientError, BotoCoreError) as error:
            if isinstance(error, ClientError) and code_of(error) in ("NoSuchBucket", "404"):
                raise ConfigError(f"There is no {self.name}.", remedy="correct the URL.") from error
            raise to_abs_error(error, f"reading {self.name}") from error
        except RetriesExceededError as error:
            raise to_abs_error(error.last_exception, f"reading {self.name}") from error
