//! Links the runtime as a fixed image (`link.ld`): no relocation at start, and a gate table low
//! enough for the 7-byte `call *[table + 8 * number]` that patched sites use; and the narrow way of
//! `husk exec` as bytes for a fixed place (`entry.ld`, `entry.s`).

fn main() {
    println!("cargo::rerun-if-changed=build.rs");
    println!("cargo::rerun-if-changed=link.ld");
    println!("cargo::rerun-if-changed=entry.ld");
    let variable = |name| std::env::var(name).unwrap_or_default();
    if variable("TARGET") != "x86_64-unknown-none" {
        return;
    }
    for argument in ["-no-pie", "--no-eh-frame-hdr", "-znorelro", "--build-id=none"] {
        println!("cargo::rustc-link-arg-bins={argument}");
    }
    let here = variable("CARGO_MANIFEST_DIR");
    for (program, script) in [("husk-rt", "link.ld"), ("husk-entry", "entry.ld")] {
        println!("cargo::rustc-link-arg-bin={program}=-T{here}/{script}");
    }
    println!("cargo::rustc-link-arg-bin=husk-entry=--oformat=binary");
}
