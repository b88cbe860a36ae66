#!/bin/sh
# One lid-driven cavity: Reynolds number and cells along an edge. The lid moves with 1 m/s, the edge is 0.1 m long.
set -eu
reynolds=$1 cells=$2
export WM_PROJECT_DIR=/usr/share/openfoam

cp -r /usr/share/doc/openfoam-examples/examples/incompressible/icoFoam/cavity/cavity case
cd case
set_entry() { foamDictionary "$1" -entry "$2" -set "$3" > /dev/null; }
sed -i "s/(20 20 1)/($cells $cells 1)/" system/blockMeshDict
set_entry constant/transportProperties nu "$(awk "BEGIN { print 0.1 / $reynolds }")"
# The flow is steady after 40 passages of the lid. A step is short enough for a Courant number below one.
set_entry system/controlDict endTime 4
set_entry system/controlDict writeInterval 100000
set_entry system/controlDict deltaT "$(awk "BEGIN { print 4 / int(4 / (0.08 / $cells) + 1) }")"
cat >> system/controlDict <<'END'
functions
{
    centre { type probes; libs (sampling); fields (U); interpolationScheme cellPoint; probeLocations ((0.05 0.05 0.005)); }
}
END
blockMesh > log.blockMesh
icoFoam > log.icoFoam
# The last line: the time, and the velocity in m/s as `(x y z)`.
awk 'END { gsub(/[()]/, ""); print "u", $2; print "v", $3 }' postProcessing/centre/0/U
