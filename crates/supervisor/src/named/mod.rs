//! Images with a name: a supervisor in the background, and the commands that ask it.
//!
//! ```text
//!   husk up NAME ──starts──► husk keep NAME (own session) ──starts, again if it is killed──►
//!                            husk tend NAME, the supervisor ── Work: image, copies, deaths
//!                                 │ images/NAME/{lock,socket,facts,log}
//!   husk exec NAME ──Join──►      │  ◄── region and loader, by descriptor; becomes the program
//!   husk ls, ps, kill, fsck ───►  │  Look, Processes, Region
//!   husk cp NAME:PATH TARGET ──► (a `husk exec` that packs, or unpacks)
//!   husk mount NAME DIR ──► (a `husk exec` that answers the host's FUSE)
//!   husk sync NAME ──Sync──►      │  writes back beside all that, answers (`waiting`)
//!   husk down NAME ──Down──►      '── ends programs, writes back, answers, goes
//! ```
//!
//! Folders: `commands` (the side of whoever types), `server` (the supervisor's), `keeper`
//! (processes that hold an image's descriptors), `mount` (`husk mount`).
//!
//! Invariants
//! 1. One supervisor per name: it holds the lock as long as it lives (`place`).
//! 2. Only processes of the same user get an answer, and only through it the region.
//! 3. A program started by `husk exec` is its caller's child and nobody else's: it has the
//!    caller's process group, terminal, descriptors and limits, and signals reach it directly.
//! 4. An image ends only after nobody runs in it, and its changes are written back before its name
//!    is free. From the first change of the host on a mark says that the end has begun, and from
//!    the last on that it is complete, until somebody was told.
//! 5. An image outlives its supervisor: its keeper starts another one, which finds everything in
//!    the region and goes on, also with its end (`keep`). It outlives its keeper: its supervisor
//!    starts another one (`kept`). It outlives both where one of its programs lives (`adopt`).
//! 6. The image of a `husk run` has a guard, which gives it a name if the run is killed (`guard`).
//! 7. Nobody waits for a supervisor that has died: its end of the socket is closed, and its lock
//!    free. Nor for long for one that is stopped: who works gives signs of life (`pulse`).

mod base;
mod commands;
mod keeper;
mod message;
pub mod mount;
mod place;
mod server;

pub(crate) use commands::ask::NOT_TAKEN_OVER;
pub use commands::ask::{Row, down, is_inside, list, region, table};
pub(crate) use commands::ask::{down_part, look, pids as processes_of};
pub use commands::copy::copy;
pub use commands::enter::{enter, enter_at};
pub use commands::offer;
pub use commands::parcel::{pack, unpack};
pub use commands::programs::{Process, kill, process, process_table, processes};
pub use commands::unfinished::{all_unfinished, unfinished};
pub(crate) use commands::up::SELF;
pub use commands::up::up;
pub use commands::waiting::Waiting;
pub use keeper::adopt::adopt;
pub(crate) use keeper::adopt::{goes_on, has_memory};
pub use keeper::guard::guard;
pub(crate) use keeper::guard::{Guard, keeps};
pub use keeper::half::told;
pub use keeper::{attend, keep};
pub use message::{Status, Synced};
pub use place::{Ended, names};
pub(crate) use place::{Name, Place, keeper, log, path};
pub use server::hosting::{add as add_host, remove as remove_host};
pub use server::sync::{foreseen, planned, sync};
pub(crate) use server::sync::{lives, place_of, turn, written};
pub(crate) use server::tend::leave;
pub use server::tend::{resume, tend};
pub(crate) use server::turns::Turn;
