//! Networks on real namespaces: run as root, with Debian's iproute2, iputils-ping, iperf3 and openvswitch-switch.
//!
//! The anchor and the nodes' inits are left out: the test makes the nodes' namespaces, and does in them what inits do.

mod network {
    mod drivers;
    mod faults;
    mod lab;
    mod large;
}
