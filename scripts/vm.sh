#!/usr/bin/env bash
# Runs a command in a virtual machine with Debian's own kernel: cgroup version 2, netem, Open vSwitch's kernel datapath,
# whatever the kernel of this machine may lack.
#
#   scripts/vm.sh [--pair] COMMAND [ARGUMENT...]
#
# With --pair there are two machines, `a` and `b`, 192.0.2.1 and 192.0.2.2, on one wire. The command runs on `a`, and ssh leads to
# `b` (SLIPWAY_RSH).
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
exec switch_root /new /bin/bash "/vm/script.$(sed 's/.*slipway_vm=\([a-z]*\).*/\1/' /new/proc/cmdline)"
INIT
  chmod +x "$root/init"
  (cd "$root" && find . | cpio -o -H newc --quiet) >"$cache/initramfs.cpio"
}

# Writes the commands of machine $1, and makes its disk, which takes only the room that is written to.
write_script() {
  local name=$1
  shift
  truncate -s 2G "$run/disk.$name"
  mkfs.ext4 -q "$run/disk.$name"
  {
    printf 'export PATH=%q HOME=/root LANG=C.UTF-8\n' "$PATH"
    printf 'cd %q\n' "$PWD"
    printf '%s\n' "$@"
    printf 'sync; echo o >/proc/sysrq-trigger; sleep 60\n'
  } >"$run/script.$name"
}

# Its end of the wire.
plug_in() { printf 'hostname %s; modprobe virtio_net; ip address add 192.0.2.%s/24 dev eth0; ip link set eth0 up' "$1" "$2"; }

# How ssh leads from one to the other. Both see the folder.
write_keys() {
  ssh-keygen -q -t ed25519 -N '' -f "$run/host"
  ssh-keygen -q -t ed25519 -N '' -f "$run/id"
  printf '* %s\n' "$(cat "$run/host.pub")" >"$run/known_hosts"
  printf '%s\n' 'Host a' 'HostName 192.0.2.1' 'Host b' 'HostName 192.0.2.2' 'Host *' 'IdentityFile /vm/id' 'IdentitiesOnly yes' 'UserKnownHostsFile /vm/known_hosts' 'BatchMode yes' \
    'LogLevel ERROR' >"$run/ssh_config"
  printf '%s\n' 'HostKey /vm/host' 'AuthorizedKeysFile /vm/id.pub' 'StrictModes no' 'PidFile none' "SetEnv \"PATH=$PATH\"" \
    >"$run/sshd_config"
}

# The command of machine $1, whose wire is what follows, as the array `machine`.
describe() {
  local name=$1
  shift
  # shellcheck disable=SC2207
  machine=(qemu-system-x86_64 -nodefaults -display none -no-reboot -machine q35 -accel tcg,thread=multi -cpu max -smp 2 -m 3G
    -kernel "$cache/boot/vmlinuz-$release" -initrd "$cache/initramfs.cpio"
    -append "console=ttyS0 quiet panic=-1 mitigations=off slipway_vm=$name" -serial stdio
    -drive "file=$run/disk.$name,format=raw,if=virtio,cache=unsafe" "$@"
    $(share root / ,readonly=on) $(share modules "$cache/lib/modules" ,readonly=on) $(share run "$run"))
}

share() { printf -- '-virtfs local,path=%s,mount_tag=%s,security_model=none,multidevs=remap%s ' "$2" "$1" "${3:-}"; }

[ $# -gt 0 ] || { sed -n '2,12s/^# \{0,1\}//p' "$0"; exit 2; }
[ "$(id -u)" -eq 0 ] || fail "the machine reads this one's root: run it as root"
for program in qemu-system-x86_64 busybox cpio depmod mkfs.ext4; do
  command -v "$program" >/dev/null || fail "$program is not here; scripts/setup.sh run vm installs it"
done
fetch_kernel
make_initramfs
run=$(mktemp -d)
other=
# shellcheck disable=SC2154
trap 'if [ -n "$other" ]; then kill "$other" 2>/dev/null; wait "$other" || true; fi; rm -rf "$run"' EXIT
is_pair=
if [ "$1" = --pair ]; then is_pair=1; shift; fi
command="($(printf '%q ' "$@")) </dev/null; echo \$? >/vm/code"
if [ -z "$is_pair" ]; then
  write_script a "$command"
  describe a
else
  write_keys
  write_script a "$(plug_in a 1)" "export SLIPWAY_RSH='ssh -F /vm/ssh_config'" "$command"
  write_script b "$(plug_in b 2)" 'mkdir -p /run/sshd; /usr/sbin/sshd -f /vm/sshd_config -E /vm/sshd.log' \
    'until [ -e /vm/code ]; do sleep 1; done'
  describe b -netdev "stream,id=wire,server=on,addr.type=unix,addr.path=$run/wire" \
    -device virtio-net-pci,netdev=wire,mac=02:00:00:00:00:02,romfile=
  "${machine[@]}" </dev/null >"$run/b.log" 2>&1 &
  other=$!
  until [ -S "$run/wire" ]; do kill -0 "$other" 2>/dev/null || fail "machine b does not start: $(cat "$run/b.log")"; sleep 0.1; done
  describe a -netdev "stream,id=wire,server=off,addr.type=unix,addr.path=$run/wire" \
    -device virtio-net-pci,netdev=wire,mac=02:00:00:00:00:01,romfile=
fi
"${machine[@]}" </dev/null
[ -e "$run/code" ] || fail "the machine stopped before the command ended"
exit "$(cat "$run/code")"
