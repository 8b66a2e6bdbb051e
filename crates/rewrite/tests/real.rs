//! Real files: what is found in them, that copies are exact, and that damage is survived.

mod support;

use std::path::{Path, PathBuf};
use std::process::Command;
use std::time::{Duration, Instant};

use husk_rewrite::{Form, Reason, Verdict, make_copy, patch};
use support::{check_copy, compile, count};

/// A file this process has mapped.
fn mapped(name: &str) -> Option<PathBuf> {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
    let paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths
        .map(PathBuf::from)
        .find(|path| path.file_name().is_some_and(|file| file.to_string_lossy().starts_with(name)))
}

fn read(path: &Path) -> Vec<u8> {
    std::fs::read(path).unwrap_or_else(|error| panic!("{}: {error}", path.display()))
}

#[test]
fn nearly_all_sites_of_libc_are_patched() {
    let bytes = read(&mapped("libc.so").expect("a C library"));
    let patched = patch(&bytes).expect("libc");
    check_copy(&bytes, &patched);
    let numbered = count(&patched, Form::Numbered);
    let checked = count(&patched, Form::Compare4096) + count(&patched, Form::Compare4095);
    assert!(numbered >= 300, "{numbered}");
    assert!(checked >= 40, "{checked}");
    let share = (numbered + checked) * 100 / patched.sites.len();
    assert!(share >= 90, "{share} %");
}

#[test]
fn the_return_from_signal_handlers_keeps_its_bytes() {
    let bytes = read(&mapped("libc.so").expect("a C library"));
    let patched = patch(&bytes).expect("libc");
    let returns: Vec<_> = patched.sites.iter().filter(|site| site.number == Some(15)).collect();
    assert!(!returns.is_empty());
    assert!(returns.iter().all(|site| site.verdict == Verdict::Left(Reason::Sigreturn)));
}

#[test]
fn most_sites_of_the_loader_are_patched() {
    let bytes = read(&mapped("ld-linux").expect("a dynamic loader"));
    let patched = patch(&bytes).expect("ld.so");
    check_copy(&bytes, &patched);
    let done = patched.edits().count();
    assert!(done * 3 >= patched.sites.len() * 2, "{done} of {}", patched.sites.len());
}

#[test]
fn programs_without_sites_are_left_as_they_are() {
    for path in ["/bin/bash", "/bin/true", "/usr/bin/python3"] {
        if let Ok(bytes) = std::fs::read(path) {
            let patched = patch(&bytes).expect(path);
            assert_eq!((patched.sites.len(), patched.is_changed()), (0, false), "{path}");
        }
    }
}

#[test]
fn this_very_program_is_copied_exactly() {
    let bytes = read(&std::env::current_exe().expect("own path"));
    check_copy(&bytes, &patch(&bytes).expect("own program"));
}

#[test]
fn a_static_c_program_is_patched_with_and_without_symbols() {
    let directory = tempfile::tempdir().expect("scratch directory");
    let source = "#include <stdio.h>\nint main(void) { puts(\"hi\"); }\n";
    let mut sites = Vec::new();
    for flags in [&["-static", "-O1"][..], &["-static", "-O1", "-s"]] {
        let bytes = read(&compile(directory.path(), "c", source, flags));
        let patched = patch(&bytes).expect("static program");
        check_copy(&bytes, &patched);
        let done = patched.edits().count();
        assert!(done * 5 >= patched.sites.len() * 4, "{done} of {}", patched.sites.len());
        sites.push(done);
    }
    assert!(sites[1] * 10 >= sites[0] * 9, "stripping loses few: {sites:?}");
}

const GO_SOURCE: &str = r#"package main
import ("fmt"; "os")
func main() { fmt.Println("hi", os.Getpid()) }
"#;

#[test]
fn a_static_go_program_is_patched_with_and_without_symbols() {
    let directory = tempfile::tempdir().expect("scratch directory");
    let source = directory.path().join("main.go");
    std::fs::write(&source, GO_SOURCE).expect("write source");
    for flags in ["-ldflags=", "-ldflags=-s -w"] {
        let output = directory.path().join("go-program");
        let mut command = Command::new("go");
        command.args(["build", flags, "-o"]).arg(&output).arg(&source);
        command.env("CGO_ENABLED", "0").env("GO111MODULE", "off").env("GOFLAGS", "");
        command.env("GOCACHE", concat!(env!("CARGO_TARGET_TMPDIR"), "/go-cache"));
        let Ok(ran) = command.output() else {
            println!("no Go tool chain here: not tested");
            return;
        };
        assert!(ran.status.success(), "{}", String::from_utf8_lossy(&ran.stderr));
        let bytes = read(&output);
        let patched = patch(&bytes).expect("Go program");
        check_copy(&bytes, &patched);
        assert!(patched.sites.len() < 80, "raw pairs taken for sites: {}", patched.sites.len());
        assert!(count(&patched, Form::Numbered) >= 20);
        let generic = count(&patched, Form::Compare4095) + count(&patched, Form::Compare4096);
        assert!(generic >= 1, "the function that all of package syscall goes through");
    }
}

/// Numbers that look random, the same in every run (xorshift).
struct Numbers(u64);

impl Numbers {
    fn below(&mut self, limit: usize) -> usize {
        self.0 ^= self.0 << 13;
        self.0 ^= self.0 >> 7;
        self.0 ^= self.0 << 17;
        (self.0 % limit as u64) as usize
    }
}

#[test]
fn damaged_files_are_refused_or_patched_but_never_panic() {
    let good = read(&mapped("ld-linux").expect("a dynamic loader"));
    let table = husk_rewrite::cpuid::Table::measure();
    let mut numbers = Numbers(0x2545_f491_4f6c_dd1d);
    let deadline = Instant::now() + Duration::from_secs(4);
    let (mut rounds, mut refused) = (0, 0);
    while Instant::now() < deadline {
        let mut bytes = good.clone();
        damage(&mut bytes, &mut numbers);
        let (len, before) = (bytes.len(), bytes.clone());
        match patch(&bytes) {
            Ok(patched) => check_copy(&before, &patched),
            Err(_) => refused += 1,
        }
        let _ = make_copy(&mut bytes, table.as_ref());
        assert_eq!(bytes.len(), len);
        rounds += 1;
    }
    assert!(rounds > 20 && refused > 0, "{rounds} rounds, {refused} refused");
}

/// Changes a few bytes of one interesting part, or cuts the file off.
fn damage(bytes: &mut Vec<u8>, numbers: &mut Numbers) {
    let sections = u64::from_le_bytes(bytes[40..48].try_into().expect("8 bytes")) as usize;
    let all = bytes.len();
    let parts = [0..64, 64..1024, sections..all, 0x200..0x1000, 0x2d000..0x31000, 0..all];
    match numbers.below(parts.len() + 1) {
        6 => bytes.truncate(numbers.below(all)),
        part => {
            let part = parts[part].clone();
            for _ in 0..=numbers.below(8) {
                let place = part.start + numbers.below(part.len());
                if let Some(byte) = bytes.get_mut(place) {
                    *byte = [0, 1, 0x7f, 0x80, 0xff, numbers.below(256) as u8][numbers.below(6)];
                }
            }
        }
    }
}
