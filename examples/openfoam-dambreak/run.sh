#!/bin/sh
# The dam break of OpenFOAM's tutorials (two-phase flow, interFoam), in parallel over the nodes of lab.yaml.
#
#   examples/openfoam-dambreak/run.sh            one run on the lab as it is
#   examples/openfoam-dambreak/run.sh compare    the same under each driver, side by side; with options of `slipway compare`, those
#
#
# Between machines, as in Gankevich et al. (CSIT 2015), who compared veth pairs at a bridge, macvlan and the machines' own network:
#
#   examples/openfoam-dambreak/run.sh compare --machines a,b --drivers host,bridge,macvlan,fast --jobs job
#
# This folder has to be on a file system that the machines share. Needs `make setup-bench`. The case is left in `case/`, with its results.
set -eu
cd "$(dirname "$0")"
tutorial=/usr/share/doc/openfoam-examples/examples/multiphase/interFoam/RAS/damBreak/damBreak
export WM_PROJECT_DIR=/usr/share/openfoam

rm -rf case && cp -r "$tutorial" case && cd case
cp 0/alpha.water.orig 0/alpha.water
# One part for each of two nodes, side by side.
sed -i 's/^numberOfSubdomains.*/numberOfSubdomains 2;/; s/(2 2 1)/(2 1 1)/' system/decomposeParDict
for step in blockMesh setFields decomposePar; do $step > "log.$step"; done
cd ..

if [ "${1:-}" = compare ]; then
  shift
  [ $# -gt 0 ] || set -- --drivers host,bridge,macvlan,vxlan,fast --repeat 5
  exec slipway compare lab.yaml "$@"
fi
slipway up lab.yaml
trap 'slipway down dambreak' EXIT
slipway run dambreak
