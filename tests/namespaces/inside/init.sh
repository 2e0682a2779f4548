#!/bin/bash
# init.sh ROOT NAME HOME PYTHON: the first process of a host in namespaces of its own. ROOT holds the host's own files;
# the rest is this machine's, PYTHON its interpreter's prefix. All ends with the process: nothing is seen outside.
set -euo pipefail

root=$1 name=$2 home=$3 python=$4
mkdir --parents "$root"/{opt,mnt,var/cache,var/lib,var/tmp,run/units,tmp,shm,etc,.etc-work,home}
chmod 1777 "$root/tmp" "$root/var/tmp" "$root/shm"
hostname "$name"
mount --make-rprivate /

# Interpreters and caches lie in the home of whoever tests, which other users may not enter: only those two shine through.
for kept in .cache .pyenv .local; do
    [[ -d $home/$kept ]] || continue
    mkdir --parents "$root/home/$kept"
    mount --bind "$home/$kept" "$root/home/$kept"
done

# So does this checkout, where it lies below a folder that the host has of its own.
checkout=$(cd "$(dirname "$0")/../../.." && pwd -P)
shown=
case $checkout in
    "$home"/*) shown=$root/home/${checkout#"$home"/} ;;
    /opt/* | /mnt/* | /var/* | /run/* | /tmp/*) shown=$root$checkout ;;
esac
if [[ -n $shown ]]; then
    mkdir --parents "$shown"
    mount --bind "$checkout" "$shown"
fi
if [[ $home == /tmp/* ]]; then
    mkdir --parents "$root$home"
    mount --rbind "$root/home" "$root$home"
fi
mount --rbind "$root/home" "$home"

# The interpreter may lie in yet another home: of the folder that the services' user may not enter only the interpreter.
way='' closed=''
IFS=/ read -ra parts <<<"${python#/}"
for part in "${parts[@]}"; do
    way+=/$part
    if [[ $(stat --dereference --format %A "$way") != *[xt] ]]; then
        closed=$way
        break
    fi
done
if [[ -n $closed && $closed != "$python" ]]; then
    mkdir --parents "$root/open/${python#"$closed"/}"
    mount --bind "$python" "$root/open/${python#"$closed"/}"
    mount --rbind "$root/open" "$closed"
fi

mount -t overlay overlay -o "lowerdir=/etc,upperdir=$root/etc,workdir=$root/.etc-work" /etc
for folder in opt mnt var run; do mount --rbind "$root/$folder" "/$folder"; done
mount --bind "$root/shm" /dev/shm
mount -t tmpfs tmpfs /sys/fs/cgroup # service.py lists there what the kernel would
mount --bind "$root/systemctl" /usr/bin/systemctl
ip link set lo up
touch "$root/ready"
mount --rbind "$root/tmp" /tmp # the last one: ROOT itself may lie below

while :; do # and reap what others leave behind
    sleep 3600 &
    wait $! || true
done
