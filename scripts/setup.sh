#!/usr/bin/env bash
# Installs what Slipway is built, run, tested and measured with. Only what is missing, by name.
#
#   scripts/setup.sh [GROUP...]     groups: build run test bench bpf lint fuzz vm (default: build run test)
#
# Nothing that is installed here is started: a temporary policy-rc.d refuses it, and units that come with a package
# installed by this script are disabled. Packages and services that were there before are left as they are.
set -euo pipefail

# What Slipway itself is built with: the linker and the C library's static archive (the program is one static file).
BUILD=(
  build-essential    # cc, which rustc links with, and libc.a
)

# What a lab uses on this machine. Slipway speaks to the kernel itself; these are programs that it starts for you.
RUN=(
  openvswitch-switch # driver `ovs`: ovsdb-server and ovs-vswitchd
  e2fsprogs          # mkfs.ext4: disks of nodes' own
  openssh-server     # `sshd: true`
  openssh-client     # ssh between such nodes
  openmpi-bin        # jobs with `--mpi openmpi`
  mpich              # jobs with `--mpi mpich`
  iperf3             # `compare` and `bench`: throughput
  fio                # `bench disk`
  rsync              # `bench transfer`, and the same files by another program
  netpipe-tcp        # `compare`: latency and throughput over message sizes
  iputils-ping       # `compare`: round-trip time
  zstd               # images in tar.zst, where made by hand
  python3            # engines of campaigns that come as Python packages
  python3-venv       # their environments
)

# What tests, examples and the guide run in labs or hold Slipway's results against.
TEST=(
  libibverbs-dev     # its header, beside the plug-in's layouts
  librdmacm-dev      # its header, beside the gateway's layouts, and for the load over verbs
  ibverbs-utils      # real verbs programs
  rdmacm-utils       # more, with connections by address
  perftest           # more, for throughput and latency
  ucx-utils          # UCX over verbs, as Open MPI has it
  python3-pyverbs    # verbs from Python
  libfabric-bin      # more programs over verbs
  iproute2           # links and namespaces by hand, for comparison
  util-linux         # nsenter, unshare, mount
  procps             # ps in nodes
  tcpdump            # what is really on the wire
  ethtool            # whether offloads are as asked
  frr                # a real router: the example `ospf`
  iptables           # its rules, in a node with `capabilities`
  nftables           # the same
  libopenmpi-dev     # mpicc.openmpi, for the MPI programs of tests
  libmpich-dev       # mpicc.mpich
  netpipe-openmpi    # a real MPI program: ping-pong
  netpipe-mpich2     # the same, for MPICH
  hpcc               # a real MPI program: HPC Challenge
  lammps             # a real MPI program: molecular dynamics, in the demo
  redis-server       # a real server: the example `redis`
  redis-tools        # redis-benchmark
  nginx-light        # a real server: the example `nginx`
  glusterfs-server   # homes that machines share: the example `homes`
  glusterfs-client   # the same
  apache2-utils      # ab, its client
  curl               # another
  golang-go          # images: a static Go program alone in its root; the tests of its own sockets
  musl-tools         # musl-gcc: the sockets' observer with another C library
  libpython3.11-testsuite # the tests of its own sockets
  nodejs             # sockets that a parent passes on to its workers
  socat              # sockets with options
  erlang-base        # nodes of Erlang that talk to each other (epmd)
  jq                 # answers of --json, in the guide
  umoci              # images: OCI layouts
  buildah            # images: OCI archives, as people make them
  skopeo             # images: docker archives
  busybox-static     # a whole root file system in one file
  attr               # setfattr: images with extended attributes
  libcap2-bin        # setcap: images with file capabilities
  chromium           # the report's screenshot, and the page of campaigns, checked in a browser
  chromium-driver    # drives it
  openssl            # certificates for tests of TLS
  fonts-dejavu-core  # letters for it
  slurmctld          # a real batch system: its controller
  slurmd             # its machines
  slurm-client       # sbatch, srun, scancel
  munge              # its credentials
  slurmdbd           # its accounting
  mariadb-server     # the database behind that
)

# What `make bench` compares with, and programs too large for every test run.
BENCH=(
  mininet            # the same networks, made by another tool
  python3-pip        # fetches MPICH for the example `mpich`, by its hash
  bridge-utils       # brctl, which mininet's `--switch lxbr` calls
  openjdk-17-jdk-headless # sockets of Java: a selector, and threads that block (350 MB)
  openfoam           # the example `openfoam-dambreak` (600 MB with its libraries)
  openfoam-examples  # its input
  parallel           # GNU parallel: the same points by another scheduler
  wrk                # HTTP at full speed
  postgresql         # a real server, and pgbench
  memcached          # a real server
  rabbitmq-server    # a real cluster, of Erlang
  amqp-tools         # its clients
  libmemcached-tools # memcaslap, its load
  prometheus         # promtool, which judges what Prometheus is given
  globus-gridftp-server-progs # GridFTP's server: transfers by another program
  globus-gass-copy-progs # globus-url-copy, its client
  xrootd-server      # the same, by XRootD
  xrootd-client      # xrdcp, its client
  rclone             # the same, over sftp and WebDAV
)

# What `make test-vm` boots Debian's kernel with, which itself is downloaded, not installed.
VM=(
  qemu-system-x86    # the machine
  busybox-static     # its first program
  cpio               # its first file system
  kmod               # which modules that needs
)

# What the BPF programs are compiled with, by whoever changes one.
BPF=(
  clang-14           # the compiler, of one version for all
  llvm-14            # llvm-strip
  libbpf-dev         # headers of BPF's helpers
  linux-libc-dev     # headers of the kernel
)

# What `make lint` checks documents and objects with.
LINT=(
  "${BPF[@]}"        # whether the BPF objects are those of their sources
  python3            # the link checker
  codespell          # spelling
)

# Programs of `make lint` that come from crates.io: name and version.
LINT_TOOLS=(
  cargo-deny@0.20.2    # licences, sources, duplicate and withdrawn crates
  cargo-machete@0.9.2  # dependencies that nothing uses
)

# What `make fuzz` builds with, besides the nightly toolchain.
FUZZ=(
  cargo-fuzz@0.13.2    # how to compile for libFuzzer
)

# Services that come with the packages above: package:unit.
SERVICES=(openvswitch-switch:openvswitch-switch openssh-server:ssh redis-server:redis-server nginx-light:nginx
  postgresql:postgresql memcached:memcached prometheus:prometheus erlang-base:epmd rabbitmq-server:rabbitmq-server
  frr:frr nftables:nftables globus-gridftp-server-progs:globus-gridftp-server
  globus-gridftp-server-progs:globus-gridftp-sshftp slurmctld:slurmctld slurmd:slurmd munge:munge slurmdbd:slurmdbd
  mariadb-server:mariadb)

say() { printf 'setup: %s\n' "$*"; }
fail() { printf 'setup: %s\n' "$*" >&2; exit 1; }
as_root() { if [ "$(id -u)" -eq 0 ]; then "$@"; else sudo "$@"; fi; }
is_installed() { [ "$(dpkg-query -W -f='${db:Status-Status}' "$1" 2>/dev/null)" = installed ]; }

check_rust() {
  command -v rustup >/dev/null || fail "rustup is not here; install it from https://rustup.rs (rust-toolchain.toml then picks the version), and try again"
  # Inside the project, so the pinned toolchain answers, and rustup fetches it if it must.
  (cd "$(dirname "$0")/.." && cargo --version) || fail "the pinned Rust toolchain cannot be had; see rust-toolchain.toml"
}

# Keeps package scripts from starting services (invoke-rc.d and deb-systemd-invoke ask policy-rc.d). One that the
# machine has already is its administrator's word, and stays.
refuse_service_starts() {
  [ -e /usr/sbin/policy-rc.d ] && return
  trap 'as_root rm -f /usr/sbin/policy-rc.d' EXIT
  printf '#!/bin/sh\n# Made by scripts/setup.sh of Slipway for as long as it runs.\nexit 101\n' \
    | as_root install -m 0755 /dev/stdin /usr/sbin/policy-rc.d
}

# So that a server which only tests need does not listen after the next boot.
disable_new_services() {
  command -v systemctl >/dev/null || return 0
  local entry
  for entry in "${SERVICES[@]}"; do
    case " $* " in *" ${entry%%:*} "*) as_root systemctl --quiet disable "${entry##*:}" ;; esac
  done
}

install_packages() {
  local missing=() package
  for package in "$@"; do
    is_installed "$package" || missing+=("$package")
  done
  if [ ${#missing[@]} -eq 0 ]; then
    say "all $# packages are there"
    return
  fi
  [ "$(id -u)" -eq 0 ] || command -v sudo >/dev/null || fail "to install ${missing[*]}: run as root, or install sudo"
  say "installing ${missing[*]}"
  refuse_service_starts
  as_root apt-get update -qq
  as_root env DEBIAN_FRONTEND=noninteractive apt-get install -y -qq --no-install-recommends "${missing[@]}" >/dev/null
  disable_new_services "${missing[@]}"
}

install_tools() {
  local tool name version
  for tool in "$@"; do
    name=${tool%@*} version=${tool#*@}
    if [ "$("$name" --version 2>/dev/null | tr -dc '0-9.')" = "$version" ]; then
      say "$name $version is there"
    else
      say "building $name $version"
      # Unoptimised: it is built in a quarter of the time, and runs for a second.
      cargo install --quiet --locked --debug "$tool"
    fi
  done
}

install_nightly() {
  rustup run nightly rustc --version >/dev/null 2>&1 || rustup toolchain install nightly --profile minimal
}

main() {
  [ $# -gt 0 ] || set -- build run test
  command -v apt-get >/dev/null || fail "this script installs Debian packages; elsewhere, install by hand what its lists name"
  local packages=() tools=() group nightly=no
  for group in "$@"; do
    case $group in
      build) packages+=("${BUILD[@]}") ;;
      bpf) packages+=("${BPF[@]}") ;;
      run) packages+=("${RUN[@]}") ;;
      test) packages+=("${TEST[@]}") ;;
      bench) packages+=("${BENCH[@]}") ;;
      vm) packages+=("${VM[@]}") ;;
      lint) packages+=("${LINT[@]}") tools+=("${LINT_TOOLS[@]}") ;;
      fuzz) tools+=("${FUZZ[@]}") nightly=yes ;;
      *) fail "there is no group \`$group\`: build, run, test, bench, bpf, lint, fuzz, vm" ;;
    esac
  done
  check_rust
  [ ${#packages[@]} -eq 0 ] || install_packages "${packages[@]}"
  [ ${#tools[@]} -eq 0 ] || install_tools "${tools[@]}"
  [ "$nightly" = no ] || install_nightly
}

main "$@"
