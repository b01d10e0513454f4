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


def vended(properties: Mapping[str, str]) -> Vended:
    """The credentials in a table's properties. Never to be shown, pickled or stored (I9)."""
    expires = properties.get(_EXPIRES)
    return Vended(
        properties[KEY],
        properties.get(S3_SECRET_ACCESS_KEY, ""),
        properties.get(S3_SESSION_TOKEN),
        int(expires) / 1000 if expires else None,
    )


def server_of(properties: Mapping[str, str], server: Server, vendor: Vendor) -> Server:
    """The server of a table's files.

    Args:
        properties: the table's properties.
        server: by the options; what they leave out, the catalog tells.
    """
    endpoint = server.endpoint or properties.get(S3_ENDPOINT)
    paths = server.pathstyle or properties.get(_PATHS, str(endpoint is not None)).lower() == "true"
    region = server.region or properties.get(S3_REGION) or properties.get(AWS_REGION)
    return Server(endpoint, region, paths, server.timeout, vendor)


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
