"""Real servers as processes of this machine, from Python wheels and jars: no container engine."""

from abs_services.native.postgres import NativePostgres
from abs_services.native.services import NativeServices

__all__ = ["NativePostgres", "NativeServices"]
