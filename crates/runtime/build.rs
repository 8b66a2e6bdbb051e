//! Links the runtime as a fixed image (`link.ld`): no relocation at start, and a gate table low
//! enough for the 7-byte `call *[table + 8 * number]` that patched sites use.

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.ld");
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("TARGET") != "x86_64-unknown-none" {
        return;
    }
    let script = format!("-T{}/link.ld", variable("CARGO_MANIFEST_DIR"));
    for argument in ["-no-pie", "--no-eh-frame-hdr", "-znorelro", "--build-id=none", &script] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
}
