#!/bin/sh
# Makes the cluster at the first start, then becomes the server. $@: server options.
set -eu

as_postgres() { setpriv --reuid=postgres --regid=postgres --clear-groups "$@"; }

[ "${1:-}" != postgres ] || shift
if [ ! -s "$PGDATA/PG_VERSION" ]; then
    : "${POSTGRES_PASSWORD:?set it: the server takes no connection without a password}"
    user=${POSTGRES_USER:-postgres}
    database=${POSTGRES_DB:-$user}
    install -d -o postgres -g postgres -m 700 "$PGDATA"
    password=$(mktemp)
    printf '%s\n' "$POSTGRES_PASSWORD" >"$password"
    chown postgres "$password"
    as_postgres initdb -D "$PGDATA" -U "$user" --auth-local=trust --auth-host=scram-sha-256 \
        --pwfile="$password" --encoding=UTF8 --locale=C \
        --locale-provider=builtin --builtin-locale=C.UTF-8
    rm "$password"
    echo 'host all all all scram-sha-256' >>"$PGDATA/pg_hba.conf"
    if [ "$database" != postgres ]; then
        echo "CREATE DATABASE \"$database\"" |
            as_postgres postgres --single -D "$PGDATA" postgres >/dev/null
    fi
fi
# A killed server leaves its lock file; in a new process namespace its pid may be another's.
rm -f "$PGDATA/postmaster.pid"
exec setpriv --reuid=postgres --regid=postgres --clear-groups \
    postgres -D "$PGDATA" -c listen_addresses='*' -c unix_socket_directories=/tmp "$@"
