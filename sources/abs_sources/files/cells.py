"""Where a log lies: a few small named cells that are written once, on disk, in a bucket, in memory."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Protocol

from abs_core.durable import flush_folder, make_durably
from abs_core.errors import AbsError, RefusedError, UnavailableError
from abs_sources.files.bucket import NotThereError, OtherContentError, Server, client, mapped


class Cells(Protocol):
    """Cells that appear whole and are never changed, only deleted. Pickled as they are."""

    @property
    def place(self) -> str:
        """For people."""
        ...

    def names(self) -> set[str]:
        """Of all cells, as they are at this moment.

        Raises:
            UnavailableError, RefusedError: the place cannot be used.
        """
        ...

    def get(self, name: str) -> bytes | None:
        """A cell's content; None where there is none. Raises as ``names``."""
        ...

    def put_new(self, name: str, content: bytes) -> bool:
        """Make a cell that is not there yet; durable and whole when it returns.

        Linearizable: of several that make the same one, one wins. A lost reply is not guessed, it is
        looked up; so contents must differ from one writer to the other.

        Returns:
            whether the cell has this content now; False: it has another.

        Raises:
            as ``names``; the cell may be there, or come to be there.
        """
        ...

    def delete(self, names: Iterable[str]) -> None:
        """Delete cells, whether they are there or not. Raises as ``names``."""
        ...


@dataclass(frozen=True)
class FolderCells:
    """One file each, written aside, flushed to disk, then linked under its name.

    A hard link fails where the name is taken, on POSIX and on network file systems alike.
    """

    folder: Path

    @property
    def place(self) -> str:
        return str(self.folder)

    def names(self) -> set[str]:
        with self._mapped():
            if not self.folder.exists():
                return set()
            found = {path.name for path in self.folder.iterdir()}
            return {name for name in found if not name.startswith(".")}

    def get(self, name: str) -> bytes | None:
        with self._mapped():
            try:
                content = (self.folder / name).read_bytes()
            except FileNotFoundError:
                return None
            flush_folder(self.folder)  # its writer may have died between link and flush
            return content

    def put_new(self, name: str, content: bytes) -> bool:
        with self._mapped():
            make_durably(self.folder)
            aside = self.folder / f".{secrets.token_hex(8)}"
            try:
                with aside.open("xb") as file:
                    file.write(content)
                    file.flush()
                    os.fsync(file.fileno())
                (self.folder / name).hardlink_to(aside)
            except FileExistsError:
                return self.get(name) == content
            finally:
                aside.unlink(missing_ok=True)
            flush_folder(self.folder)
            return True

    def delete(self, names: Iterable[str]) -> None:
        with self._mapped():
            for name in names:
                (self.folder / name).unlink(missing_ok=True)

    @contextmanager
    def _mapped(self) -> Iterator[None]:
        try:
            yield
        except AbsError:
            raise
        except PermissionError as error:
            raise RefusedError(
                f"The log's folder {self.folder} cannot be used: {error.strerror}.",
                remedy="give this user the right to read and write it.",
            ) from error
        except OSError as error:
            raise UnavailableError(
                f"The log's folder {self.folder} does not answer: {error.strerror or error}."
            ) from error


@dataclass(frozen=True)
class BucketCells:
    """One object each, put with ``If-None-Match: *``; ``SeenLog`` proves that the server honours it."""

    server: Server
    bucket: str
    prefix: str

    @property
    def place(self) -> str:
        return f"s3://{self.bucket}/{self.prefix}"

    def names(self) -> set[str]:
        with mapped(f"listing {self.place}"):
            pages = client(self.server).get_paginator("list_objects_v2")
            return {
                item["Key"][len(self.prefix) + 1 :]
                for page in pages.paginate(Bucket=self.bucket, Prefix=f"{self.prefix}/")
                for item in page.get("Contents", ())
            }

    def get(self, name: str) -> bytes | None:
        try:
            with mapped(f"reading {self.place}/{name}"):
                answer = client(self.server).get_object(Bucket=self.bucket, Key=self._key(name))
                content: bytes = answer["Body"].read()
                return content
        except NotThereError:
            return None

    def put_new(self, name: str, content: bytes) -> bool:
        try:
            with mapped(f"writing {self.place}/{name}"):
                client(self.server).put_object(
                    Bucket=self.bucket, Key=self._key(name), Body=content, IfNoneMatch="*"
                )
        except (OtherContentError, UnavailableError) as error:
            # boto3 sends again what got no answer: 412 can be said of our own.
            there = self.get(name)
            if there is None:
                raise UnavailableError(
                    f"S3: {self.place}/{name} may or may not be written."
                ) from error
            return there == content
        return True

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            with mapped(f"deleting {self.place}/{name}"):
                client(self.server).delete_object(Bucket=self.bucket, Key=self._key(name))

    def _key(self, name: str) -> str:
        return f"{self.prefix}/{name}"


@dataclass(frozen=True)
class MemoryCells:
    """For what need not outlive its process: a batch read."""

    kept: dict[str, bytes] = field(default_factory=dict)

    @property
    def place(self) -> str:
        return "memory"

    def names(self) -> set[str]:
        return set(self.kept)

    def get(self, name: str) -> bytes | None:
        return self.kept.get(name)

    def put_new(self, name: str, content: bytes) -> bool:
        return self.kept.setdefault(name, content) == content

    def delete(self, names: Iterable[str]) -> None:
        for name in names:
            self.kept.pop(name, None)
