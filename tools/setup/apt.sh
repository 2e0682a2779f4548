#!/usr/bin/env bash
# Install the Debian packages that a purpose needs (tools/setup/apt-packages.txt) and that are missing.
# usage: tools/setup/apt.sh PURPOSE...
set -euo pipefail

list="$(dirname "${BASH_SOURCE[0]}")/apt-packages.txt"
missing=()
for wanted in "$@"; do
  while read -r purpose package command; do
    # What proves a package is a command, or a file of it.
    if [[ $purpose == "$wanted" && ! -e $command ]] && ! PATH="$PATH:/usr/sbin:/sbin" command -v "$command" >/dev/null; then
      missing+=("$package")
    fi
  done <"$list"
done
((${#missing[@]})) || exit 0

as_root=()
if ((EUID != 0)); then
  as_root=(sudo -n)
fi
if ! command -v apt-get >/dev/null || ! "${as_root[@]}" true 2>/dev/null; then
  echo "Missing programs: install the packages ${missing[*]} (Debian: sudo apt-get install ${missing[*]}), then run the command again." >&2
  exit 2
fi

echo "installing Debian packages: ${missing[*]}" >&2
# A test machine must not turn into a cloud instance at its next boot because cloud-init is now installed.
if [[ " ${missing[*]} " == *" cloud-init "* && ! -e /etc/cloud ]]; then
  "${as_root[@]}" mkdir -p /etc/cloud
  "${as_root[@]}" touch /etc/cloud/cloud-init.disabled
fi
log=$(mktemp)
trap 'rm -f "$log"' EXIT
install_missing() {
  "${as_root[@]}" env DEBIAN_FRONTEND=noninteractive \
    apt-get install --yes --quiet --no-install-recommends "${missing[@]}" >"$log" 2>&1
}
if ! install_missing; then # most often: package lists that are missing or old
  "${as_root[@]}" apt-get update --quiet >"$log" 2>&1 || true
  if ! install_missing; then
    tail -n 20 "$log" >&2
    echo "apt-get could not install ${missing[*]}; install them and run the command again." >&2
    exit 1
  fi
fi
