"""The stand-in for a schema registry, by the name that it had; see ``abs_services.registry``."""

from __future__ import annotations

from abs_services.registry import StandIn

__all__ = ["StandIn"]
