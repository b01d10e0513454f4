"""Preflight of the store: it writes probes, checks the store's behaviour, and deletes them.

An ERROR would break the guarantee or stop the job. A WARNING is for a person to look at.
"""

from __future__ import annotations

import secrets
from collections.abc import Iterator
from typing import Any

from awscrt.checksums import crc64nvme
from botocore.exceptions import ClientError

from abs_clients.hidden import is_hidden
from abs_clients.s3.client import client
from abs_clients.s3.errors import code_of, status_of, translate_errors
from abs_clients.s3.location import Location
from abs_clients.s3.objects import Objects
from abs_core.errors import RefusedError
from abs_core.model import Finding
from abs_sinks.s3.options import S3Options
from abs_sinks.s3.register import S3Register
from abs_sinks.s3.uploads import Uploads

PROBES = "probe"


def preflight(options: S3Options, job: str | None) -> list[Finding]:
    """Check bucket, conditional writes, lifecycle rules and registers.

    Args:
        job: the register key; None: other jobs' registers are not checked.

    Raises:
        TargetError: the server cannot be reached.
    """
    if not _exists(options):
        # Before any put: some servers create a missing bucket.
        return [
            Finding.error(
                f"The bucket {options.path.bucket} does not exist.",
                "create it, or check the options path and endpoint.",
            )
        ]
    try:
        findings = [*_conditions(options), *_open_uploads(options)]
    except RefusedError as refused:
        return [Finding.of(refused)]
    rules = _ask(options, "get_bucket_lifecycle_configuration").get("Rules", [])
    findings += [*findings_of_rules(rules, options), *_bucket(options), *_state(options)]
    if job is not None:
        findings += _others(options, job)
    return findings


def _exists(options: S3Options) -> bool:
    """Whether the bucket exists; True if that may not be asked."""
    with translate_errors(f"looking for bucket {options.path.bucket}"):
        try:
            client(options.server).head_bucket(Bucket=options.path.bucket)
        except ClientError as error:
            if status_of(error) == 404:
                return False
            if status_of(error) not in (400, 403, 405, 501):
                raise
    return True


def _conditions(options: S3Options) -> Iterator[Finding]:
    """Check conditional puts, with conditions that hold and that do not."""
    objects = Objects(options.bucket)
    key = options.state.key(PROBES, secrets.token_hex(12))
    try:
        made = _put(objects, key, b"1", None)
        if made is None or objects.put_if(key, b"2", None) is not None:
            yield _ignores("If-None-Match")
            return
        wrong = '"00000000000000000000000000000000"'
        refuses_wrong = objects.put_if(key, b"3", wrong) is None
        takes_right = _put(objects, key, b"4", made) is not None
        # Now it is another version.
        refuses_old = objects.put_if(key, b"5", made) is None
        if not (refuses_wrong and takes_right and refuses_old):
            yield _ignores("If-Match")
    finally:
        objects.delete([key])


def _put(objects: Objects, key: str, data: bytes, expected: str | None) -> str | None:
    """``put_if``; a refusal counts as success if the data is there: the request came twice."""
    etag = objects.put_if(key, data, expected)
    if etag is None and (body := objects.get(key)) is not None and body.data == data:
        return body.etag
    return etag


def _ignores(header: str) -> Finding:
    return Finding.error(
        f"The server does not honour {header} on put: two runs could both change the register.",
        "use a server that does (Amazon S3, and current versions of most others).",
    )


def _open_uploads(options: S3Options) -> Iterator[Finding]:
    """Check that an open upload is listed."""
    uploads = Uploads(options)
    key = options.state.key(PROBES, secrets.token_hex(12))
    upload = uploads.create(key, {})
    try:
        uploads.put_part(key, upload, 1, crc64nvme(b"probe"), b"probe")
        listed = any(pending.key == key for pending in uploads.list(options.state.key(PROBES, "")))
    finally:
        uploads.abort(key, upload)
    if not listed:
        yield Finding.warning(
            "The server does not list unfinished uploads below a folder, so uploads that a crash "
            "leaves are not swept.",
            "set a lifecycle rule that aborts unfinished uploads after some weeks.",
        )


def findings_of_rules(rules: list[dict[str, Any]], options: S3Options) -> Iterator[Finding]:
    """Findings of lifecycle rules of the bucket that touch the folder or the register."""
    for rule in rules:
        if rule.get("Status") != "Enabled":
            continue
        name = rule.get("ID", "without a name")
        days = rule.get("AbortIncompleteMultipartUpload", {}).get("DaysAfterInitiation")
        if days is not None and _touches(rule, options.path) and options.protocol != "idempotent":
            yield Finding.warning(
                f"The lifecycle rule {name} aborts unfinished uploads after {days} day(s): if the job "
                "is down for longer, a decided epoch loses its rows.",
                "exclude this folder from the rule, or let the rule wait for longer than the job may "
                "be down.",
            )
        if rule.get("Expiration") and _touches(rule, options.state):
            yield Finding.warning(
                f"The lifecycle rule {name} deletes objects in {options.state}. If it deletes the "
                "register, the record of what is committed is lost.",
                "exclude that folder from the rule, or set the option statepath to another one.",
            )


def _touches(rule: dict[str, Any], place: Location) -> bool:
    """Whether the rule's prefix and the folder overlap."""
    scope = rule.get("Filter", {})
    prefix = scope.get("Prefix") or scope.get("And", {}).get("Prefix") or rule.get("Prefix") or ""
    return place.folder.startswith(prefix) or str(prefix).startswith(place.folder)


def _bucket(options: S3Options) -> Iterator[Finding]:
    if _ask(options, "get_bucket_versioning").get("Status") == "Enabled":
        yield Finding.note(
            "The bucket keeps versions: each change of the register adds one.",
            f"a lifecycle rule on {options.state} that expires noncurrent versions limits them.",
        )
    lock = _ask(options, "get_object_lock_configuration").get("ObjectLockConfiguration", {})
    if lock.get("Rule"):
        yield Finding.warning(
            "The bucket locks new objects by default: segments, probes and manifests that the job "
            "deletes stay as versions, and take space, until their lock ends.",
            "use a bucket without a default retention.",
        )


def _state(options: S3Options) -> Iterator[Finding]:
    """Check that readers that list the path do not take the sink's own objects for data."""
    path, state = options.path.folder, options.state.folder
    if not state.startswith(path) or any(map(is_hidden, state.removeprefix(path).split("/"))):
        return
    sentence = (
        f"The option statepath names {options.state}, a folder of the path that readers do not skip: "
        "a reader that lists all folders takes the register for rows."
    )
    # A job that has begun there goes on, or it would lose its register.
    if any(True for _ in S3Register(options).names()):
        yield Finding.warning(
            sentence,
            "stop its jobs, move each register to a folder whose name begins with _ (`abs register "
            "move`), and set statepath to that; or exclude this folder in the readers.",
        )
        return
    yield Finding.error(
        sentence,
        "omit statepath; or name a folder outside of the path, or one that begins with _.",
    )


def _others(options: S3Options, job: str) -> Iterator[Finding]:
    register = S3Register(options)
    if register.load(job) is not None:
        return
    others = register.others_on(str(options.path), job)
    if others:
        yield Finding.warning(
            f"This job is new, but another job has written to {options.path}: {', '.join(others[:5])}. "
            "If that was this job, and its checkpoint was deleted, everything would be written twice.",
            "if the checkpoint was deleted, restore it; if the job had another name, set that name "
            f"again (job={others[0]}); if the input is new, do nothing.",
        )


def _ask(options: S3Options, call: str) -> dict[str, Any]:
    """A bucket's setting; empty if there is none, or it may not be read."""
    with translate_errors(f"reading the settings of bucket {options.path.bucket}"):
        try:
            answer: dict[str, Any] = getattr(client(options.server), call)(
                Bucket=options.path.bucket
            )
        except ClientError as error:
            if status_of(error) in (403, 404, 405, 501) and code_of(error) != "NoSuchBucket":
                return {}
            raise
    return answer
