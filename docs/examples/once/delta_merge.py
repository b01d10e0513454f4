"""Adds each batch to balances in a Delta table; the version is an application transaction there."""

import pyarrow as pa
from deltalake import CommitProperties, DeltaTable, Transaction

SCHEMA = pa.schema([("account", pa.int64()), ("amount", pa.int64())])


def guarded(path):
    """``write`` and ``applied`` for the table at a path."""
    DeltaTable.create(path, SCHEMA, mode="ignore")

    def write(df, token):
        table = DeltaTable(path)
        version = table.transaction_version(token.application)
        if version is not None and version >= token.version:
            return
        # The commit is of exactly the snapshot that was looked at: with any commit in between it fails,
        # and the library does not try again.
        properties = CommitProperties(
            app_transactions=[Transaction(token.application, token.version)], max_commit_retries=0
        )
        batch = df.groupBy("account").agg({"amount": "sum"}).toDF("account", "amount")
        table.merge(
            batch.toArrow(),
            "target.account = source.account",
            source_alias="source",
            target_alias="target",
            commit_properties=properties,
        ).when_matched_update(
            {"amount": "target.amount + source.amount"}
        ).when_not_matched_insert_all().execute()

    def applied(application):
        return DeltaTable(path).transaction_version(application)

    return write, applied
