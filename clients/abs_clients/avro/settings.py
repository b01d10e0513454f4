"""The options ``registry.*``, ``value.format`` and ``key.format``, alike for sinks and sources."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass, field, fields
from typing import Annotated, Any, Self
from urllib.parse import urlsplit

from abs_clients.avro.schema import parsed
from abs_clients.extras import missing
from abs_clients.options import Option, Problems, described, fields_from, text
from abs_core.errors import OptionError, SchemaError

BYTES, AVRO = "bytes", "avro"
COLUMNS = ("value", "key")
_ELSEWHERE = ("json", "json_schema", "jsonschema", "protobuf", "proto")


def format_name(value: str) -> str:
    """``bytes`` or ``avro``; other formats of the registry are refused by name."""
    name = value.strip().lower()
    if name in _ELSEWHERE:
        raise OptionError(
            f"The format {value.strip()} is not supported: of a registry's formats there is avro only.",
            remedy="encode the column in Spark (to_json, to_protobuf), and leave the format out.",
        )
    if name not in (BYTES, AVRO):
        raise ValueError(f"{BYTES} or {AVRO}")
    return name


def avro_schema(value: str) -> str:
    """An Avro schema as JSON."""
    try:
        parsed(text(value))
    except SchemaError as error:
        raise OptionError(error.what, remedy=error.remedy) from error
    return value


def _url(value: str) -> str:
    for address in text(value).split(","):
        parts = urlsplit(address.strip())
        if parts.scheme not in ("http", "https", "mock"):
            raise OptionError(
                "The option registry.url is not the address of a registry.",
                remedy="begin it with https:// or http://; several are separated by commas.",
            )
        if "@" in parts.netloc:
            raise OptionError(
                "The option registry.url has a user in it, which would be shown in messages.",
                remedy="set registry.basic.auth.user.info=user:password.",
            )
    return value.strip()


_CREDENTIALS = ("STATIC_TOKEN", "OAUTHBEARER", "OAUTHBEARER_AZURE_IMDS")


def _credentials_source(value: str) -> str:
    if value.strip().upper() not in _CREDENTIALS:
        raise ValueError(f"one of {', '.join(_CREDENTIALS)}")
    return value.strip().upper()


def _secret() -> Any:
    return field(default=None, repr=False)


@described
@dataclass(frozen=True, slots=True)
class ColumnFormats:
    """The formats of key and value, and the schemas that are given for them."""

    value_format: Annotated[
        str,
        Option("value.format", format_name, BYTES),
        "`bytes`, or `avro`: records with a schema, see [formats](formats.md)",
    ] = BYTES
    key_format: Annotated[str, Option("key.format", format_name, BYTES), "the same for the key"] = (
        BYTES
    )
    value_schema: Annotated[
        str | None,
        Option("value.schema", avro_schema),
        "the Avro schema to write with, or that the column is to have, as JSON; default: "
        "the newest one of the subject",
    ] = None
    key_schema: Annotated[str | None, Option("key.schema", avro_schema), "the same for the key"] = (
        None
    )

    @property
    def columns(self) -> tuple[str, ...]:
        """Which of key and value are Avro."""
        return tuple(name for name in COLUMNS if getattr(self, f"{name}_format") == AVRO)

    def schema(self, column: str) -> str | None:
        """The given schema of a column."""
        schema: str | None = getattr(self, f"{column}_schema")
        return schema


@described
@dataclass(frozen=True, slots=True)
class RegistrySettings:
    """Where the registry is, and how to log in; by the names of confluent-kafka. Shows no secret."""

    url: Annotated[
        str | None,
        Option("registry.url", _url),
        "of the schema registry, `https://host:port`; several are separated by commas",
    ] = None
    basic_auth_user_info: Annotated[
        str | None, Option("registry.basic.auth.user.info", text, secret=True), "`user:password`"
    ] = _secret()
    ssl_ca_location: Annotated[
        str | None,
        Option("registry.ssl.ca.location", text),
        "file or folder of the authorities that are trusted",
    ] = None
    ssl_certificate_location: Annotated[
        str | None, Option("registry.ssl.certificate.location", text), "the client's certificate"
    ] = None
    ssl_key_location: Annotated[
        str | None, Option("registry.ssl.key.location", text), "its key"
    ] = None
    ssl_key_password: Annotated[
        str | None, Option("registry.ssl.key.password", text, secret=True), "the key's password"
    ] = _secret()
    bearer_auth_credentials_source: Annotated[
        str | None,
        Option("registry.bearer.auth.credentials.source", _credentials_source),
        "`STATIC_TOKEN`, `OAUTHBEARER` or `OAUTHBEARER_AZURE_IMDS`",
    ] = None
    bearer_auth_token: Annotated[
        str | None, Option("registry.bearer.auth.token", text, secret=True), "of `STATIC_TOKEN`"
    ] = _secret()
    bearer_auth_client_id: Annotated[
        str | None, Option("registry.bearer.auth.client.id", text), "of `OAUTHBEARER`"
    ] = None
    bearer_auth_client_secret: Annotated[
        str | None,
        Option("registry.bearer.auth.client.secret", text, secret=True),
        "of `OAUTHBEARER`",
    ] = _secret()
    bearer_auth_scope: Annotated[
        str | None, Option("registry.bearer.auth.scope", text), "of `OAUTHBEARER`"
    ] = None
    bearer_auth_issuer_endpoint_url: Annotated[
        str | None,
        Option("registry.bearer.auth.issuer.endpoint.url", text),
        "of `OAUTHBEARER`: where tokens come from",
    ] = None
    bearer_auth_logical_cluster: Annotated[
        str | None, Option("registry.bearer.auth.logical.cluster", text), "of Confluent's cloud"
    ] = None
    bearer_auth_identity_pool_id: Annotated[
        str | None, Option("registry.bearer.auth.identity.pool.id", text), "of Confluent's cloud"
    ] = None
    proxy: Annotated[
        str | None, Option("registry.proxy", text, secret=True), "an HTTP proxy to the registry"
    ] = _secret()

    @classmethod
    def of(cls, values: Mapping[str, Any]) -> Self:
        """From what ``read_options`` returned."""
        return cls(**fields_from(cls, values))

    @property
    def place(self) -> dict[str, str]:
        """Where it is, by the option's name: no secret."""
        return {} if self.url is None else {"registry.url": self.url}

    @property
    def given(self) -> dict[str, str]:
        """What is set, by the names of confluent-kafka."""
        values = {f.name.replace("_", "."): getattr(self, f.name) for f in fields(self)}
        return {name: value for name, value in values.items() if value is not None}


def check_formats(values: Mapping[str, Any], problems: Problems) -> None:
    """Note a format without a registry, and options that have no meaning without a format."""
    formatted = [name for name in COLUMNS if values[f"{name}.format"] == AVRO]
    if formatted:
        problems.attempt(lambda: _check_library(f"{formatted[0]}.format=avro"))
    if formatted and values["registry.url"] is None:
        problems.add(
            f"{formatted[0]}.format=avro needs the option registry.url: the registry of the schemas.",
            "give its address, https://registry.example:8081 for instance.",
        )
    for name, value in values.items():
        of, _, rest = name.partition(".")
        useless = (of == "registry" and not formatted) or (
            of in COLUMNS and of not in formatted and rest != "format"
        )
        if useless and value:
            wanted = (
                f"{of}.format=avro" if of in COLUMNS else "value.format=avro or key.format=avro"
            )
            problems.add(
                f"The option {name} has no meaning without {wanted}.", "leave it out, or set that."
            )


def _check_library(needed_by: str) -> None:
    """Raise OptionError if the extra is not installed."""
    try:
        import confluent_kafka.schema_registry  # noqa: F401
        import fastavro.schema  # noqa: F401
    except ImportError as error:
        lacking = missing(error, needed_by)
        if lacking is None:
            raise
        raise OptionError(lacking.what, remedy=lacking.remedy) from error
