"""Reads lists that a server gives in several answers, to their end."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping
from typing import Any

from abs_core.errors import CorruptionError

OBJECTS = {"NextContinuationToken": "ContinuationToken"}
"""By its name in an answer of ListObjectsV2, the argument that asks for the next one."""

PARTS = {"NextPartNumberMarker": "PartNumberMarker"}
"""The same for ListParts."""

UPLOADS = {"NextKeyMarker": "KeyMarker", "NextUploadIdMarker": "UploadIdMarker"}
"""The same for ListMultipartUploads; SeaweedFS gives and needs the second one only."""

MOST_ANSWERS = 1_000_000
"""Of one list: a thousand million objects."""


def pages(
    call: Callable[..., Mapping[str, Any]], markers: Mapping[str, str], what: str, **given: Any
) -> Iterator[Mapping[str, Any]]:
    """Every answer of a list. boto3's paginator ends without an error where a marker is missing.

    Args:
        what: is listed, for the error.

    Raises:
        CorruptionError: an answer says that there is more, and not where it begins, or it begins where
            an earlier answer did.
    """
    marker: dict[str, Any] = {}
    seen: set[tuple[Any, ...]] = set()
    while True:
        answer = call(**given, **marker)
        yield answer
        if not answer.get("IsTruncated"):
            return
        following = {asked: answer[name] for name, asked in markers.items() if answer.get(name)}
        place = tuple(following.values())
        if not following or place in seen or len(seen) > MOST_ANSWERS:
            why = "gave it without an end" if following else "did not say where the rest begins"
            raise CorruptionError(
                f"The server cut the list of {what}, and {why}.",
                remedy="report it to the maker of the store, with its version; find out whether a "
                "proxy stands between this process and the store.",
            )
        seen.add(place)
        marker = following
