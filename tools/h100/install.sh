#!/bin/sh
# Make an environment of packed packages over those of the machine's own Python, with this tree's `huddle`; or add
# further archives to it.
# usage: install.sh DIRECTORY ARCHIVE...
set -eu
directory=$1
shift
tree=$(cd "$(dirname "$0")/../.." && pwd)
[ -x "$directory/bin/python" ] || python3 -m venv --without-pip "$directory"
site=$("$directory/bin/python" -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])')
for archive in "$@"; do
    python3 -c 'import sys, tarfile; tarfile.open(sys.argv[1], "r|xz").extractall(sys.argv[2], filter="tar")' \
        "$archive" "$site"
done
# The machine's packages come after ours.
python3 -c 'import sysconfig; print(sysconfig.get_paths()["purelib"])' >"$site/machine.pth"
echo "$tree/serving/src" >"$site/huddle.pth"
program() { # name, module, function
    printf '#!%s\nfrom %s import %s\nif __name__ == "__main__":\n    %s()\n' \
        "$directory/bin/python" "$2" "$3" "$3" >"$directory/bin/$1"
    chmod +x "$directory/bin/$1"
}
program vllm vllm.entrypoints.cli.main main
program huddle huddle.cli main
program ray ray.scripts.scripts main
"$directory/bin/python" -m compileall -q -j 0 "$site" >/dev/null 2>&1 || true # some files are for other Pythons
