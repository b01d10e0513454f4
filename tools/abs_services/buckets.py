"""The bucket of an S3 service."""

from __future__ import annotations

import secrets
from typing import TYPE_CHECKING, Any

from abs_core.errors import ConfigError

if TYPE_CHECKING:
    from abs_services.contracts import S3Service

_PROBE = ".abs-ready"


def new_keys() -> tuple[str, str]:
    """A random access key and secret key in the usual format."""
    return secrets.token_hex(10).upper(), secrets.token_urlsafe(30)


def s3_client(service: S3Service) -> Any:
    """A boto3 client for this service: path-style, signature 4, no retries, short timeouts."""
    try:
        import boto3
        from botocore.config import Config
    except ModuleNotFoundError as error:
        raise ConfigError(
            "the Python package boto3 is not installed; S3 services need it",
            remedy="pip install 'abs-sinks[s3]'.",
        ) from error
    return boto3.client(
        "s3",
        endpoint_url=service.endpoint,
        region_name=service.region,
        aws_access_key_id=service.access_key,
        aws_secret_access_key=service.secret_key,
        config=Config(
            s3={"addressing_style": "path"},
            signature_version="s3v4",
            connect_timeout=2,
            read_timeout=10,
            retries={"total_max_attempts": 1},
        ),
    )


def takes_objects(service: S3Service) -> bool:
    """Whether an object can be put now; creates the bucket if it is missing.

    A gateway answers long before its volumes take data, so this puts one and deletes it.
    """
    client = s3_client(service)
    from botocore.exceptions import BotoCoreError, ClientError

    try:
        present = {bucket["Name"] for bucket in client.list_buckets().get("Buckets", [])}
        if service.bucket not in present:
            client.create_bucket(Bucket=service.bucket)
        client.put_object(Bucket=service.bucket, Key=_PROBE, Body=b"ready")
        client.delete_object(Bucket=service.bucket, Key=_PROBE)
    except (BotoCoreError, ClientError):
        return False
    finally:
        client.close()
    return True
