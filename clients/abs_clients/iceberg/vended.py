"""Credentials for a table's files that a REST catalog vends with the table."""

from __future__ import annotations

from collections.abc import Mapping

from pyiceberg.io import (
    AWS_REGION,
    S3_ACCESS_KEY_ID,
    S3_ENDPOINT,
    S3_REGION,
    S3_SECRET_ACCESS_KEY,
    S3_SESSION_TOKEN,
)

from abs_clients.s3.client import credentials
from abs_clients.s3.server import Server, Vended, Vendor
from abs_core.errors import RefusedError

KEY = S3_ACCESS_KEY_ID

_EXPIRES = "s3.session-token-expires-at-ms"
_PATHS = "s3.path-style-access"


def vended(told: Mapping[str, str]) -> Vended:
    """The credentials in a table's properties. Never to be shown, pickled or stored (I9)."""
    expires = told.get(_EXPIRES)
    return Vended(
        told[KEY],
        told.get(S3_SECRET_ACCESS_KEY, ""),
        told.get(S3_SESSION_TOKEN),
        int(expires) / 1000 if expires else None,
    )


def server_of(told: Mapping[str, str], given: Server, vendor: Vendor) -> Server:
    """The server of a table's files.

    Args:
        told: the table's properties.
        given: by the options; what they leave out, the catalog tells.
    """
    endpoint = given.endpoint or told.get(S3_ENDPOINT)
    paths = given.pathstyle or told.get(_PATHS, str(endpoint is not None)).lower() == "true"
    region = given.region or told.get(S3_REGION) or told.get(AWS_REGION)
    return Server(endpoint, region, paths, given.timeout, vendor)


def store_properties(server: Server) -> tuple[dict[str, str], RefusedError | None]:
    """What a catalog is told of the store that the options name; nothing, where they name none.

    And the error, where boto3 finds no credentials for it: no defect if the catalog vends some.
    """
    if server.endpoint is None:
        return {}, None
    key, secret, token, region = None, None, None, server.region
    missing: RefusedError | None = None
    try:
        key, secret, token, region = credentials(server)
    except RefusedError as error:
        missing = error
    properties = {
        S3_ENDPOINT: server.endpoint,
        S3_ACCESS_KEY_ID: key,
        S3_SECRET_ACCESS_KEY: secret,
        S3_SESSION_TOKEN: token,
        S3_REGION: region,
    }
    return {name: text for name, text in properties.items() if text}, missing
