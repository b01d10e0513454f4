"""Files as a replayable source, local or on S3: ``FileSource``, and its options."""

from abs_sources.files.options import FileOptions, FileRoot
from abs_sources.files.source import FileSource

__all__ = ["FileOptions", "FileRoot", "FileSource"]
