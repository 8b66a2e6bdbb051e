//! `docs/messages.md`, written from the declarations.

use core::fmt;

use crate::field::{Member, Shape, most};
use crate::messages::{ALL, Declaration};
use crate::version::Version;
use crate::{BODY_BYTES_MAX, Failure, Fault, HEADER_BYTES};

/// The page; `to_string()` it.
#[derive(Clone, Copy, Debug)]
pub struct Page;

const HEAD: &str = "\
# Messages between nodes

Made by `cargo run -q -p husk-wire --example messages` from
[the declarations](../crates/wire/src/messages.rs), not by hand.
";

impl fmt::Display for Page {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        writeln!(f, "{HEAD}")?;
        writeln!(f, "Version {}. A message is a header of {HEADER_BYTES} bytes", Version::CURRENT)?;
        writeln!(f, "([its fields](../crates/wire/src/header.rs)), then the fields in order,")?;
        writeln!(
            f,
            "little-endian, nothing between them, at most {BODY_BYTES_MAX} bytes of them."
        )?;
        writeln!(f, "A newer minor version may add fields at the end, and kinds; another major")?;
        writeln!(f, "version is refused at hello.\n")?;
        writeln!(f, "| Message | Number | Way | Request | Reply | Errors | Retry |")?;
        writeln!(f, "|---|---|---|---|---|---|---|")?;
        ALL.iter().try_for_each(|one| row(f, one))?;
        writeln!(f, "\n## Records\n\n| Record | Fields |\n|---|---|")?;
        records(f)?;
        writeln!(f, "\n## Failures between nodes\n")?;
        Failure::OWN
            .iter()
            .try_for_each(|own| writeln!(f, "- {:#06x} {}", own.0.number(), own.1))?;
        writeln!(f, "\n## Why a message is refused\n")?;
        Fault::ALL.iter().try_for_each(|fault| writeln!(f, "- {fault}"))
    }
}

fn row(f: &mut fmt::Formatter<'_>, one: &Declaration) -> fmt::Result {
    let (name, number, way) = (one.name, one.kind as u16, name_of(one.way as u8, WAYS));
    write!(f, "| **{name}**:{} | {number} | {way} | ", one.text)?;
    body(f, one.request)?;
    f.write_str(" | ")?;
    body(f, one.reply)?;
    f.write_str(" | ")?;
    for (at, error) in one.errors.iter().enumerate() {
        write!(f, "{}{error:?}", if at == 0 { "" } else { " " })?;
    }
    for failure in one.failures {
        let text = Failure::OWN.iter().find(|own| own.0 == *failure).map_or("", |own| own.1);
        write!(f, " {}", text.split(':').next().unwrap_or_default())?;
    }
    writeln!(f, " | {} |", name_of(one.retry as u8, RETRIES))
}

const WAYS: Shape = <crate::Way as crate::Field>::SHAPE;
const RETRIES: Shape = <crate::Retry as crate::Field>::SHAPE;

fn name_of(number: u8, shape: Shape) -> &'static str {
    match shape {
        Shape::Choice(_, names) => names.get(usize::from(number)).copied().unwrap_or_default(),
        _ => "",
    }
}

fn body(f: &mut fmt::Formatter<'_>, members: &[Member]) -> fmt::Result {
    if members.is_empty() {
        return f.write_str("-");
    }
    for (at, member) in members.iter().enumerate() {
        write!(f, "{}{}: ", if at == 0 { "" } else { ", " }, member.name)?;
        shape(f, &member.shape)?;
    }
    write!(f, " (up to {} B)", most(members))
}

fn shape(f: &mut fmt::Formatter<'_>, of: &Shape) -> fmt::Result {
    match of {
        Shape::Number { bytes, signed } => {
            write!(f, "{}{}", if *signed { "i" } else { "u" }, 8 * bytes)
        }
        Shape::Flag => f.write_str("yes or no"),
        Shape::Choice(name, _) | Shape::Flags(name, _) | Shape::Record(name, _) => {
            f.write_str(name)
        }
        Shape::Name => f.write_str("name"),
        Shape::Bytes(most) => write!(f, "bytes (up to {most})"),
        Shape::Maybe(inner) => {
            f.write_str("maybe ")?;
            shape(f, inner)
        }
        Shape::List(most, inner) => {
            write!(f, "up to {most} of ")?;
            shape(f, inner)
        }
    }
}

/// All records and choices that messages name, each once, in the order in which they appear.
fn records(f: &mut fmt::Formatter<'_>) -> fmt::Result {
    let mut named: [&str; NAMED_MAX] = [""; NAMED_MAX];
    let mut count = 0;
    for one in ALL {
        for member in one.request.iter().chain(one.reply) {
            record(f, &member.shape, &mut named, &mut count)?;
        }
    }
    Ok(())
}

const NAMED_MAX: usize = 64;

fn record(
    f: &mut fmt::Formatter<'_>,
    of: &Shape,
    named: &mut [&'static str; NAMED_MAX],
    count: &mut usize,
) -> fmt::Result {
    let (name, members) = match of {
        Shape::Maybe(inner) | Shape::List(_, inner) => return record(f, inner, named, count),
        Shape::Record(name, members) => (*name, *members),
        Shape::Choice(name, _) | Shape::Flags(name, _) => (*name, &[][..]),
        _ => return Ok(()),
    };
    if named.contains(&name) {
        return Ok(());
    }
    *named.get_mut(*count).ok_or(fmt::Error)? = name;
    *count += 1;
    write!(f, "| **{name}** | ")?;
    match of {
        Shape::Choice(_, cases) => alternatives(f, "one of", cases)?,
        Shape::Flags(_, flags) => alternatives(f, "a bit each:", flags)?,
        _ => body(f, members)?,
    }
    writeln!(f, " |")?;
    members.iter().try_for_each(|member| record(f, &member.shape, named, count))
}

fn alternatives(f: &mut fmt::Formatter<'_>, what: &str, names: &[&str]) -> fmt::Result {
    write!(f, "{what} ")?;
    for (at, name) in names.iter().enumerate() {
        write!(f, "{}{name}", if at == 0 { "" } else { ", " })?;
    }
    Ok(())
}
