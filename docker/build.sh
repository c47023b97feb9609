#!/usr/bin/env bash
# Build an image of this folder: `docker/build.sh ci_adreno` makes tvm.ci_adreno, as scripts of the Relay era call it.
set -euo pipefail
name=${1:-}
cd "$(dirname "$0")/.."
if [ -z "$name" ] || [ ! -f "docker/Dockerfile.$name" ]; then
  echo "docker/build.sh: there is no image '$name'; there are: $(cd docker && ls Dockerfile.* | sed 's/Dockerfile\.//' | xargs)" >&2
  exit 2
fi
command -v docker >/dev/null || { echo "docker/build.sh: docker is not installed (Debian's package docker.io)" >&2; exit 2; }
exec docker build --tag "tvm.$name" --file "docker/Dockerfile.$name" .
