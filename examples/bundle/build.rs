//! Has the sources of the examples be modules of one library, which is stripped as users get it.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rustc-check-cfg=cfg(corprof_bundle)");
    println!("cargo::rustc-cfg=corprof_bundle");
    if std::env::var("CARGO_CFG_TARGET_OS").is_ok_and(|system| system == "linux") {
        println!("cargo::rustc-link-arg-examples=-s");
    }
}
