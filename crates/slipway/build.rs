//! Links the command at a fixed address (ADR 0042): at its start, it then has no addresses of its own to correct.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    let features = std::env::var("CARGO_CFG_TARGET_FEATURE").unwrap_or_default();
    if features.split(',').any(|feature| feature == "crt-static") {
        // After the compiler's own `-static-pie`. As `-C relocation-model=static`, which would compile all libraries anew.
        println!("cargo::rustc-link-arg-bins=-static");
        println!("cargo::rustc-link-arg-bins=-no-pie");
    }
}
