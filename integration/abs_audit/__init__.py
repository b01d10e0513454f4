"""Audit: does a target hold exactly the expected records? See :func:`audit`."""

from abs_audit.auditor import audit
from abs_audit.contracts import Inspectable, Relation
from abs_audit.epochs import EpochFound, audit_epochs
from abs_audit.files import Files
from abs_audit.locate import relation
from abs_audit.postgres import PostgresTable
from abs_audit.report import Differences, LeftBehind, Report, Sample

__all__ = [
    "Differences",
    "EpochFound",
    "Files",
    "Inspectable",
    "LeftBehind",
    "PostgresTable",
    "Relation",
    "Report",
    "Sample",
    "audit",
    "audit_epochs",
    "relation",
]
