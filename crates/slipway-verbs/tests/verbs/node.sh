#!/bin/bash
# Runs a program as in a node with an RDMA device: node.sh FOLDER NUMBER ADDRESS PLUGIN PROGRAM…
# Everything is mounted in a namespace of the program's own.
set -eu
if [ "${NODE_INSIDE:-}" != 1 ]; then
  NODE_INSIDE=1 exec unshare --mount "$0" "$@"
fi
folder=$1 number=$2 address=$3 plugin=$4
shift 4
node=$folder/node$number
if [ ! -e "$node" ]; then
  mkdir -p "$node.new"/{class/{infiniband_verbs/uverbs0,misc/rdma_cm},dev/infiniband,drivers}
  device=$node.new/class/infiniband/slipway0
  port=$device/ports/1
  mkdir -p "$port"/{gids,gid_attrs/types,gid_attrs/ndevs,pkeys}
  echo 6 >"$node.new/class/infiniband_verbs/abi_version"
  echo 1:3 >"$node.new/class/infiniband_verbs/uverbs0/dev"
  echo slipway0 >"$node.new/class/infiniband_verbs/uverbs0/ibdev"
  echo 1 >"$node.new/class/infiniband_verbs/uverbs0/abi_version"
  echo '1: CA' >"$device/node_type"
  printf '0200:5350:5741:%04x\n' "$number" >"$device/node_guid"
  printf '0200:5350:5741:%04x\n' "$number" >"$device/sys_image_guid"
  echo 1.0.0 >"$device/fw_ver"
  # shellcheck disable=SC2046 # Four numbers are four words.
  printf '0000:0000:0000:0000:0000:ffff:%02x%02x:%02x%02x\n' $(echo "$address" | tr . ' ') >"$port/gids/0"
  echo 'RoCE v2' >"$port/gid_attrs/types/0"
  echo lo >"$port/gid_attrs/ndevs/0"
  echo 0xffff >"$port/pkeys/0"
  echo '4: ACTIVE' >"$port/state"
  echo Ethernet >"$port/link_layer"
  mknod "$node.new/dev/infiniband/uverbs0" c 1 3
  chmod 666 "$node.new/dev/infiniband/uverbs0"
  echo "driver ${plugin%-rdmav34.so}" >"$node.new/drivers/slipway.driver"
  mv "$node.new" "$node"
fi
mount --make-rprivate /
mount -t overlay overlay -o "lowerdir=$node/class:/sys/class" /sys/class
mount -t overlay overlay -o "lowerdir=$node/dev:/dev" /dev
mount --bind "$node/drivers" /etc/libibverbs.d
export SLIPWAY_VERBS_SOCKET=$folder/$number.sock SLIPWAY_GATEWAY_SOCKET=$folder/$number.gateway
exec "$@"
