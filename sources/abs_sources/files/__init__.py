"""Files as a replayable source, local or on S3: ``FileSource``, and its options."""

from abs_sources.files.options import FileOptions, Place
from abs_sources.files.source import FileSource

__all__ = ["FileOptions", "FileSource", "Place"]
