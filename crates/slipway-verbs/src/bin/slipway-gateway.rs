//! `slipway-gateway ADDRESS`: joins queue pairs of nodes with RDMA peers outside of the lab, by the device with that address. A lab's
//! anchor starts it.
//!
//! It is a program of its own because librdmacm loads the plug-ins of devices, which `slipway` as a static program cannot.

fn main() -> std::process::ExitCode {
    slipway_verbs::gateway::run()
}
