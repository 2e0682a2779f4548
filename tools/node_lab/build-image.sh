#!/usr/bin/env bash
# Make the lab's guest of a packed root file system: root.raw (ext4), kernel and initrd in OUT.
# usage: build-image.sh OUT ROOT_TAR SIZE OVERLAY WHEELS LOCK ENVIRONMENT   (as root)
#
# ENVIRONMENT: where the node would install the wheels of LOCK. They are there from the start, as in an image with baked-in
# libraries, since an emulated machine takes minutes to install them.
set -euo pipefail

out=$1 base=$2 size=$3 overlay=$4 wheels=$5 lock=$6 environment=$7
work=$(mktemp --directory "$out/.build-XXXXXX")
trap 'rm --recursive --force "$work"' EXIT

tar --extract --file "$base" --directory "$work" --exclude './dev/*'
cp --recursive --no-preserve=ownership "$overlay/." "$work/"
cd "$work"

# A package of no content, for installing it while others hold apt's lock.
mkdir --parents late/DEBIAN
printf '%s\n' 'Package: lab-late' 'Version: 1' 'Architecture: all' 'Maintainer: node lab' 'Description: nothing' \
    >late/DEBIAN/control
dpkg-deb --root-owner-group --build late srv/debs >/dev/null
rm --recursive late
# The guest's own package archive; there is no other, as it never reaches the internet.
for deb in srv/debs/*.deb; do
    dpkg-deb --field "$deb"
    printf 'Filename: ./%s\nSize: %s\nSHA256: %s\n\n' "${deb##*/}" "$(stat --format %s "$deb")" \
        "$(sha256sum "$deb" | cut --delimiter ' ' --fields 1)"
done >srv/debs/Packages
rm --recursive --force etc/apt/sources.list.d/* var/lib/apt/lists/*
echo 'deb [trusted=yes] file:/srv/debs ./' >etc/apt/sources.list
# The stand-in for a key vault needs a certificate that the guest trusts.
openssl req -x509 -newkey ec -pkeyopt ec_paramgen_curve:prime256v1 -noenc -days 3650 -subj '/CN=lab key vault' \
    -addext 'subjectAltName=IP:169.254.169.253' \
    -keyout etc/lab/vault.key -out etc/lab/vault.crt 2>/dev/null
cat etc/lab/vault.crt >>etc/ssl/certs/ca-certificates.crt
# The libraries, in the steps of huddle_apply/installed/libraries.py, at this machine's speed.
mkdir --parents srv/wheels "$work/dev"
cp "$lock" srv/engine.lock
# shellcheck disable=SC2016 # expanded by the inner shell
unshare --mount bash -euo pipefail -c '
    mount --bind "$1" "$2/srv/wheels"
    mount --rbind /dev "$2/dev"
    mount -t proc proc "$2/proc"
    chroot "$2" python3 -m venv "$3"
    chroot "$2" "$3/bin/python" -m pip install --quiet --no-index --find-links /srv/wheels uv
    chroot "$2" "$3/bin/uv" pip install --quiet --offline --no-cache --find-links /srv/wheels --no-deps --require-hashes \
        --compile-bytecode --python "$3/bin/python" --requirement /srv/engine.lock
' bash "$wheels" "$work" "$environment"
touch "$work$environment/.complete"
rm srv/engine.lock
# What a fresh machine does not have, and what only costs time in an emulated one.
rm --force etc/ssh/ssh_host_* var/lib/dbus/machine-id
: >etc/machine-id
for unit in apt-daily.timer apt-daily-upgrade.timer e2scrub_all.timer e2scrub_reap.service fstrim.timer \
    dpkg-db-backup.timer systemd-timesyncd.service; do
    ln --symbolic --force /dev/null "etc/systemd/system/$unit"
done
mkdir --parents etc/systemd/system/{sysinit,multi-user}.target.wants
for unit in etc/systemd/system/lab-*.service; do
    ln --symbolic --force "../${unit##*/}" "etc/systemd/system/sysinit.target.wants/${unit##*/}"
done
ln --symbolic --force /lib/systemd/system/systemd-networkd.service etc/systemd/system/multi-user.target.wants/
cd - >/dev/null

cp "$work"/boot/vmlinuz-* "$out/kernel"
cp "$work"/boot/initrd.img-* "$out/initrd"
mkfs.ext4 -q -L lab-root -E root_owner=0:0 -d "$work" "$out/root.raw" "$size"
chmod 0644 "$out/kernel" "$out/initrd" "$out/root.raw"
