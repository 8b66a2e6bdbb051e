//! Makes a copy of a file the way the store does, and says what was done.
//!
//!     cargo run -p husk-rewrite --example copy -- SOURCE TARGET [--cpuid-only]
//!
//! A copy whose system call sites are patched runs only with the gate; a dynamic loader copied
//! with `--cpuid-only` runs by itself.

use std::os::unix::fs::PermissionsExt;

use husk_rewrite::cpuid::{Table, answer_from};
use husk_rewrite::patch;

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let arguments: Vec<String> = std::env::args().skip(1).collect();
    let [source, target, rest @ ..] = arguments.as_slice() else {
        return Err("usage: copy SOURCE TARGET [--cpuid-only]".into());
    };
    let mut bytes = std::fs::read(source)?;
    let patched = patch(&bytes)?;
    if let Some(table) = Table::measure() {
        let cost = answer_from(&table, &mut bytes);
        println!("cpuid: {cost:?}, {} answers", table.entries().len());
    }
    if rest.is_empty() {
        patched.apply(&mut bytes);
        println!("sites: {} of {}", patched.edits().count(), patched.sites.len());
    }
    std::fs::write(target, bytes)?;
    std::fs::set_permissions(target, PermissionsExt::from_mode(0o755))?;
    Ok(())
}
