//! What is declared of the operations, and the page that is written from it.
#![forbid(unsafe_code)]

use husk_proto::declare::ALL;
use husk_proto::page::Page;
use std::collections::BTreeSet;

#[test]
fn the_page_is_what_is_declared() {
    let path = concat!(env!("CARGO_MANIFEST_DIR"), "/../../docs/protocol.md");
    let written = std::fs::read_to_string(path).expect("docs/protocol.md");
    let how = "type: cargo run -q -p husk-proto --example protocol > docs/protocol.md";
    assert!(Page.to_string() == written, "docs/protocol.md is not what is declared; {how}");
}

#[test]
fn every_operation_is_declared_once_and_its_home_is_an_argument() {
    let mut names = BTreeSet::new();
    for one in ALL.iter().flat_map(|service| service.operations) {
        assert!(names.insert(one.name), "{} is declared twice", one.name);
        let is_argument = |home: &&str| one.arguments.iter().any(|(name, _)| name == home);
        assert!(one.home.iter().all(is_argument), "{}", one.name);
    }
    assert!(names.len() > 200, "{}", names.len());
}

#[test]
fn a_handler_is_named_as_it_lies_in_the_kernel() {
    let kernel = concat!(env!("CARGO_MANIFEST_DIR"), "/../kernel/src");
    for one in ALL.iter().flat_map(|service| service.operations) {
        let path = one.handler.trim_start_matches("::");
        if path == "carrier" {
            continue;
        }
        let folder = format!("{kernel}/{}", path.split("::").next().unwrap_or_default());
        let there = std::path::Path::new(&folder).is_dir()
            || std::path::Path::new(&format!("{folder}.rs")).is_file();
        assert!(there, "{}: {path}", one.name);
    }
}
