#!/usr/bin/env bash
# Runs a command in a virtual machine with Debian's own kernel: cgroup version 2, netem, Open vSwitch's kernel datapath,
# whatever the kernel of this machine may lack.
#
#   scripts/vm.sh COMMAND [ARGUMENT...]
#
# The machine's root is this one's, read-only below a tmpfs: what is installed and built here is there; its /tmp is a disk
# (ext4). Its exit code is the command's. It is emulated (slow, a factor of ten or so): for whether something works, not
# for how fast.
set -euo pipefail

# What the kernel must load before it sees its root.
MODULES=(virtio_pci virtio_blk 9pnet_virtio 9p overlay ext4)

cd "$(dirname "$0")/.."
cache=$(realpath -m "${CARGO_TARGET_DIR:-target}/vm")

fail() { printf 'vm: %s\n' "$*" >&2; exit 1; }

# The package is unpacked, not installed: it is no kernel of this machine.
fetch_kernel() {
  if [ ! -e "$cache/release" ]; then
    local package
    package=$(apt-cache depends linux-image-amd64 | awk '$1 == "Depends:" {print $2; exit}')
    mkdir -p "$cache/packages"
    (cd "$cache/packages" && apt-get download -qq "$package" 2>/dev/null) ||
      fail "$package (Debian's kernel) cannot be downloaded; try again after apt-get update"
    dpkg -x "$cache/packages/$package"_*.deb "$cache"
    depmod -b "$cache" "${package#linux-image-}"
    printf '%s\n' "${package#linux-image-}" >"$cache/release"
  fi
  release=$(cat "$cache/release")
}

# A busybox that mounts the real root and hands over.
make_initramfs() {
  local root=$cache/initramfs module
  rm -rf "$root"
  mkdir -p "$root"/{bin,lib,proc,sys,dev,new}
  cp "$(command -v busybox)" "$root/bin/busybox"
  for module in $(modprobe -d "$cache" -S "$release" --show-depends -a "${MODULES[@]}" | awk '$1 == "insmod" && !seen[$2]++ {print $2}'); do
    cp "$module" "$root/lib/"
    basename "$module" >>"$root/lib/order"
  done
  cat >"$root/init" <<'INIT'
#!/bin/busybox sh
set -e
/bin/busybox --install -s /bin
mount -t proc proc /proc && mount -t sysfs sysfs /sys && mount -t devtmpfs dev /dev
while read -r module; do insmod "/lib/$module"; done </lib/order
mkdir -p /below /above && mount -t tmpfs -o size=80% tmpfs /above && mkdir /above/upper /above/work
share() { mount -t 9p -o trans=virtio,version=9p2000.L,msize=262144,"$3" "$1" "$2"; }
share root /below ro,cache=loose
mount -t overlay -o lowerdir=/below,upperdir=/above/upper,workdir=/above/work overlay /new
mkdir -p /new/lib/modules /new/vm
share modules /new/lib/modules ro,cache=loose
share run /new/vm rw,cache=none
mount --move /proc /new/proc && mount --move /sys /new/sys && mount --move /dev /new/dev
# Opening these loads their modules; elsewhere systemd makes them (kmod static-nodes).
mkdir -p /new/dev/pts /new/dev/shm /new/dev/net
mknod /new/dev/net/tun c 10 200
[ -e /new/dev/loop-control ] || mknod /new/dev/loop-control c 10 237
mount -t devpts devpts /new/dev/pts && mount -t tmpfs shm /new/dev/shm
mount -t tmpfs run /new/run && mount -t ext4 /new/dev/vda /new/tmp && chmod 1777 /new/tmp
mount -t cgroup2 cgroup2 /new/sys/fs/cgroup
ip link set lo up
exec switch_root /new /bin/bash /vm/script
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet) >"$cache/initramfs.cpio"
}

# What the machine does, and where it says how it went; and its disk, which takes only the room that is written to.
write_script() {
  run=$(mktemp -d)
  trap 'rm -rf "$run"' EXIT
  truncate -s 2G "$run/disk"
  mkfs.ext4 -q "$run/disk"
  {
    printf 'export PATH=%q HOME=/root LANG=C.UTF-8\n' "$PATH"
    printf 'cd %q\n' "$PWD"
    printf '(%s) </dev/null; echo $? >/vm/code\n' "$(printf '%q ' "$@")"
    printf 'sync; echo o >/proc/sysrq-trigger; sleep 60\n'
  } >"$run/script"
}

[ $# -gt 0 ] || { sed -n '2,10s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$(id -u)" -eq 0 ] || fail "the machine reads this one's root: run it as root"
for program in qemu-system-x86_64 busybox cpio depmod mkfs.ext4; do
  command -v "$program" >/dev/null || fail "$program is not here; scripts/setup.sh run vm installs it"
done
fetch_kernel
make_initramfs
write_script "$@"

share() { printf -- '-virtfs local,path=%s,mount_tag=%s,security_model=none,multidevs=remap%s ' "$2" "$1" "${3:-}"; }
# shellcheck disable=SC2046
qemu-system-x86_64 -nodefaults -display none -no-reboot -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 3G \
  -kernel "$cache/boot/vmlinuz-$release" -initrd "$cache/initramfs.cpio" -append "console=ttyS0 quiet panic=-1 mitigations=off" -serial stdio \
  -drive file="$run/disk",format=raw,if=virtio,cache=unsafe \
  $(share root / ,readonly=on) $(share modules "$cache/lib/modules" ,readonly=on) $(share run "$run") </dev/null
[ -e "$run/code" ] || fail "the machine stopped before the command ended"
exit "$(cat "$run/code")"
