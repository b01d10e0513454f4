"""The certificate in a checkpoint: read as it was written, and told from one that cannot be seen."""

from __future__ import annotations

import socket
from dataclasses import replace
from pathlib import Path

import pytest

from abs_core.certificate import UNREADABLE, Certificate, Origin
from abs_core.errors import CorruptionError, RefusedError
from abs_services import S3Service
from abs_services.buckets import s3_client
from abs_spark.checkpoint.certificates import (
    CheckpointCertificates,
    certificates_of,
    forget,
    location,
)
from abs_spark.checkpoint.ownfile import OwnFile

CERTIFICATE = Certificate("job", "a" * 16, "abs.register", 3, None, 0)
HERE = f"file://{socket.gethostname().lower()}"


@pytest.fixture
def checkpoint(tmp_path: Path) -> Path:
    folder = tmp_path / "a folder" / "ck"
    folder.mkdir(parents=True)
    (folder / "metadata").write_text('{"id":"0123-4567"}')
    return folder


def test_a_certificate_is_kept_and_replaced_however_the_place_is_spelled(checkpoint: Path) -> None:
    one, other = (CheckpointCertificates(f"{how}{checkpoint}") for how in ("", "file://"))
    assert one.read() == Origin()
    for certificate in (CERTIFICATE, replace(CERTIFICATE, generation=4, frontier=7, deciding=8)):
        one.write(certificate)
        assert other.read() == Origin(certificate)
    assert [path.name for path in (checkpoint / "abs").iterdir()] == ["certificate.json"]


@pytest.fixture
def in_s3(store: S3Service, prefix: str, monkeypatch: pytest.MonkeyPatch) -> str:
    """A checkpoint in S3, as Spark leaves it: it keeps an S3 checkpoint by Hadoop's s3a."""
    monkeypatch.setenv("AWS_ENDPOINT_URL", store.endpoint)
    monkeypatch.setenv("AWS_REGION", store.region)
    spark_wrote = {"Key": f"{prefix}/ck/metadata", "Body": b'{"id":"0123-4567"}'}
    s3_client(store).put_object(Bucket=store.bucket, **spark_wrote)
    return f"s3a://{store.bucket}/{prefix}/ck"


@pytest.mark.services
def test_a_certificate_in_s3_is_kept_replaced_and_forgotten(in_s3: str) -> None:
    one, other = (CheckpointCertificates(place) for place in (in_s3, in_s3.replace("s3a", "s3")))
    assert one.read() == Origin()
    for certificate in (CERTIFICATE, replace(CERTIFICATE, generation=4, frontier=7, deciding=8)):
        one.write(certificate)
        assert other.read() == Origin(certificate)
    assert forget(in_s3, CERTIFICATE.job)
    assert one.read() == other.read() == Origin()


@pytest.mark.services
def test_a_place_in_s3_without_sparks_own_files_is_no_checkpoint_to_be_read(in_s3: str) -> None:
    certificates = CheckpointCertificates(f"{in_s3}-of-nobody")
    assert certificates.read() == UNREADABLE
    with pytest.raises(RefusedError):
        certificates.write(CERTIFICATE)


def test_a_place_without_sparks_own_files_is_no_checkpoint_to_be_read(tmp_path: Path) -> None:
    """Where Spark's default file system is another one, its path is found empty on this machine."""
    for place in (None, str(tmp_path), str(tmp_path / "none"), "nosuch://here/ck"):
        certificates = CheckpointCertificates(place)
        assert certificates.read() == UNREADABLE
        with pytest.raises(RefusedError):
            certificates.write(CERTIFICATE)
    assert list(tmp_path.iterdir()) == []


def test_a_folder_that_cannot_be_written_is_an_error(checkpoint: Path) -> None:
    (checkpoint / "abs").write_text("a file stands in the way")
    with pytest.raises(RefusedError, match="cannot be written into the checkpoint"):
        CheckpointCertificates(str(checkpoint)).write(CERTIFICATE)


def test_a_damaged_certificate_is_not_taken_for_none(checkpoint: Path) -> None:
    certificates = CheckpointCertificates(str(checkpoint))
    certificates.write(CERTIFICATE)
    (checkpoint / "abs" / "certificate.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"certificate\.json cannot be read"):
        certificates.read()


def test_a_certificate_is_forgotten_on_purpose(checkpoint: Path) -> None:
    certificates = CheckpointCertificates(str(checkpoint))
    assert not forget(str(checkpoint), CERTIFICATE.job)
    certificates.write(CERTIFICATE)
    assert forget(f"file:{checkpoint}", CERTIFICATE.job)
    assert certificates.read() == Origin()


def test_another_job_of_the_same_query_has_a_certificate_of_its_own(checkpoint: Path) -> None:
    place, first = str(checkpoint), CERTIFICATE.job
    certificates_of(place, first, ()).write(CERTIFICATE)
    assert certificates_of(place, "other", ()).read() == Origin(CERTIFICATE), "it may be renamed"
    other = replace(CERTIFICATE, job="other")
    certificates_of(place, "other", {first}).write(other)
    assert certificates_of(place, "other", ()).read() == Origin(other)
    assert certificates_of(place, first, {"other"}).read() == Origin(CERTIFICATE)
    assert forget(place, "other")
    assert certificates_of(place, first, ()).read() == Origin(CERTIFICATE)


def test_forgetting_a_job_leaves_the_certificate_of_another_one(checkpoint: Path) -> None:
    place = str(checkpoint)
    certificates_of(place, CERTIFICATE.job, ()).write(CERTIFICATE)
    assert not forget(place, "other")
    assert not forget(place, "other", "b" * 16)
    assert certificates_of(place, CERTIFICATE.job, ()).read() == Origin(CERTIFICATE)
    assert forget(place, "renamed", CERTIFICATE.register), "a rename keeps the register"
    assert certificates_of(place, CERTIFICATE.job, ()).read() == Origin()


def test_a_certificate_that_cannot_be_deleted_is_not_called_forgotten(
    checkpoint: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def read_only(*_: object) -> None:
        raise OSError("read-only file system")

    CheckpointCertificates(str(checkpoint)).write(CERTIFICATE)
    monkeypatch.setattr(OwnFile, "delete", read_only)
    with pytest.raises(RefusedError, match="cannot be deleted: read-only file system"):
        forget(str(checkpoint), CERTIFICATE.job)


def test_a_damaged_certificate_is_not_forgotten(checkpoint: Path) -> None:
    certificates = CheckpointCertificates(str(checkpoint))
    certificates.write(CERTIFICATE)
    (checkpoint / "abs" / "certificate.json").write_text("{")
    with pytest.raises(CorruptionError, match=r"certificate\.json cannot be read"):
        forget(str(checkpoint), CERTIFICATE.job)


@pytest.mark.parametrize(
    ("spelled", "place"),
    [
        (None, None),
        ("", None),
        ("/no/where/ck", f"{HERE}/no/where/ck"),
        ("/no/where/ck/", f"{HERE}/no/where/ck"),
        ("/no//where/./x/../ck", f"{HERE}/no/where/ck"),
        ("file:/no/where/ck", f"{HERE}/no/where/ck"),
        ("file:///no/where/ck", f"{HERE}/no/where/ck"),
        ("FILE://localhost/no/where/ck", f"{HERE}/no/where/ck"),
        ("s3://bucket/a/ck", "s3://bucket/a/ck"),
        ("s3a://bucket/a//ck/", "s3://bucket/a/ck"),
        ("s3a://key:secret@bucket/ck", "s3://bucket/ck"),
        ("s3n://key:se/cret@bucket/ck", "s3://bucket/ck"),
        ("s3a://key:secret@bucket/some@where", "s3://bucket/some@where"),
        ("s3://bucket/ck?access_key=a&secret_key=b", "s3://bucket/ck"),
        ("hdfs://user@NameNode:8020/ck/", "hdfs://namenode:8020/ck"),
        ("hdfs:///ck", "hdfs:///ck"),
        ("hdfs:/ck", "hdfs:///ck"),
        # What stands before this @ is the container, and no user.
        ("abfss://files@account.net/ck", "abfss://files@account.net/ck"),
        ("gs://bucket/ck", "gs://bucket/ck"),
        ("dbfs:/ck", "dbfs:///ck"),
    ],
)
def test_a_place_has_one_name_without_user_or_password(
    spelled: str | None, place: str | None
) -> None:
    assert location(spelled) == place


def test_a_relative_place_and_a_link_are_the_place_that_they_lead_to(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    (tmp_path / "real").mkdir()
    (tmp_path / "link").symlink_to(tmp_path / "real")
    monkeypatch.chdir(tmp_path)
    for spelled in ("real/ck", "link/ck", "./link/ck/", f"{tmp_path}/link/ck"):
        assert location(spelled) == f"{HERE}{(tmp_path / 'real' / 'ck').resolve()}"
