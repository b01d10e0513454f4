"""Parses the user's PostgreSQL URL, topic URL, S3 URL or paths to a relation."""

from __future__ import annotations

from collections.abc import Sequence
from pathlib import Path
from typing import Any
from urllib.parse import parse_qsl

from abs_audit.contracts import Relation
from abs_audit.files import Files
from abs_audit.others import TargetOfOthers
from abs_audit.postgres import PostgresTable
from abs_clients.postgres.address import Address
from abs_clients.postgres.name import TableName
from abs_core.errors import OptionError
from abs_core.formats import format_of
from abs_sinks.shown import parts_of, scheme_of

_DATABASES = frozenset({"postgresql", "postgres", "jdbc"})
_NAME_TABLE = (
    "name it: --table for the target, --expected-table for what is expected; in Python, table=..."
)


def relation(
    where: Sequence[str],
    *,
    table: str | None = None,
    null: str | None = None,
    stateschema: str = "abs",
) -> Relation:
    """The relation that ``where`` names.

    Args:
        where: a libpq URI or keyword string; a topic (``kafka://host:port,host:port/topic``, with
            ``?value=raw`` if its values are not JSON objects, ``winners=true`` for a topic of
            ``protocol=idempotent``, ``config=FILE`` for client settings such as passwords); a
            prefix (``s3://bucket/prefix``, with ``?endpoint=`` and ``&region=`` for other servers
            than Amazon's); a URL of another package's format (``abs_core.formats``); or paths.
        table: for PostgreSQL; quoted as in SQL.
        null: the text for NULL in CSV files.
        stateschema: PostgreSQL schema of registers and staging.

    Raises:
        OptionError: it is none of these; the message shows no URL (I9).
    """
    if not where:
        raise OptionError("No file and no database is named.", remedy="name one of them.")
    first, alone = where[0], len(where) == 1
    schemes = {scheme_of(text) for text in where}
    if "kafka" in schemes:
        _check_alone("A topic", "topic", alone=alone, table=table)
        return _topic(first)
    if "s3" in schemes:
        _check_alone("A bucket", "prefix", alone=alone, table=table)
        return _objects(first, null)
    unknown = sorted(schemes - _DATABASES - {""})
    if other := next(filter(None, map(format_of, unknown)), None):
        _check_alone("A target", "target", alone=alone)
        return TargetOfOthers(other, first, table)
    if not schemes & _DATABASES and not any("dbname=" in text.lower() for text in where):
        if table is not None:
            raise OptionError(
                f"A table is named ({table}), and no database.",
                remedy="give a URL such as postgresql://host:5432/database, or leave it out.",
            )
        return Files(tuple(where), null)
    _check_alone("A database", "database", alone=alone)
    if table is None:
        raise OptionError("A database is named, and no table.", remedy=_NAME_TABLE)
    return PostgresTable(Address.parse(first), TableName.parse(table), stateschema)


def _check_alone(what: str, one: str, *, alone: bool, table: str | None = None) -> None:
    """Refuse a system that is named together with others, or with a table that it does not have."""
    if not alone or table is not None:
        raise OptionError(
            f"{what} is named together with something else.",
            remedy=f"name one {one} alone; a table (--table, --expected-table) is a database's.",
        )


def _topic(url: str) -> Relation:
    # Its client comes with the extra `kafka`; the other sides of an audit do without it.
    from abs_audit.kafka import KafkaTopic

    parts = parts_of(url)
    servers, topic = parts.netloc, parts.path.strip("/")
    given = dict(parse_qsl(parts.query))
    value, config = given.pop("value", "json"), given.pop("config", None)
    winners = given.pop("winners", None)
    if "@" in servers:
        raise OptionError("A topic's URL cannot contain credentials.", remedy="remove them.")
    if given or value not in ("json", "raw") or winners not in (None, "true", "false"):
        raise OptionError(
            "A topic's URL has ?value=json or raw, winners=true or false, and config=FILE"
            f"{', and no ' + ', '.join(sorted(given)) if given else ''}.",
            remedy="set value=raw if the values are not JSON objects, winners if protocol=idempotent "
            "wrote the topic, and config to a file with the client's settings.",
        )
    if not servers or not topic or "/" in topic:
        raise OptionError(
            "This is not the URL of a topic.", remedy="write kafka://host:port/topic."
        )
    counted = None if winners is None else winners == "true"
    return KafkaTopic(servers, topic, value, winners=counted, settings=_client(servers, config))


def _client(servers: str, config: str | None) -> dict[str, Any]:
    """Settings of the reading client, from a librdkafka settings file (as the sink's ``kafka.*``)."""
    from abs_clients.kafka.auth_check import check_access
    from abs_clients.kafka.configs import access_settings
    from abs_clients.kafka.settings import from_file

    if config is None:
        return {}
    settings = from_file(Path(config), servers)
    if settings.is_guarded:
        check_access(settings)
    return access_settings(settings)


def _objects(url: str, null: str | None) -> Relation:
    from abs_audit.s3 import S3Files  # its client comes with the extra `s3`

    parts = parts_of(url)
    given = dict(parse_qsl(parts.query))
    endpoint, region = given.pop("endpoint", None), given.pop("region", None)
    if given or not parts.netloc or "@" in f"{parts.netloc}{endpoint or ''}":
        raise OptionError(
            "This is not a prefix of a bucket.",
            remedy="write s3://bucket/prefix?endpoint=http://host:port&region=name; credentials "
            "come from the environment, as boto3 finds them.",
        )
    return S3Files(parts.netloc, parts.path.strip("/"), endpoint, region, null)
