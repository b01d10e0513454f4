"""Calls on whole objects, each with its documented outcomes as values."""

from __future__ import annotations

import base64
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import closing
from dataclasses import dataclass, field
from datetime import datetime
from typing import Any

from awscrt.checksums import crc64nvme
from botocore.exceptions import ClientError

from abs_clients.s3.client import client
from abs_clients.s3.errors import code_of, status_of, translate_errors
from abs_clients.s3.server import Bucket
from abs_core.errors import CorruptionError, UnavailableError

_ABSENT = {"NoSuchKey", "NotFound", "404"}
MAX_CELL_BYTES = 1 << 28
"""Bytes of an object that holds the state of one job or the uploads of one handle."""

MAX_DELETE = 1000
"""Keys in one DeleteObjects request (Amazon S3 API reference)."""


@dataclass(frozen=True, slots=True)
class Body:
    """An object's content, its version, and when it was written."""

    data: bytes
    etag: str
    changed: datetime | None


@dataclass(frozen=True, slots=True)
class Head:
    """What the server says of an object.

    Args:
        crc64nvme: of the whole object, as 16 hex digits; None if the server keeps none.
        metadata: as it was given when the object was made, names in lower case.
    """

    size: int
    etag: str
    crc64nvme: str | None
    metadata: Mapping[str, str] = field(default_factory=dict)


@dataclass(frozen=True, slots=True)
class Listed:
    """An object in a listing."""

    key: str
    size: int
    etag: str
    modified: datetime


class Objects:
    """The objects of one bucket."""

    def __init__(self, bucket: Bucket) -> None:
        self._server = bucket.server
        self._bucket = bucket.name
        self._encryption = bucket.encryption

    def put(self, key: str, data: bytes, *, metadata: Mapping[str, str] | None = None) -> str:
        """Put it, whatever was there; its ETag."""
        with translate_errors(f"putting {self._name(key)}"):
            answer = client(self._server).put_object(
                **self._content(key, data), Metadata=dict(metadata or {})
            )
        return _etag_of(answer, self._name(key))

    def put_if(self, key: str, data: bytes, expected: str | None) -> str | None:
        """Put it where the object is still ``expected`` (None: not there); None if it is not.

        Sent once: where the reply is lost, the caller looks.
        """
        condition = {"IfNoneMatch": "*"} if expected is None else {"IfMatch": expected}
        with translate_errors(f"putting {self._name(key)} on a condition"):
            try:
                answer = client(self._server, once=True).put_object(
                    **self._content(key, data), **condition
                )
            except ClientError as error:
                # Amazon answers 404 to If-Match of an object that is gone.
                if status_of(error) == 412 or (expected and code_of(error) in _ABSENT):
                    return None
                raise
        return _etag_of(answer, self._name(key))

    def get(self, key: str, most: int | None = None) -> Body | None:
        """Its content and version; None if it is not there.

        Args:
            most: bytes that it can have; what is larger is not read into memory.

        Raises:
            CorruptionError: it has more.
        """
        with translate_errors(f"getting {self._name(key)}"):
            answer = self._found("get_object", key)
            if answer is None:
                return None
            size = int(answer["ContentLength"])
            if most is not None and size > most:
                answer["Body"].close()
                raise CorruptionError(
                    f"The object {self._name(key)} has {size:,} bytes; what was written there has "
                    f"{most:,} at most.",
                    remedy="find out who else writes there, and restore an older version of the "
                    "object.",
                )
            return Body(answer["Body"].read(), str(answer["ETag"]), answer.get("LastModified"))

    def get_range(self, key: str, first: int, end: int, etag: str) -> bytes | None:
        """The bytes from ``first`` to before ``end``; None if another object is there, or none.

        Raises:
            UnavailableError: the server answered with another number of bytes.
        """
        with translate_errors(f"getting a part of {self._name(key)}"):
            part = {"Range": f"bytes={first}-{end - 1}", "IfMatch": etag}
            answer = self._found("get_object", key, **part)
            if answer is None:
                return None
            content = bytes(answer["Body"].read())
        if len(content) != end - first:
            # HTTP allows a server to ignore the header Range.
            raise UnavailableError(
                f"The server gave {len(content):,} bytes instead of the {end - first:,} from "
                f"{first:,} on of {self._name(key)}.",
                remedy="find out what stands between this process and the store: it must pass on the "
                "header Range.",
            )
        return content

    def chunks(self, key: str) -> Iterator[bytes] | None:
        """Its content, piece by piece; None if it is not there. Read it to the end."""
        with translate_errors(f"getting {self._name(key)}"):
            answer = self._found("get_object", key)
        return None if answer is None else self._pieces(key, answer["Body"])

    def _pieces(self, key: str, body: Any) -> Iterator[bytes]:
        with closing(body), translate_errors(f"getting {self._name(key)}"):
            yield from body.iter_chunks(8 << 20)

    def head(self, key: str) -> Head | None:
        """What the server says of it; None if it is not there."""
        with translate_errors(f"looking at {self._name(key)}"):
            answer = self._found("head_object", key, ChecksumMode="ENABLED")
        if answer is None:
            return None
        if "ContentLength" not in answer or "ETag" not in answer:
            raise UnavailableError(f"The answer about {self._name(key)} ended within its headers.")
        return Head(
            int(answer["ContentLength"]),
            str(answer["ETag"]),
            checksum_text(answer.get("ChecksumCRC64NVME")),
            {name.lower(): text for name, text in answer.get("Metadata", {}).items()},
        )

    def list(self, prefix: str) -> Iterator[Listed]:
        """Every object whose key begins with ``prefix``, by key."""
        with translate_errors(f"listing {self._name(prefix)}"):
            call, name = client(self._server).list_objects_v2, f"objects below {self._name(prefix)}"
            for page in pages(call, OBJECTS, name, Bucket=self._bucket, Prefix=prefix):
                for entry in page.get("Contents", []):
                    yield Listed(
                        entry["Key"], int(entry["Size"]), entry["ETag"], entry["LastModified"]
                    )

    def between(self, prefix: str, end: str) -> Iterator[str]:
        """What stands in keys between ``prefix`` and the next ``end``, each text once."""
        with translate_errors(f"listing {self._name(prefix)}"):
            call, name = client(self._server).list_objects_v2, f"objects below {self._name(prefix)}"
            asked = {"Bucket": self._bucket, "Prefix": prefix, "Delimiter": end}
            for page in pages(call, OBJECTS, name, **asked):
                for group in page.get("CommonPrefixes", []):
                    yield group["Prefix"].removeprefix(prefix).removesuffix(end)

    def reach(self, prefix: str) -> None:
        """Ask for one key that begins with ``prefix``; raises where credentials or a route lack."""
        with translate_errors(f"listing {self._name(prefix)}"):
            client(self._server).list_objects_v2(Bucket=self._bucket, Prefix=prefix, MaxKeys=1)

    def delete(self, keys: Iterable[str]) -> None:
        """Delete these keys; a missing one is not an error."""
        wanted = list(keys)
        for at in range(0, len(wanted), MAX_DELETE):
            self._delete(wanted[at : at + MAX_DELETE])

    def _delete(self, keys: Sequence[str]) -> None:
        if len(keys) == 1:
            # DeleteObjects needs a privilege and a checksum that some servers lack.
            with translate_errors(f"deleting {self._name(keys[0])}"):
                client(self._server).delete_object(Bucket=self._bucket, Key=keys[0])
            return
        with translate_errors(f"deleting {len(keys)} objects of bucket {self._bucket}"):
            answer = client(self._server).delete_objects(
                Bucket=self._bucket,
                Delete={"Objects": [{"Key": key} for key in keys], "Quiet": True},
            )
            for failed in answer.get("Errors", [])[:1]:
                raise ClientError({"Error": failed, "ResponseMetadata": {}}, "DeleteObjects")

    def _found(self, call: str, key: str, **more: str) -> Mapping[str, Any] | None:
        """The answer of a call that reads an object; None: it is absent, or not as ``IfMatch`` says."""
        try:
            answer: Mapping[str, Any] = getattr(client(self._server), call)(
                Bucket=self._bucket, Key=key, **more
            )
        except ClientError as error:
            if code_of(error) in _ABSENT or ("IfMatch" in more and status_of(error) == 412):
                return None
            raise
        return answer

    def _content(self, key: str, data: bytes) -> dict[str, Any]:
        return {
            "Bucket": self._bucket,
            "Key": key,
            "Body": data,
            "ChecksumCRC64NVME": checksum_header(crc64nvme(data)),
            **self._encryption,
        }

    def _name(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"


def _etag_of(answer: Mapping[str, Any], name: str) -> str:
    if "ETag" not in answer:
        raise UnavailableError(f"The server stored {name} but returned no ETag.")
    return str(answer["ETag"])


def checksum_header(crc: int) -> str:
    """As S3 writes it: base64 of the big-endian bytes."""
    return base64.b64encode(crc.to_bytes(8, "big")).decode()


def checksum_text(header: str | None) -> str | None:
    """16 hex digits, for a full-object CRC-64/NVME as S3 writes it."""
    if header is None:
        return None
    try:
        raw = base64.b64decode(header, validate=True)
    except ValueError as error:
        raise CorruptionError(
            f"The server returned an invalid checksum: {header!r:.50}."
        ) from error
    return raw.hex() if len(raw) == 8 else None


OBJECTS = {"NextContinuationToken": "ContinuationToken"}
"""The argument that asks for the next page, by its name in an answer of ListObjectsV2."""

PARTS = {"NextPartNumberMarker": "PartNumberMarker"}
"""As ``OBJECTS``, of ListParts."""

UPLOADS = {"NextKeyMarker": "KeyMarker", "NextUploadIdMarker": "UploadIdMarker"}
"""As ``OBJECTS``, of ListMultipartUploads; SeaweedFS gives and needs the second one only."""

MAX_ANSWERS = 1_000_000
"""The longest list, in pages: a thousand million objects."""


def pages(
    call: Callable[..., Mapping[str, Any]], markers: Mapping[str, str], listed: str, **request: Any
) -> Iterator[Mapping[str, Any]]:
    """Every answer of a list. boto3's paginator ends without an error where a marker is missing.

    Args:
        listed: what is listed, for the error.

    Raises:
        CorruptionError: an answer says that there is more, and not where it begins, or it begins where
            an earlier answer did.
    """
    marker: dict[str, Any] = {}
    seen: set[tuple[Any, ...]] = set()
    while True:
        answer = call(**request, **marker)
        yield answer
        if not answer.get("IsTruncated"):
            return
        following = {asked: answer[name] for name, asked in markers.items() if answer.get(name)}
        place = tuple(following.values())
        if not following or place in seen or len(seen) > MAX_ANSWERS:
            why = "gave it without an end" if following else "did not say where the rest begins"
            raise CorruptionError(
                f"The server cut the list of {listed}, and {why}.",
                remedy="report it to the maker of the store, with its version; find out whether a "
                "proxy stands between this process and the store.",
            )
        seen.add(place)
        marker = following
