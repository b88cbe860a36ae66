#!/bin/sh
# Makes one small root file system in three forms: a folder, a tar archive, an OCI image layout.
# Needs busybox-static and umoci.
set -eu
cd "$(dirname "$0")"
rm -rf build && mkdir -p build/folder/bin build/folder/etc && cd build

cp /bin/busybox folder/bin/busybox
for name in sh ls cat echo ping hostname; do ln -s busybox "folder/bin/$name"; done
echo 'root:x:0:0:root:/:/bin/sh' > folder/etc/passwd

tar --create --gzip --file archive.tar.gz --directory folder .

umoci init --layout oci
umoci new --image oci:latest
umoci insert --image oci:latest folder /
