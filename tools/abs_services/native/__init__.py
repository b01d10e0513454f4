"""Servers as native processes, from Python wheels and jars: no container engine."""

from abs_services.native.kafka import NativeKafka
from abs_services.native.postgres import NativePostgres
from abs_services.native.s3 import NativeS3
from abs_services.native.services import NativeServices

__all__ = ["NativeKafka", "NativePostgres", "NativeS3", "NativeServices"]
