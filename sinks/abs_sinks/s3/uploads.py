"""Creates, fills, completes, aborts and lists multipart uploads; outcomes are values."""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass
from datetime import datetime
from email.utils import parsedate_to_datetime
from typing import Any
from xml.sax.saxutils import escape

from botocore.exceptions import ClientError

from abs_clients.s3.client import client, direct
from abs_clients.s3.direct import Call, local, texts
from abs_clients.s3.errors import code_of, message_of, status_of, translate_errors
from abs_clients.s3.objects import PARTS, UPLOADS, checksum_header, checksum_text, pages
from abs_clients.s3.server import Bucket
from abs_core.model import Committable
from abs_core.strictjson import of, parse, reading, shown, text, whole
from abs_sinks.s3.options import S3Options

HANDLE = "abs-handle"
"""Metadata key of the object's handle."""

MAX_LISTED = 1000
"""Uploads in one answer of ListMultipartUploads (Amazon S3 API reference)."""


@dataclass(frozen=True, slots=True)
class Upload:
    """An upload whose parts are all there: enough to complete it and to prove its commit.

    Args:
        crc: CRC-64/NVME of the whole, as 16 hex digits.
        etags: of the parts, in order, without quotes.
        crcs: of the parts; some servers (versitygw) need them to complete. Empty in older releases.
    """

    key: str
    upload_id: str
    size: int
    crc: str
    etags: tuple[str, ...]
    crcs: tuple[str, ...] = ()

    def to_json(self) -> list[Any]:
        parts = " ".join(self.etags), " ".join(self.crcs)
        return [self.key, self.upload_id, self.size, self.crc, *parts]

    @classmethod
    def from_json(cls, value: object) -> Upload:
        """The inverse of ``to_json``; raises ``ValueError``."""
        key, upload_id, size, crc, etags, *more = of(list, value)
        if len(more) > 1:
            raise ValueError(f"an upload has {len(more) - 1} fields too many")
        names = tuple(text(etags).split())
        crcs = tuple(text(more[0]).split()) if more else ()
        if crcs and len(crcs) != len(names):
            raise ValueError(f"{shown(key)} does not have one checksum for each part")
        return cls(text(key), text(upload_id), whole(size), text(crc), names, crcs)


def uploads_to_text(uploads: list[Upload] | tuple[Upload, ...]) -> str:
    """The uploads as text, for a committable's ``extra``."""
    return json.dumps([upload.to_json() for upload in uploads], separators=(",", ":"))


def uploads_from_text(
    written: str | bytes, subject: str = "The uploads of a handle", where: str = "the register"
) -> tuple[Upload, ...]:
    """The inverse of ``uploads_to_text``.

    Args:
        subject, where: what is read and where it is, for the error.

    Raises:
        CorruptionError: it cannot be read.
    """
    with reading(subject, f"do not delete {where}: restore it from a backup"):
        return tuple(Upload.from_json(value) for value in of(list, parse(written)))


def uploads_of(committable: Committable) -> tuple[Upload, ...]:
    """The uploads that a committable names."""
    return uploads_from_text(dict(committable.extra).get("uploads", "[]"))


@dataclass(frozen=True, slots=True)
class Pending:
    """An upload in a listing: neither completed nor aborted."""

    key: str
    upload_id: str
    age_seconds: float | None


@dataclass(frozen=True, slots=True)
class Completed:
    """The server confirms the object.

    Args:
        crc: of the whole object by the server, 16 hex digits; None: it does not tell.
    """

    crc: str | None


@dataclass(frozen=True, slots=True)
class Refusal:
    """The server's reason not to complete an upload."""

    code: str
    status: int
    message: str = ""

    def __str__(self) -> str:
        return f"{self.message or 'no message'} [{self.code} {self.status}]"


class Uploads:
    """The multipart uploads of one bucket."""

    def __init__(self, options: S3Options) -> None:
        self._options = options
        self._bucket = options.path.bucket

    def create(self, key: str, metadata: Mapping[str, str]) -> str:
        """Begin an upload and return its id. After a lost reply an extra one is left to the sweep."""
        with translate_errors(f"beginning the upload of {self._name(key)}"):
            answer = client(self._options.server).create_multipart_upload(
                Bucket=self._bucket,
                Key=key,
                Metadata=dict(metadata),
                ChecksumAlgorithm="CRC64NVME",
                ChecksumType="FULL_OBJECT",
                **self._options.bucket.encryption,
            )
        return str(answer["UploadId"])

    def put_part(
        self, key: str, upload_id: str, number: int, crc: int, data: bytes | bytearray
    ) -> str:
        """Upload a part, with retries; returns its ETag without quotes.

        Args:
            crc: the part's CRC-64/NVME; the server checks it before it answers.
        """
        with translate_errors(f"uploading part {number} of {self._name(key)}"):
            answer = client(self._options.server).upload_part(
                Bucket=self._bucket,
                Key=key,
                UploadId=upload_id,
                PartNumber=number,
                Body=data,
                ChecksumCRC64NVME=checksum_header(crc),
            )
        return str(answer["ETag"]).strip('"')

    def parts(self, key: str, upload_id: str) -> dict[tuple[int, str], int] | None:
        """Size of each part, by number and ETag; None: there is no such upload.

        A part sent again replaces the older one; SeaweedFS keeps both, and completes by ETag.
        """
        parts = direct_parts(self._options.bucket, key, upload_id)
        if parts is not None:
            return parts
        sizes: dict[tuple[int, str], int] = {}
        with translate_errors(f"looking at the upload of {self._name(key)}"):
            call, subject = client(self._options.server).list_parts, f"parts of {self._name(key)}"
            request = {"Bucket": self._bucket, "Key": key, "UploadId": upload_id}
            try:
                for page in pages(call, PARTS, subject, **request):
                    for part in page.get("Parts", []):
                        number, etag = int(part["PartNumber"]), str(part["ETag"]).strip('"')
                        sizes[number, etag] = int(part["Size"])
            except ClientError as error:
                if code_of(error) == "NoSuchUpload":
                    return None
                raise
        return sizes

    def complete(self, upload: Upload, *, if_absent: bool = True) -> Completed | Refusal:
        """Complete an upload.

        Args:
            if_absent: only if there is no object with its key.

        Raises:
            UnavailableError: the outcome is unknown: look at the object.
        """
        if if_absent:
            root = direct_complete(
                self._options.bucket,
                upload.key,
                upload.upload_id,
                part_names(upload),
                {
                    "x-amz-checksum-crc64nvme": checksum_header(int(upload.crc, 16)),
                    "x-amz-checksum-type": "FULL_OBJECT",
                    "x-amz-mp-object-size": str(upload.size),
                    "If-None-Match": "*",
                },
            )
            if root is not None:
                return Completed(checksum_text(root.get("ChecksumCRC64NVME")))
        # It may have taken effect: whoever completes again looks at the object (`upload_commit`).
        condition = {"IfNoneMatch": "*"} if if_absent else {}
        with translate_errors(f"completing the upload of {self._name(upload.key)}"):
            try:
                answer = client(self._options.server).complete_multipart_upload(
                    Bucket=self._bucket,
                    Key=upload.key,
                    UploadId=upload.upload_id,
                    MultipartUpload={"Parts": part_names(upload)},
                    ChecksumCRC64NVME=checksum_header(int(upload.crc, 16)),
                    ChecksumType="FULL_OBJECT",
                    MpuObjectSize=upload.size,
                    **condition,
                )
            except ClientError as error:
                refusal = Refusal(code_of(error), status_of(error), message_of(error))
                if refusal.status in (400, 404, 409, 412) and not _passes(refusal.code):
                    return refusal
                raise
        return Completed(checksum_text(answer.get("ChecksumCRC64NVME")))

    def abort(self, key: str, upload_id: str) -> None:
        """Abort an upload; a missing one is not an error."""
        with translate_errors(f"aborting the upload of {self._name(key)}"):
            try:
                client(self._options.server).abort_multipart_upload(
                    Bucket=self._bucket, Key=key, UploadId=upload_id
                )
            except ClientError as error:
                if code_of(error) != "NoSuchUpload":
                    raise

    def list(self, prefix: str) -> Iterator[Pending]:
        """The open uploads whose key begins with ``prefix``.

        Raises:
            CorruptionError: the server cut the list, and did not say where the rest begins.
        """
        where = self._name(prefix)
        with translate_errors(f"listing the uploads below {where}"):
            call = client(self._options.server).list_multipart_uploads
            request = {"Bucket": self._bucket, "Prefix": prefix, "MaxUploads": MAX_LISTED}
            for page in pages(call, UPLOADS, f"uploads below {where}", **request):
                now = _date_of(page)
                for upload in page.get("Uploads", []):
                    began = upload.get("Initiated")
                    age = (now - began).total_seconds() if now and began else None
                    yield Pending(upload["Key"], upload["UploadId"], age)

    def _name(self, key: str) -> str:
        return f"s3://{self._bucket}/{key}"


def part_names(upload: Upload) -> list[dict[str, Any]]:
    """The parts as boto3's Complete takes them."""
    parts: list[dict[str, Any]] = [
        {"PartNumber": number, "ETag": f'"{etag}"'} for number, etag in enumerate(upload.etags, 1)
    ]
    for part, crc in zip(parts, upload.crcs, strict=bool(upload.crcs)):
        part["ChecksumCRC64NVME"] = checksum_header(int(crc, 16))
    return parts


def _passes(code: str) -> bool:
    """Whether an error of status 400 or 409 is transient, and says nothing of the upload."""
    return code in ("RequestTimeout", "OperationAborted", "RequestTimeTooSkewed", "NoSuchBucket")


def _date_of(answer: Mapping[str, Any]) -> datetime | None:
    """The server's time, so that ages do not depend on our clock."""
    text = answer["ResponseMetadata"].get("HTTPHeaders", {}).get("date")
    try:
        return parsedate_to_datetime(text) if text else None
    except ValueError:
        return None


# Both are past boto3 (``abs_clients.s3.direct``). Where they return None, it sends the request: it
# retries it and reports errors.

_SPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def direct_parts(bucket: Bucket, key: str, upload_id: str) -> dict[tuple[int, str], int] | None:
    """Size of each part of an open upload, by number and ETag.

    None: no complete list of this upload's parts, or the upload is gone.
    """
    root = direct(bucket.server).ask(
        Call("ListParts", "GET", "ListPartsResult", bucket.name, key, {"uploadId": upload_id})
    )
    if root is None or (said := texts(root)).get("IsTruncated") != "false":
        return None
    # A cache or a proxy might answer for another upload.
    if (said.get("Key"), said.get("UploadId")) != (key, upload_id):
        return None
    parts = [texts(child) for child in root if local(child) == "Part"]
    try:
        return {
            (int(part["PartNumber"]), part["ETag"].strip('"')): int(part["Size"]) for part in parts
        }
    except (KeyError, ValueError):
        return None


def direct_complete(
    bucket: Bucket,
    key: str,
    upload_id: str,
    named: Sequence[Mapping[str, Any]],
    headers: Mapping[str, str],
) -> dict[str, str] | None:
    """Complete an upload; None: the outcome is unknown.

    Args:
        named: the parts, as boto3 takes them.
    """
    root = direct(bucket.server).ask(
        Call(
            "CompleteMultipartUpload",
            "POST",
            "CompleteMultipartUploadResult",
            bucket.name,
            key,
            {"uploadId": upload_id},
            headers,
            _body(named),
        )
    )
    return None if root is None else texts(root)


def _body(named: Sequence[Mapping[str, Any]]) -> bytes:
    elements = "".join(
        "<Part>"
        + "".join(f"<{name}>{escape(str(text))}</{name}>" for name, text in part.items())
        + "</Part>"
        for part in named
    )
    return (
        f'<CompleteMultipartUpload xmlns="{_SPACE}">{elements}</CompleteMultipartUpload>'.encode()
    )
