//! Prints `docs/protocol.md`.
#![forbid(unsafe_code)]

fn main() {
    print!("{}", husk_proto::page::Page);
}
