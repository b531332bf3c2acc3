#!/bin/sh
# The steps of the hooks that nvidia-ctk writes into CDI files, with programs of util-linux: cdi-hook.sh <step> [argument ...].
# The state of the container (OCI runtime specification) comes on standard input.
set -e
PATH=/usr/sbin:/usr/bin:/sbin:/bin
bundle=$(sed -n 's/.*"bundle" *: *"\([^"]*\)".*/\1/p')
root=$(sed -n 's/.*"root" *: *{ *"path" *: *"\([^"]*\)".*/\1/p' "$bundle/config.json")
[ -d "$root/etc" ]
scratch=$root/run/cdi-hook-$1
case $1 in
  create-symlinks) # <target> <path>
    mkdir -p "$(dirname "$root$3")"
    ln -sf "$2" "$root$3"
    ;;
  update-ldcache) # <folder>
    mkdir -p "$scratch" "$root/etc/ld.so.conf.d"
    echo "$2" > "$root/etc/ld.so.conf.d/00-cdi-hook.conf"
    # In namespaces of its own, below those of the container, and with this machine's ldconfig.
    exec unshare --mount --uts --ipc --pid --net --fork /bin/sh -e -c '
      mount -t tmpfs tmpfs "$2"
      touch "$2/ldconfig"
      mount --bind -o ro,nodev /sbin/ldconfig "$2/ldconfig"
      mount -t proc proc "$1/proc"
      cd "$1"
      pivot_root . .
      cd /
      exec "${2#"$1"}/ldconfig" -C /etc/ld.so.cache -f /etc/ld.so.conf' sh "$root" "$scratch"
    ;;
  cover-proc-file) # <path> <text>: as disable-device-node-modification covers /proc/driver/nvidia/params
    mkdir -p "$scratch"
    mount -t tmpfs -o size=4k tmpfs "$scratch"
    echo "$3" > "$scratch/content"
    mount --bind "$scratch/content" "$root$2"
    mount -o remount,bind,ro,nodev "$root$2"
    ;;
  *) exit 64 ;;
esac
