#!/bin/sh
# Writes server.properties from the environment, formats the storage once, becomes the broker.
set -eu

properties=/tmp/server.properties
# KAFKA_LOG_DIRS=/x -> log.dirs=/x. The variables that the start scripts of Kafka read are none.
env | grep '^KAFKA_' | grep -Ev '^KAFKA_(HEAP_OPTS|OPTS|JVM_PERFORMANCE_OPTS)=' |
    while IFS='=' read -r name value; do
        printf '%s=%s\n' "$(echo "${name#KAFKA_}" | tr 'A-Z_' 'a-z.')" "$value"
    done >"$properties"
grep -q '^log.dirs=' "$properties" || echo log.dirs=/var/lib/kafka/data >>"$properties"

# As a variable: on the command line the shell would expand the asterisk.
export CLASSPATH='/opt/kafka/libs/*'
java kafka.tools.StorageTool format --ignore-formatted \
    -t "${CLUSTER_ID:?set it: 16 bytes in URL-safe base64}" -c "$properties"
# shellcheck disable=SC2086  # options are several words
exec java ${KAFKA_HEAP_OPTS:--Xms256m -Xmx1g} -XX:+UseSerialGC kafka.Kafka "$properties"
