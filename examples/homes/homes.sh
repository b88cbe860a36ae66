#!/bin/sh
# Homes that all machines of a lab share, as a virtual private supercomputer has them: GlusterFS over FUSE, with each file on
# two machines. The homes outlive a machine.
#
#   homes.sh FOLDER ADDRESS ADDRESS...
#
# Every machine needs Debian's glusterfs-server and glusterfs-client, and glusterd has to run there. ssh has to lead to all of
# them as root. SLIPWAY_RSH names another command in its place. Then say in the lab file:
#   mounts: [{source: FOLDER, target: /home, shared: true}]
set -eu

[ $# -ge 3 ] || { echo "usage: homes.sh FOLDER ADDRESS ADDRESS..." >&2; exit 2; }
folder=$1
shift
first=$1
volume=homes

at() {
  machine=$1
  shift
  # shellcheck disable=SC2086 # words of a command
  ${SLIPWAY_RSH:-ssh -o BatchMode=yes} "$machine" "$*" </dev/null
}

for machine in "$@"; do
  at "$machine" mkdir -p "$folder.bricks"
  [ "$machine" = "$first" ] || at "$first" gluster --mode=script peer probe "$machine"
done
# A peer that answered the probe still has to be told of the others.
tries=0
until [ "$(at "$first" gluster pool list | grep -cw Connected)" -eq $# ]; do
  tries=$((tries + 1))
  [ $tries -lt 100 ] || { echo "homes.sh: machines do not join the pool: look at gluster peer status" >&2; exit 1; }
  sleep 0.1
done

# Each machine has a brick beside its neighbour's, so any number of machines will do.
bricks=
number=0
for machine in "$@"; do
  number=$((number + 1))
  next=$first
  [ $number -eq $# ] || next=$(eval "echo \${$((number + 1))}")
  bricks="$bricks $machine:$folder.bricks/$number $next:$folder.bricks/$number.copy"
done
# `force`: two copies without an arbiter may part when machines lose each other, and bricks may lie on a root file system.
at "$first" gluster --mode=script volume create $volume replica 2 "$bricks" force
at "$first" gluster --mode=script volume start $volume
for machine in "$@"; do
  at "$machine" "mkdir -p $folder && mount -t glusterfs $machine:/$volume $folder"
done
