"""What tests of the Kafka clients share."""

from __future__ import annotations

import importlib
import warnings

with warnings.catch_warnings():
    # kafka-python reads its own files by importlib.resources.read_text, as it is imported.
    warnings.simplefilter("ignore", DeprecationWarning)
    importlib.import_module("kafka.admin")
