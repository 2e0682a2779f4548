#!/bin/sh
# Make .venv hold what requirements/dev.lock says; quick and silent when it already does.
set -eu

cd "$(dirname "$0")/../.."
python=$(tools/setup/find_python.sh)
exec "$python" -m tools.setup.environment "$@"
