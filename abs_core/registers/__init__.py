"""Register stores that need no server: in memory, and in a folder of files."""
