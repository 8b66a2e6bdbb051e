//! A loader that answers `cpuid` from a table behaves like the one it was made from.

use std::os::unix::fs::PermissionsExt;
use std::path::{Path, PathBuf};
use std::process::Command;

use husk_rewrite::cpuid::{Table, answer_and_call_from, answer_from, is_loader};

fn loader() -> PathBuf {
    let maps = std::fs::read_to_string("/proc/self/maps").expect("own mappings");
    let mut paths = maps.lines().filter_map(|line| line.split_whitespace().nth(5));
    paths.find(|path| path.contains("/ld-linux")).expect("a dynamic loader").into()
}

/// A copy with the table in, and how many of its questions the table answers, in per cent.
fn copy_to(target: &Path, table: &Table) -> usize {
    let mut bytes = std::fs::read(loader()).expect("read loader");
    let cost = answer_from(table, &mut bytes);
    std::fs::write(target, bytes).expect("write copy");
    std::fs::set_permissions(target, PermissionsExt::from_mode(0o755)).expect("chmod");
    cost.answered * 100 / cost.found.max(1)
}

/// What the loader prints, without what changes from start to start.
fn prints(loader: &Path, option: &str) -> String {
    let output = Command::new(loader).arg(option).env_clear().output().expect("start loader");
    assert!(output.status.success(), "{option}: {output:?}");
    let text = String::from_utf8_lossy(&output.stdout).into_owned();
    // auxv has addresses and the path; ebx of leaf 1 names the processor it ran on.
    let varies = |line: &&str| {
        line.starts_with("auxv")
            || line.contains("features[0x0].cpuid[0x1]")
            || line.contains("features[0x0].cpuid.ebx")
    };
    text.lines().filter(|line| !varies(line)).collect::<Vec<_>>().join("\n")
}

#[test]
fn the_copy_tells_the_same_about_the_processor() {
    let Some(table) = Table::measure() else {
        println!("processors of this machine differ: not tested");
        return;
    };
    let directory = tempfile::tempdir().expect("scratch directory");
    let copy = directory.path().join("ld-copy");
    let answered = copy_to(&copy, &table);
    assert!(answered >= 80, "{answered} %");
    for option in ["--list-tunables", "--list-diagnostics"] {
        assert_eq!(prints(&copy, option), prints(&loader(), option));
    }
    let ran = Command::new(&copy).arg("/bin/true").status().expect("start /bin/true");
    assert!(ran.success());
}

#[test]
fn the_answers_come_from_the_table() {
    let Some(table) = Table::measure() else { return };
    let directory = tempfile::tempdir().expect("scratch directory");
    let copy = directory.path().join("ld-copy");
    // A processor without any cache: seen if, and only if, the table is asked.
    copy_to(&copy, &table.with_answer(4, 0, [0; 4]).with_answer(2, 0, [1, 0, 0, 0]));
    let cache = |text: String| {
        let line =
            text.lines().find(|line| line.contains("level1_dcache_size=")).map(str::to_owned);
        line.expect("a line about the first cache")
    };
    let real = cache(prints(&loader(), "--list-diagnostics"));
    let planted = cache(prints(&copy, "--list-diagnostics"));
    let intel =
        std::fs::read_to_string("/proc/cpuinfo").unwrap_or_default().contains("GenuineIntel");
    assert!(!intel || real != planted, "{planted}");
}

#[test]
fn the_answers_hold_on_every_processor() {
    if let Some(table) = Table::measure() {
        assert!(table.holds_everywhere());
        assert_eq!(table.signature(), Table::measure().expect("as before").signature());
        let other = table.with_answer(0, 0, [1, 2, 3, 4]);
        assert_ne!(table.signature(), other.signature());
        assert!(!other.holds_everywhere());
    }
}

/// The calls of a start that no other form fits: two of `openat`, `arch_prctl`, `set_robust_list`.
#[test]
fn the_calls_of_a_start_reach_the_gate_from_the_slack() {
    let Some(table) = Table::measure() else { return };
    let before = std::fs::read(loader()).expect("read loader");
    let (mut answered, mut called) = (before.clone(), before);
    assert_eq!(answer_from(&table, &mut answered).calls, 0);
    let cost = answer_and_call_from(&table, &mut called);
    let gate =
        |number: u32| [&[0xff, 0x14, 0x25][..], &(0x6_0000 + 8 * number).to_le_bytes()].concat();
    let calls = |bytes: &[u8], number: u32| {
        bytes.windows(7).filter(|window| *window == gate(number)).count()
    };
    for (number, least) in [(257, 2), (158, 1), (273, 1)] {
        assert_eq!(calls(&answered, number), 0);
        assert!(calls(&called, number) >= least, "call {number}, {cost:?}");
    }
}

#[test]
fn only_a_loader_is_changed() {
    let Some(table) = Table::measure() else { return };
    assert!(is_loader(&std::fs::read(loader()).expect("read loader")));
    let own = std::env::current_exe().expect("own path");
    let before = std::fs::read(own).expect("read own program");
    let mut after = before.clone();
    assert_eq!(answer_from(&table, &mut after).answered, 0);
    assert!(before == after && !is_loader(&before));
}
