#!/bin/sh
# MPICH 5 from Python's package index, over the nodes of lab.yaml.
#
#   examples/mpich/run.sh            fetches it where it is not there yet, and runs the program once
#   examples/mpich/run.sh 20         twenty times in a row
#   examples/mpich/run.sh compare    the same under each driver, side by side; with options of `slipway compare`, those
#
# Needs `python3-pip` and a C compiler. MPICH stays in `mpich/`.
set -eu
cd "$(dirname "$0")"

if ! [ -e mpich/bin/mpiexec.hydra ]; then
  python3 -m pip install --quiet --disable-pip-version-check --root-user-action ignore \
    --only-binary :all: --no-deps --require-hashes --ignore-installed --prefix "$PWD/mpich" --requirement requirements.txt
fi
# Not by its `mpicc`, which would write into the program where MPICH is here instead of where it is in the nodes.
cc -O2 -o mpich/bin/exchange exchange.c -I mpich/include -L mpich/lib -lmpi -Wl,--allow-shlib-undefined

if [ "${1:-}" = compare ]; then
  shift
  [ $# -gt 0 ] || set -- --drivers host,bridge,macvlan,vxlan,fast --repeat 5
  exec slipway compare lab.yaml "$@"
fi
slipway up lab.yaml
out=$(mktemp -d)
trap 'slipway down mpich; rm -r "$out"' EXIT
for run in $(seq "${1:-1}"); do
  slipway run --out "$out/$run" mpich
done
