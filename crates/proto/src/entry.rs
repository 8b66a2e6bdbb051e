//! How a process enters an image with a name: what `husk exec` and the supervisor agree on.
//!
//! One line of JSON each way over the image's socket (`husk-supervisor`, `named::message`). Who
//! asks may be a program without the means to write any JSON but this (`husk-entry`), so letter and
//! answer keep the order of their fields.

/// Who understands whom: the command's version, and that of the messages and the hand-over.
pub const VERSION: &str = concat!(env!("CARGO_PKG_VERSION"), "+4");

/// Least stack that the host must grant who enters an image, and data: what Husk itself takes of
/// both, and some for the program. With less, a limit would end it without a word.
pub const STACK_BYTES_MIN: u64 = 256 << 10;
/// As `STACK_BYTES_MIN`, for data.
pub const DATA_BYTES_MIN: u64 = 32 << 20;
