"""The embedded runtime: barriers in FIFO channels, snapshots, exactly-once sinks, in one process."""
