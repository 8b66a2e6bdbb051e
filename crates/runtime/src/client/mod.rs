//! The connection between runtime and client.
//!
//! ```text
//!   gate, process, mapping ─► glue ─► husk_client ─► host (`Memory`, `Host`) ─► memory, Linux
//!                              ├─ children   fork, exec, the end
//!                              ├─ pins       what is mapped of Husk's files
//!                              └─ programs, copies, nodes   what an exec asks
//! ```

pub(crate) mod children;
pub(crate) mod copies;
pub(crate) mod glue;
pub(crate) mod host;
pub(crate) mod nodes;
pub(crate) mod pins;
pub(crate) mod programs;
