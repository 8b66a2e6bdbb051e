//! What there is to see of an image.

mod completing;
mod looking;
mod metrics;
mod sockets;
mod top;
mod tracing;
