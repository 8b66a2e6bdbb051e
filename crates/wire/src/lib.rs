//! The messages between nodes, each declared once.
//!
//! ```text
//!   messages! { Walk = 2, "walk", ... }            the one declaration
//!      |-- request::Walk, reply::Walk              encoding and checked decoding (`field`)
//!      |-- Kind::Walk                              names for traces, counters by kind (`counts`)
//!      |-- Handlers::on::<message::Walk>()         dispatch to typed handlers (`handlers`); the
//!      |                                           agent of `node` has a `match` of its own
//!      '-- docs/messages.md                        the page (`page`)
//!
//!   | header, 40 bytes | body: the fields in order, little-endian, nothing between them |
//! ```
//!
//! Invariants
//! 1. Decoding never panics, never reads outside the bytes given, and allocates nothing. What it
//!    accepts is canonical: encoded again it is the same bytes.
//! 2. Nothing in a message is an address. Numbers are judged where they are used, at the home.
//! 3. Every list, name and text has a limit, which its type names; so has every message
//!    (`MESSAGE_BYTES_MAX`).
//! 4. A number that a message once had is never given to another (`RETIRED`).
//! 5. Sequences and request numbers are compared by their difference (serial numbers, RFC 1982);
//!    they begin at 1 in each epoch of a pair.
//! 6. A newer minor version may add fields at the end of a body, and kinds: the former are skipped,
//!    the latter answered with `Failure::Unserved`. Another major version is refused at HELLO.
//!
//! Not here: how messages travel (`husk-link`), retries and the reply cache (the node).
#![no_std]
#![forbid(unsafe_code)]

pub mod counts;
pub mod fault;
pub mod field;
pub mod handlers;
pub mod header;
pub mod messages;
pub mod page;
pub mod record;
pub mod status;
pub mod text;
pub mod version;

pub use counts::Counts;
pub use fault::Fault;
pub use field::{Field, Reader, Shape, Writer};
pub use handlers::{Answer, Dispatched, Handlers, Serve};
pub use header::{HEADER_BYTES, Header, Role};
pub use messages::{KINDS, Kind, Message, Retry, Way, message, reply, request};
pub use status::Failure;
pub use version::Version;

/// The longest body: 400 pages and what is said of them.
pub const BODY_BYTES_MAX: usize = 400 * husk_abi::PAGE + 4096;
/// The longest message.
pub const MESSAGE_BYTES_MAX: usize = HEADER_BYTES + BODY_BYTES_MAX;
/// Nodes of other hosts have numbers from this on.
pub const AFAR: u16 = 0x100;
/// Most nodes of an image; a node's number is below it.
pub const NODES_MAX: u16 = 1024;
