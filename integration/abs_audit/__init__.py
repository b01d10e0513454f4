"""Audit: does a target hold exactly the expected records? See :func:`audit`."""

from abs_clients.extras import importing

with importing("The package abs_audit"):
    from abs_audit.auditor import AuditSettings, audit
    from abs_audit.contracts import Relation
    from abs_audit.epochs import EpochFound, by_epoch
    from abs_audit.files import Files
    from abs_audit.following import Round, follow
    from abs_audit.locate import relation, side_of
    from abs_audit.postgres import PostgresTable
    from abs_audit.report import Differences, Held, LeftBehind, Report, Sample

__all__ = [
    "AuditSettings",
    "Differences",
    "EpochFound",
    "Files",
    "Held",
    "LeftBehind",
    "PostgresTable",
    "Relation",
    "Report",
    "Round",
    "Sample",
    "audit",
    "by_epoch",
    "follow",
    "relation",
    "side_of",
]
