//! What Husk shows of a host and of a running image: `husk check`, `explain`, `fsck`, `net ls`,
//! `stat`, `trace`.

pub mod check;
pub mod explain;
pub mod fsck;
pub mod holds;
pub mod metrics;
pub mod rates;
pub mod sockets;
pub mod stat;
pub mod trace;
pub mod waits;
