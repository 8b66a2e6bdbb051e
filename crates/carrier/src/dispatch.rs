//! `Direct` answers what `husk_proto` declares: each operation becomes a method here.
//!
//! ```text
//!   home elsewhere? ─► far::operations      count it      the handler, or steps
//! ```
//!
//! Nothing is written here by hand for an operation: its declaration says it all
//! (`husk_proto::declare`).

use crate::Direct;

/// The trait of a service, for `Direct`.
macro_rules! dispatch {
    ($(#[$text:meta])+ $trait:ident in $module:ident, $way:ident { $(
        $(#[$doc:meta])+
        $name:ident = $type:tt $(of $home:ident)? {
            $($arg:ident: $kind:ty),* $(,)?
        } -> $answer:ty $(= $default:expr)?,
            by $($path:ident)::+ $(with $extra:ident)? $(without $less:ident)?
            $(naming $dir:ident $($other:ident)?)?;
    )* }) => {
        #[allow(clippy::too_many_arguments)]
        impl husk_proto::$module::$trait for super::Direct {
            $(method! {
                $way $module $name = $type [$($home)?] ($($arg: $kind),*) -> $answer,
                    [$($path)::+ $(with $extra)? $(without $less)? $(naming $dir $($other)?)?]
            })*
        }
    };
}

macro_rules! method {
    (operations $module:ident $name:ident = $type:tt $home:tt ($($arg:ident: $kind:ty),*)
        -> $answer:ty, $by:tt) => {
        #[inline]
        fn $name(&mut self, $($arg: $kind),*) -> $answer {
            home!(self, $module $name $home ($($arg),*));
            count!(self, $type);
            handle!(self, $module $name $by ($($arg),*))
        }
    };
    (looks $module:ident $name:ident = $type:tt $home:tt ($($arg:ident: $kind:ty),*)
        -> $answer:ty, $by:tt) => {
        #[inline(always)]
        fn $name(&self, $($arg: $kind),*) -> $answer {
            home!(self, $module $name $home ($($arg),*));
            count!(self, $type);
            handle!(self, $module $name $by ($($arg),*))
        }
    };
}

/// Answers at the home of an inode, where that is another node.
macro_rules! home {
    ($me:ident, $module:ident $name:ident [] $args:tt) => {};
    ($me:ident, $module:ident $name:ident [$home:ident] ($($arg:ident),*)) => {
        if crate::far::is_far($home) {
            return crate::far::operations::$module::$name($me, $($arg),*);
        }
    };
}

macro_rules! count {
    ($me:ident, -) => {};
    ($me:ident, $type:ident) => {
        $me.kernel.count(husk_proto::Operation::$type);
    };
}

/// The handler's answer.
macro_rules! handle {
    ($me:ident, $module:ident $name:ident [carrier] ($($arg:ident),*)) => {
        crate::steps::$module::$name($me, $($arg),*)
    };
    ($me:ident, $module:ident $name:ident [$($path:ident)::+] ($($arg:ident),*)) => {
        husk_kernel::$($path)::+(&$me.kernel, $($arg),*)
    };
    ($me:ident, $module:ident $name:ident [$($path:ident)::+ with clock] ($($arg:ident),*)) => {
        husk_kernel::$($path)::+(&$me.kernel, $($arg,)* $me.now())
    };
    ($me:ident, $module:ident $name:ident [$($path:ident)::+ without kernel] ($($arg:ident),*)) => {
        husk_kernel::$($path)::+($($arg),*)
    };
    ($me:ident, $module:ident $name:ident [$($path:ident)::+ naming $dir:ident]
        ($($arg:ident),*)) => {
        $me.naming($dir, None, |me| husk_kernel::$($path)::+(&me.kernel, $($arg,)* me.now()))
    };
    ($me:ident, $module:ident $name:ident [$($path:ident)::+ naming $dir:ident $other:ident]
        ($($arg:ident),*)) => {
        $me.naming($dir, Some($other), |me| {
            husk_kernel::$($path)::+(&me.kernel, $($arg,)* me.now())
        })
    };
}

mod fs {
    use husk_proto::fs::*;
    use husk_proto::{Files, Result};
    husk_proto::fs_operations!(dispatch);
}
mod descriptor {
    use husk_proto::descriptor::*;
    use husk_proto::{Inode, Result};
    husk_proto::descriptor_operations!(dispatch);
}
mod flight {
    use husk_proto::flight::*;
    use husk_proto::{Files, Result};
    husk_proto::flight_operations!(dispatch);
}
mod process {
    use husk_proto::process::*;
    use husk_proto::{Inode, Result};
    husk_proto::process_operations!(dispatch);
}
mod lock {
    use husk_proto::lock::*;
    use husk_proto::{Inode, Result};
    husk_proto::lock_operations!(dispatch);
}
mod pipe {
    use husk_proto::fs::Span;
    use husk_proto::pipe::*;
    use husk_proto::{Files, Result};
    husk_proto::pipe_operations!(dispatch);
}
mod epoll {
    use husk_proto::epoll::*;
    use husk_proto::pipe::Pipe;
    use husk_proto::{Files, Result};
    husk_proto::epoll_operations!(dispatch);
}
mod watch {
    use husk_proto::watch::*;
    use husk_proto::{Files, Inode, Result};
    husk_proto::watch_operations!(dispatch);
}
mod image {
    use husk_proto::fs::HostIdentity;
    use husk_proto::image::*;
    husk_proto::image_operations!(dispatch);
}
mod volume {
    use husk_proto::{Inode, Result};
    husk_proto::volume_operations!(dispatch);
}
mod admin {
    use husk_proto::fs::{Imported, Origin, Rights};
    use husk_proto::image::{Cover, Udp};
    use husk_proto::place::Rule;
    use husk_proto::{Inode, Process, Result};
    husk_proto::admin_operations!(dispatch);
}
mod overview {
    use husk_proto::epoll::Sleeper;
    use husk_proto::fs::Origin;
    use husk_proto::place::Placement;
    use husk_proto::volume::{Counter, NAME_BYTES_MAX, Policy, State, TOOK_CLASSES, Unsaved};
    use husk_proto::watch::{Instance, MarkerName};
    use husk_proto::{Inode, Result};
    husk_proto::overview_looks!(dispatch);
}
mod volume_log {
    use husk_proto::volume::{Asked, Counter, Policy, State, Unsaved, Wish};
    use husk_proto::{Inode, Result};
    husk_proto::volume_log_operations!(dispatch);
}
mod shortcuts {
    use husk_proto::descriptor::{Description, Files, Glance};
    use husk_proto::epoll::{Member, Set, Sight};
    use husk_proto::flight::Flight;
    use husk_proto::fs::{HostIdentity, Inode, Piece, Span, Witness};
    use husk_proto::image::{Mount, Rewritten, Udp};
    use husk_proto::pipe::{Addresses, Delays, End, Event, LookOut, Pipe, Posted};
    use husk_proto::watch::Instance;
    use husk_proto::{Process, Result};
    husk_proto::shortcuts!(dispatch);
}
