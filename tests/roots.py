"""The folders of the product, in the order in which one may import another."""

from __future__ import annotations

FOLDERS = ("clients", "sinks", "sources", "kit", "integration", "engine", "tools")
"""Each is a root on the import path; so is the checkout itself, for ``abs_core``."""
PRODUCT = ("abs_core", *FOLDERS)
