"""ListParts and CompleteMultipartUpload without boto3 (``abs_clients.s3.direct``).

They return None without a usable answer: then boto3 sends the request, retries it and reports errors.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any
from xml.sax.saxutils import escape

from abs_clients.s3.client import direct
from abs_clients.s3.direct import Call, local, texts
from abs_clients.s3.server import Bucket

_SPACE = "http://s3.amazonaws.com/doc/2006-03-01/"


def parts(bucket: Bucket, key: str, upload_id: str) -> dict[tuple[int, str], int] | None:
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
    found = [texts(child) for child in root if local(child) == "Part"]
    try:
        return {
            (int(part["PartNumber"]), part["ETag"].strip('"')): int(part["Size"]) for part in found
        }
    except (KeyError, ValueError):
        return None


def complete(
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
