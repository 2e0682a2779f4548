#!/bin/sh
# Print a Python that is 3.11 or newer. A name on PATH proves nothing (version managers leave shims that fail), so each
# candidate is run. 3.11 comes first: it is the version that the locks and the tests are made with.
set -u

for candidate in python3.11 python3 python3.12 python3.13 python3.14; do
  if "$candidate" -c 'import sys, venv, ensurepip; sys.exit(sys.version_info < (3, 11))' >/dev/null 2>&1; then
    command -v "$candidate"
    exit 0
  fi
done
echo "No Python 3.11 or newer with its venv module was found on PATH: install one (Debian: apt-get install python3-venv)." >&2
exit 2
