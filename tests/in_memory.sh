#!/usr/bin/env bash
# Runs a command whose temporary files lie in memory, where there is plenty of it: TMPDIR says where.
#
# The tests' servers sync what they write, thousands of times, and would wait for the disk for a fifth of
# the time. Tests kill processes, never the machine: what was written before a kill is there either way.
set -uo pipefail

GIB=1048576
room=$(df -k --output=avail /dev/shm 2>/dev/null | tail -n 1) || room=0
memory=$(awk '/^MemAvailable:/ { print $2 }' /proc/meminfo 2>/dev/null) || memory=0
if [ ! -w /dev/shm ] || [ "${room:-0}" -lt $((8 * GIB)) ] || [ "${memory:-0}" -lt $((16 * GIB)) ]; then
    exec "$@"
fi
TMPDIR=$(mktemp -d /dev/shm/abs-XXXXXX)
export TMPDIR
trap 'rm -rf "$TMPDIR"' EXIT
"$@"
