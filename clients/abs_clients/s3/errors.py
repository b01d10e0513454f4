"""Maps botocore's exceptions to the project's own, by the server's error code.

One table for sinks, sources and snapshot stores. Codes: Amazon S3 API reference, "Error responses".
Only the code, the status and the server's message are shown; none contains a credential (I9).
"""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager

from botocore import exceptions as boto
from botocore.parsers import ResponseParserError
from urllib3.exceptions import HTTPError

from abs_clients.causes import local_error, name_open_files
from abs_core.errors import AbsError, ContentionError, RefusedError, TargetError, UnavailableError

_Translation = tuple[type[TargetError], str]

SYSTEM = "S3"

_CREDENTIALS = (
    "check the credentials that boto3's chain finds here (AWS_ACCESS_KEY_ID, profile, role)."
)
ENDPOINT_REMEDY = "check the option endpoint (or AWS_ENDPOINT_URL), and that the server runs."

BY_CODE: dict[str, _Translation] = {
    "AccessDenied": (
        RefusedError,
        "grant the role the missing permissions; `abs doctor` lists them.",
    ),
    "AllAccessDisabled": (RefusedError, ""),
    "BadDigest": (UnavailableError, "the data was damaged on the way."),
    "ConditionalRequestConflict": (ContentionError, ""),
    "EntityTooLarge": (RefusedError, "lower partsize or maxfilesize."),
    "ExpiredToken": (RefusedError, _CREDENTIALS),
    "InternalError": (UnavailableError, ""),
    "InvalidAccessKeyId": (RefusedError, _CREDENTIALS),
    "InvalidBucketName": (RefusedError, "check the option path."),
    "InvalidBucketState": (RefusedError, ""),
    "InvalidToken": (RefusedError, _CREDENTIALS),
    "KeyTooLongError": (RefusedError, "shorten the option path, or the values of partitionby."),
    "NoSuchBucket": (RefusedError, "create the bucket, or check the options path and endpoint."),
    "NotImplemented": (RefusedError, "the server does not implement a call that is needed here."),
    "OperationAborted": (ContentionError, ""),
    "PermanentRedirect": (RefusedError, "set the option region (or endpoint) to the bucket's."),
    "RequestTimeTooSkewed": (RefusedError, "set this machine's clock, or the server's."),
    "RequestTimeout": (UnavailableError, ""),
    "RequestTimeoutException": (UnavailableError, ""),
    "ServiceUnavailable": (UnavailableError, ""),
    "SignatureDoesNotMatch": (RefusedError, _CREDENTIALS),
    "SlowDown": (UnavailableError, "the server asks for fewer requests."),
    "TooManyRequests": (UnavailableError, "the server asks for fewer requests."),
    "XAmzContentSHA256Mismatch": (UnavailableError, "the data was damaged on the way."),
    "XMinioStorageFull": (RefusedError, "the server's disk is full: make room, then restart."),
}
"""What each code means to sinks, sources and stores alike. One that is not here goes by its status."""

_UNREACHED = (
    OSError,
    HTTPError,  # urllib3's, where botocore lets one through
    boto.HTTPClientError,  # connections broken, timed out
    boto.EndpointConnectionError,  # connections refused
    boto.IncompleteReadError,
    ResponseParserError,  # half an answer, or a proxy's
    boto.FlexibleChecksumError,
)

_WRAPPING = (OSError, HTTPError, boto.HTTPClientError, boto.ConnectionError)
"""What carries whatever has ended a request, a failure on this machine, too."""

_MAPPED = (
    boto.ClientError,
    boto.BotoCoreError,
    ResponseParserError,
    HTTPError,
    OSError,
    RecursionError,
)

_REFUSED_TLS = {
    "CERTIFICATE_VERIFY_FAILED": "name the file with its authority's certificates in AWS_CA_BUNDLE, "
    "or check the option endpoint.",
    "NO_CERTIFICATE_OR_CRL_FOUND": "the file in AWS_CA_BUNDLE has no certificate in PEM form.",
    "PEM lib": "the file with the client's certificate has none in PEM form, or no key.",
    "No such file": "a file with certificates is missing: look at AWS_CA_BUNDLE.",
    "WRONG_VERSION_NUMBER": "no TLS is spoken there: check the option endpoint; http:// does without.",
}
"""OpenSSL's reasons for a failed handshake that no retry can help; after any other, S3 is away."""

_NO_CREDENTIALS = (
    boto.NoCredentialsError,
    boto.PartialCredentialsError,
    boto.ProfileNotFound,
)


def code_of(error: boto.ClientError) -> str:
    """The server's error code; the status without one, as for HEAD."""
    return str(error.response.get("Error", {}).get("Code", "")) or str(status_of(error))


def status_of(error: boto.ClientError) -> int:
    """The HTTP status; 0 if unknown."""
    return int(error.response.get("ResponseMetadata", {}).get("HTTPStatusCode", 0))


def message_of(error: boto.ClientError) -> str:
    """The server's message without a full stop."""
    return str(error.response.get("Error", {}).get("Message", "")).rstrip(".")


def to_abs_error(error: Exception, doing: str) -> AbsError:
    """The project's error for one of botocore's.

    ``doing``: the action, as the end of a sentence: ``uploading a part of s3://b/k``.
    """
    translated = _translated(error, doing)
    if not isinstance(error, boto.ClientError):  # of which the server has answered
        translated = name_open_files(translated, error)
    return translated.of(SYSTEM)


def _translated(error: Exception, doing: str) -> AbsError:
    if isinstance(error, boto.ClientError):
        return _of_server(error, doing)
    if isinstance(error, RecursionError):  # botocore follows each redirect to another region
        return RefusedError(
            f"The S3 endpoint redirects in a circle while {doing}.",
            remedy="set the options endpoint and region to those of the bucket.",
        )
    text = " ".join(str(error).split()) or type(error).__name__
    if isinstance(error, _WRAPPING) and (local := local_error(error, doing, SYSTEM)):
        return local
    if isinstance(error, boto.EndpointConnectionError):
        return UnavailableError(
            f"S3 cannot be reached while {doing}: {text}.",
            remedy=ENDPOINT_REMEDY,
        )
    if isinstance(error, boto.SSLError):
        remedy = next((then for reason, then in _REFUSED_TLS.items() if reason in text), None)
        if remedy is not None:
            return RefusedError(f"TLS to S3 failed while {doing}: {text}.", remedy=remedy)
    if isinstance(error, _UNREACHED):
        return UnavailableError(
            f"S3 went away while {doing}: {text}.",
            remedy="the server may have executed the request; the job checks that before it "
            "continues.",
        )
    if isinstance(error, _NO_CREDENTIALS):
        return RefusedError(f"There are no credentials for {doing}: {text}.", remedy=_CREDENTIALS)
    if isinstance(error, boto.NoRegionError):
        return RefusedError(
            f"No region is set for {doing}.", remedy="set the option region, or AWS_REGION."
        )
    return TargetError(f"The S3 client failed while {doing}: {text}.")


@contextmanager
def translate_errors(doing: str) -> Iterator[None]:
    """Map botocore's errors; ``doing`` as for ``to_abs_error``."""
    try:
        yield
    except _MAPPED as error:
        raise to_abs_error(error, doing) from error


def _of_server(error: boto.ClientError, doing: str) -> AbsError:
    code, status = code_of(error), status_of(error)
    message = message_of(error)
    kind, remedy = BY_CODE.get(code) or _by_status(status)
    shown = f"{code} {status}" if code != str(status) else code
    return kind(f"S3 failed while {doing}: {message or 'no message'} [{shown}].", remedy=remedy)


def _by_status(status: int) -> _Translation:
    if status in (429, 500, 502, 503, 504) or status == 200:
        # 200: an error in the body of an answer that had begun (Complete does that).
        return UnavailableError, ""
    if status in (401, 403):
        return RefusedError, _CREDENTIALS
    if status == 409:
        return ContentionError, ""
    if 400 <= status < 500:
        return RefusedError, ""
    return TargetError, ""
