"""What of an Iceberg table a writer of plain files cannot keep, and what is to be done instead."""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyiceberg.avro.codecs import CODEC_MAPPING_ICEBERG_TO_AVRO, KNOWN_CODECS
from pyiceberg.table import Table, TableProperties
from pyiceberg.utils.properties import property_as_bool, property_as_int

from abs_clients.iceberg.partitions import unwritable
from abs_core.errors import ConfigError, OptionError, RefusedError, SchemaError

Problem = tuple[str, str]

VERSION = 2
"""The newest format version that pyiceberg writes."""

_SIGNER, _SIGNING = "s3.signer", "s3.remote-signing-enabled"
"""Keys of a REST catalog's answer that ask for requests which the catalog signs."""

_ENCRYPTION = "encryption.key-id"
"""The property of a table whose files are encrypted by a key of its own."""

_TAKEN = (
    *("_deleted", "_file", "_last_updated_sequence_number", "_partition", "_pos", "_row_id"),
    "_spec_id",
)
"""Columns that each table has for Iceberg (MetadataColumns in Java)."""

_NUMBERS = (
    TableProperties.MANIFEST_TARGET_SIZE_BYTES,
    TableProperties.MANIFEST_MIN_MERGE_COUNT,
    TableProperties.METADATA_PREVIOUS_VERSIONS_MAX,
    TableProperties.COMMIT_NUM_RETRIES,
    TableProperties.COMMIT_MIN_RETRY_WAIT_MS,
    TableProperties.COMMIT_MAX_RETRY_WAIT_MS,
    TableProperties.COMMIT_TOTAL_RETRY_TIME_MS,
)
_SWITCHES = (
    TableProperties.MANIFEST_MERGE_ENABLED,
    TableProperties.METADATA_DELETE_AFTER_COMMIT_ENABLED,
    TableProperties.OBJECT_STORE_ENABLED,
    TableProperties.WRITE_OBJECT_STORE_PARTITIONED_PATHS,
)


def problems_of(table: Table) -> Iterator[Problem]:
    """What cannot be kept, and what to do, each as a sentence."""
    version = table.metadata.format_version
    if version > VERSION:
        yield (
            f"The table has format version {version}.",
            "write to a table of version 2: newer ones are not written by pyiceberg.",
        )
    if key := table.properties.get(_ENCRYPTION):
        yield (
            f"The table asks for encrypted files ({_ENCRYPTION} = {key}), which are not written here.",
            "write to a table without it; the bucket may encrypt what it stores.",
        )
    if _SIGNER in table.config or table.config.get(_SIGNING, "").lower() == "true":
        yield (
            f"The catalog wants to sign each request to the store ({_SIGNING}): it is not asked to.",
            "switch remote signing off in the catalog; it may vend credentials instead.",
        )
    for field in unwritable(table.spec(), table.schema()):
        yield (
            f"The table is partitioned by {field}, which pyiceberg does not compute.",
            "add a column with that value in Spark, and partition by it.",
        )
    yield from _of_properties(table)


def _of_properties(table: Table) -> Iterator[Problem]:
    """Those that the library reads at a commit, when it is too late to refuse them."""
    codec = table.properties.get(TableProperties.WRITE_AVRO_COMPRESSION, "null")
    named = f"The table's property {TableProperties.WRITE_AVRO_COMPRESSION} is {codec}"
    if CODEC_MAPPING_ICEBERG_TO_AVRO.get(codec, codec) not in KNOWN_CODECS:
        yield f"{named}.", f"set it to one of {', '.join(KNOWN_CODECS)}."
    elif not _is_installed(codec):
        yield (
            f"{named}, for which a package is missing here.",
            f"pip install 'pyiceberg[{codec}]' where the driver runs, or set the property to gzip.",
        )
    try:
        for name in _NUMBERS:
            property_as_int(table.properties, name)
        for name in _SWITCHES:
            property_as_bool(table.properties, name, default=False)
        check_location(table.location_provider().new_metadata_location("x"))
    except (ValueError, ConfigError) as error:
        yield f"A property of the table cannot be used: {error}.", "correct it, or remove it."


def _is_installed(codec: str) -> bool:
    kinds: Mapping[Any, Any] = KNOWN_CODECS
    kind = kinds[CODEC_MAPPING_ICEBERG_TO_AVRO.get(codec, codec)]
    with suppress(ImportError):
        if kind is not None:
            kind.compress(b"")
        return True
    return False


def notes_of(table: Table) -> Iterator[Problem]:
    """What of a table is not done as it asks, and does no harm."""
    if path := table.properties.get(TableProperties.WRITE_DATA_PATH):
        problem = f"The table's property {TableProperties.WRITE_DATA_PATH} ({path}) is not used"
        yield (
            f"{problem}: data files are in the folder data of its location.",
            "remove it, so that all writers use one folder.",
        )


def check_location(location: str) -> None:
    """Refuse a place that pyiceberg cuts off as a URL's query or fragment.

    Raises:
        OptionError: it would write to another folder.
    """
    if sign := next((sign for sign in "#?" if sign in location), None):
        raise OptionError(
            f"The location {location} has {sign!r}, at which pyiceberg cuts it off.",
            remedy="give the warehouse, or the table, a location without it.",
        )


def check_names(columns: pa.Schema) -> None:
    """Refuse new columns that make a table unreadable for Spark.

    Raises:
        SchemaError: a name is one of Iceberg's own.
    """
    if taken := [name for name in columns.names if name in _TAKEN]:
        raise SchemaError(
            f"Iceberg has a meaning for the names {', '.join(taken)}: Spark reads no table with such a "
            "column.",
            remedy="rename the columns in Spark.",
        )


def check_commit(table: Table) -> None:
    """Refuse to commit to a table that was changed so since its files were decided.

    Raises:
        RefusedError: the library would fail half-way, in an error that names nothing.
    """
    version = table.metadata.format_version
    if version > VERSION:
        raise RefusedError(
            f"The table has format version {version} now, which pyiceberg does not write.",
            remedy="if nobody has written to it since it had version 2, give the catalog its metadata "
            "file of before again: drop it without purge, then register_table",
        )
    for problem, remedy in _of_properties(table):
        raise RefusedError(problem, remedy=remedy.rstrip("."))
