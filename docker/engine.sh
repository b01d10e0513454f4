#!/bin/sh
# Starts and stops a container engine of this machine's own, where none answers: no systemd needed.
# Root and Debian or Ubuntu only. Its packages come from the sources that apt is configured with.
#
#   docker/engine.sh start    nothing happens where an engine answers already
#   docker/engine.sh stop     only an engine that this script started, with its containers
#
# DOCKERD_OPTIONS replaces the options below.
set -eu

run=/run/abs-sinks
pid_file=$run/dockerd.pid
log=$run/dockerd.log
# vfs, the fall-back without overlay2, is ten times slower. Ports are published to this machine only.
options=${DOCKERD_OPTIONS:---storage-driver=overlay2 --mtu=1400 --ip=127.0.0.1}

answers() { docker info >/dev/null 2>&1; }

# The pid of the engine that this script started, where it still runs under its own name.
ours() {
    pid=$(cat "$pid_file" 2>/dev/null) || return 1
    [ "$(cat "/proc/$pid/comm" 2>/dev/null)" = dockerd ] && echo "$pid"
}

# wait_for SECONDS COMMAND...
wait_for() {
    left=$(($1 * 10))
    shift
    while ! "$@"; do
        left=$((left - 1))
        [ "$left" -gt 0 ] || return 1
        sleep 0.1
    done
}

start() {
    if answers; then return; fi
    if [ "$(id -u)" != 0 ]; then
        echo "no container engine answers, and only root can start one here" >&2
        exit 2
    fi
    if ! command -v dockerd >/dev/null; then
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            docker.io iptables ca-certificates >/dev/null
    fi
    mkdir -p "$run"
    # A session of its own: Ctrl-C and the end of this shell do not reach it.
    # shellcheck disable=SC2086  # options are several words
    setsid dockerd $options --pidfile="$pid_file" >"$log" 2>&1 </dev/null &
    if ! wait_for 30 answers; then
        echo "the engine does not answer; its log $log ends with:" >&2
        tail -n 5 "$log" >&2
        stop
        exit 3
    fi
}

gone() { [ ! -e "/proc/$1" ]; }

stop() {
    pid=$(ours) || return 0
    kill -TERM "$pid"
    wait_for 60 gone "$pid" || { echo "dockerd $pid does not end" >&2; exit 3; }
}

case "${1:-}" in
start) start ;;
stop) stop ;;
*)
    sed -n '2,9s/^# \{0,1\}//p' "$0" >&2
    exit 2
    ;;
esac
