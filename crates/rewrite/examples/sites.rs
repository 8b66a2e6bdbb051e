//! Prints the system call sites of a file and what the rewriter makes of each.
//!
//!     cargo run -p husk-rewrite --example sites -- /lib/x86_64-linux-gnu/libc.so.6 [--summary]

use std::collections::BTreeMap;
use std::time::Instant;

use husk_rewrite::{Patched, Verdict, patch};

fn main() {
    let mut arguments = std::env::args().skip(1);
    let Some(path) = arguments.next() else {
        eprintln!("usage: sites FILE [--summary]");
        std::process::exit(2);
    };
    let started = Instant::now();
    let found = std::fs::read(&path)
        .map_err(|error| error.to_string())
        .and_then(|bytes| patch(&bytes).map_err(|refusal| refusal.to_string()));
    match found {
        Err(reason) => {
            eprintln!("{path}: {reason}");
            std::process::exit(1);
        }
        Ok(patched) => {
            if arguments.next().is_none() {
                print_sites(&patched);
            }
            print_summary(&patched);
            println!("{:>6} ms", started.elapsed().as_millis());
        }
    }
}

fn print_sites(patched: &Patched) {
    println!("{:>12} {:>10} {:>6}  verdict", "address", "offset", "number");
    for site in &patched.sites {
        let number = site.number.map_or("?".to_owned(), |number| number.to_string());
        let verdict = describe(site.verdict);
        println!("{:>12x} {:>10x} {number:>6}  {verdict}", site.address, site.offset);
    }
}

fn print_summary(patched: &Patched) {
    let mut counts = BTreeMap::new();
    for site in &patched.sites {
        *counts.entry(describe(site.verdict)).or_insert(0) += 1;
    }
    println!("{:>6} sites", patched.sites.len());
    for (verdict, count) in counts {
        println!("{count:>6} {verdict}");
    }
}

fn describe(verdict: Verdict) -> String {
    match verdict {
        Verdict::Patched(form) => format!("patched: {form:?}"),
        Verdict::Left(reason) => format!("left: {reason}"),
    }
}
