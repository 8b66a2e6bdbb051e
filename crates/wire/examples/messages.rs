//! Prints `docs/messages.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", husk_wire::page::Page);
}
