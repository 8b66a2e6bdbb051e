//! `docs/protocol.md`, written from the declarations.

use core::fmt::{self, Write};

use crate::declare::{ALL, Declared, Service};
use crate::operation::NAMES;

/// The page; `to_string()` it.
#[derive(Clone, Copy, Debug)]
pub struct Page;

const HEAD: &str = "\
# The protocol

Made by `cargo run -q -p husk-proto --example protocol` from
[the declarations](../crates/proto/src), not by hand.

These are the operations that a client asks of the kernels of its node. They are calls in the
caller's process, so they have no wire format. Each is declared once: the trait that the client
uses, the carrier that calls the handler, the counters of `husk top` and this page follow from the
declaration. A new operation is a declaration and its handler.

Nodes speak a smaller protocol: [messages.md](messages.md).

A handler is a path in [husk_kernel](../crates/kernel/src). The carrier
([its steps](../crates/carrier/src/steps)) answers what takes more than one handler. \"Home\" names
the argument whose home answers where that is another node
([far](../crates/carrier/src/far/operations.rs)). Operations with ↩ call the client back before
they are answered, to copy bytes or to take names: their handler may hold the lock of a file then,
and the client must ask nothing else. `advance` of
[descriptor](../crates/proto/src/services/descriptor.rs) is the only one that asks more: it holds
the offset of a shared description meanwhile.
";

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(HEAD)?;
        ALL.iter().try_for_each(|service| table(f, service))
    }
}

fn table(f: &mut fmt::Formatter<'_>, service: &Service) -> fmt::Result {
    let name = service.name;
    write!(f, "\n## [{name}](../crates/proto/src")?;
    service.module.split("::").skip(1).try_for_each(|part| write!(f, "/{part}"))?;
    writeln!(f, ".rs)\n\n{}\n", service.text.trim())?;
    writeln!(f, "| Operation | Arguments | Answer | Counted as | Home | Handler |")?;
    writeln!(f, "|---|---|---|---|---|---|")?;
    service.operations.iter().try_for_each(|one| row(f, one))
}

fn row(f: &mut fmt::Formatter<'_>, one: &Declared) -> fmt::Result {
    let back = if one.calls_back() { " ↩" } else { "" };
    write!(f, "| **{}**{back}:{} | ", one.name, one.text)?;
    for (at, (name, kind)) in one.arguments.iter().enumerate() {
        let comma = if at == 0 { "" } else { ", " };
        write!(f, "{comma}{name}: `")?;
        tidy(f, kind)?;
        f.write_str("`")?;
    }
    let counted = one.counted.map_or("", |operation| NAMES[operation as usize]);
    let home = one.home.first().copied().unwrap_or_default();
    f.write_str(" | `")?;
    tidy(f, one.answer)?;
    let handler = one.handler.trim_start_matches("::");
    writeln!(f, "` | {counted} | {home} | {handler} |")
}

/// A type without the spaces that the compiler puts into it.
fn tidy(f: &mut fmt::Formatter<'_>, kind: &str) -> fmt::Result {
    let mut before = ' ';
    for (at, c) in kind.char_indices() {
        let next = kind[at + 1..].chars().next().unwrap_or(' ');
        let drops = c == ' ' && (matches!(before, '<' | '&') || matches!(next, '<' | '>'));
        if !drops {
            f.write_char(c)?;
        }
        before = c;
    }
    Ok(())
}
