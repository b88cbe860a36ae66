//! `slipway-carrier ADDRESS:PORT`: moves streams between queue pairs of two machines by an RDMA device. A lab's anchor starts it.
//!
//! It is a program of its own because librdmacm loads the plug-ins of devices, which `slipway` as a static program cannot.

fn main() -> std::process::ExitCode {
    slipway_verbs::carrier::run()
}
