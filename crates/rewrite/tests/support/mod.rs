//! Builds small ELF files with the C compiler that Rust links with, and checks copies.
#![allow(dead_code)] // each test program uses its part

use std::path::{Path, PathBuf};
use std::process::Command;

use husk_rewrite::{Form, GATE_TABLE, Patched, Site, Verdict, patch};
use iced_x86::{Code, Decoder, DecoderOptions, Register};

/// A position-independent shared library.
pub const SHARED: &[&str] = &["-shared", "-nostdlib", "-fPIC"];
/// A program at fixed addresses.
pub const FIXED: &[&str] = &["-static", "-nostdlib", "-no-pie", "-Wl,-e,f"];

/// Compiles `source`, a file with this suffix, with these flags.
pub fn compile(directory: &Path, suffix: &str, source: &str, flags: &[&str]) -> PathBuf {
    let input = directory.join(format!("input.{suffix}"));
    let output = directory.join("output");
    std::fs::write(&input, source).expect("write source");
    let ran = Command::new("cc").arg(&input).arg("-o").arg(&output).args(flags).output();
    let ran = ran.expect("a C compiler: Rust links with it");
    assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
    output
}

/// Assembles `source` and links it.
pub fn assemble(source: &str, flags: &[&str]) -> Vec<u8> {
    let directory = tempfile::tempdir().expect("scratch directory");
    std::fs::read(compile(directory.path(), "s", source, flags)).expect("read output")
}

/// Verdicts of the sites of assembled source, in address order.
pub fn verdicts(source: &str, flags: &[&str]) -> Vec<Verdict> {
    let bytes = assemble(source, flags);
    patch(&bytes).expect("a good file").sites.iter().map(|site| site.verdict).collect()
}

/// A function `f` with unwind information and a size.
pub fn function(body: &str) -> String {
    format!(".globl f\n.type f,@function\nf: .cfi_startproc\n{body}\n.cfi_endproc\n.size f, .-f\n")
}

/// How many sites were patched in a form.
pub fn count(patched: &Patched, form: Form) -> usize {
    patched.sites.iter().filter(|site| site.verdict == Verdict::Patched(form)).count()
}

/// Checks that the copy of `bytes` differs only inside patched sites, each of which is now the
/// intended call.
pub fn check_copy(bytes: &[u8], patched: &Patched) {
    let mut copy = bytes.to_vec();
    patched.apply(&mut copy);
    assert_eq!(copy.len(), bytes.len());
    let mut restored = copy.clone();
    for edit in patched.edits() {
        let range = edit.offset..edit.offset + edit.bytes().len();
        restored[range.clone()].copy_from_slice(&bytes[range]);
    }
    assert!(restored == bytes, "changed outside the patched sites");
    for site in &patched.sites {
        check_site(&copy, bytes, site);
    }
}

fn check_site(copy: &[u8], original: &[u8], site: &Site) {
    assert_eq!(&original[site.offset..site.offset + 2], [0x0f, 0x05]);
    let Verdict::Patched(form) = site.verdict else {
        assert_eq!(&copy[site.offset..site.offset + 2], [0x0f, 0x05]);
        return;
    };
    let entry = match form {
        Form::Numbered | Form::NumberedWide => site.number.expect("a numbered form"),
        Form::Compare4095 => 511,
        Form::Compare4096 => 510,
    };
    let start = site.offset - form.lead_bytes() as usize;
    let bytes = &copy[start..start + form.bytes() as usize];
    let mut decoder = Decoder::new(64, bytes, DecoderOptions::NONE);
    let call = decoder.decode();
    assert_eq!(call.code(), Code::Call_rm64);
    assert_eq!((call.memory_base(), call.memory_index()), (Register::None, Register::None));
    assert_eq!(call.memory_displacement64(), u64::from(GATE_TABLE + 8 * entry));
    for rest in decoder.iter() {
        assert!(matches!(rest.code(), Code::Nopd | Code::Nopw | Code::Nop_rm16), "{rest:?}");
    }
}
