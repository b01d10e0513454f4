"""A file that this project keeps in a query's checkpoint, in the folder ``abs``; Spark ignores it."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from pyarrow import fs

from abs_core.durable import flush_folder, replace_durably
from abs_spark.checkpoint.spark_files import locate, note_readable


@dataclass(frozen=True, repr=False)
class OwnFile:
    """One such file. All methods raise ``checkpoint.FAILURES``, as the file system does.

    Args:
        checkpoint: the option ``checkpointLocation``.
    """

    checkpoint: str
    name: str

    @property
    def path(self) -> str:
        """The path on its file system."""
        return f"{locate(self.checkpoint)[1]}/abs/{self.name}"

    def look(self) -> tuple[bool, bytes | None]:
        """Whether Spark's own file is there, too, so that this is its checkpoint; and the content.

        The content is None if there is no such file.
        """
        filesystem, folder = locate(self.checkpoint)
        names = [f"{folder}/metadata", self.path, f"{self.path}.new"]
        spark, *own = filesystem.get_file_info(names)
        if spark.is_file:
            note_readable(self.checkpoint)
        there = next((info.path for info in own if info.is_file), None)
        if there is None:
            return spark.is_file, None
        if isinstance(filesystem, fs.LocalFileSystem):
            flush_folder(Path(there).parent)  # its writer may have died between rename and flush
        with filesystem.open_input_stream(there) as file:
            return spark.is_file, bytes(file.read())

    def replace(self, content: bytes) -> None:
        """Replace the file, durably and atomically for readers."""
        filesystem, path = locate(self.checkpoint)[0], self.path
        if isinstance(filesystem, fs.LocalFileSystem):
            replace_durably(Path(path), content, private=False)
        elif filesystem.type_name == "hdfs":
            _replace_by_move(filesystem, path, content)
        else:  # an object store writes objects atomically
            _put(filesystem, path, content)

    def delete(self) -> None:
        """Delete the file if there is one."""
        filesystem, path = locate(self.checkpoint)[0], self.path
        for info in filesystem.get_file_info([path, f"{path}.new"]):
            if info.is_file:
                filesystem.delete_file(info.path)


def _put(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    with filesystem.open_output_stream(path) as file:
        file.write(content)


def _replace_by_move(filesystem: fs.FileSystem, path: str, content: bytes) -> None:
    """Replace a file on HDFS, where a move cannot overwrite: in between, readers use the new file."""
    filesystem.create_dir(path.rpartition("/")[0])
    temporary, spare = f"{path}.tmp", f"{path}.new"
    _put(filesystem, temporary, content)
    old, left = filesystem.get_file_info([path, spare])
    if left.is_file:
        filesystem.delete_file(spare)
    filesystem.move(temporary, spare)
    if old.is_file:
        filesystem.delete_file(path)
    filesystem.move(spare, path)
