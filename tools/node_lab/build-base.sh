#!/usr/bin/env bash
# Install the guest's Debian packages and pack them as OUT/root.tar: the slow half of an image, kept for the next one.
# usage: build-base.sh OUT SUITE PACKAGES   (as root; downloads Debian packages)
set -euo pipefail

out=$1 suite=$2 packages=$3

list() { sed --quiet --regexp-extended "$1" "$packages" | paste --serial --delimiters "$2"; }
include=$(list '/^[a-z]/{/:/d;p}' ,)
later=$(list 's/^later: //p' ' ')

mmdebstrap --variant=minbase --include="$include" \
    --customize-hook="mkdir --parents \"\$1/srv/debs\"" \
    --customize-hook="chroot \"\$1\" sh -c 'cd /srv/debs && apt-get --quiet --quiet -oAPT::Sandbox::User=root download $later'" \
    "$suite" "$out/root.tar"
chmod 0644 "$out/root.tar"
