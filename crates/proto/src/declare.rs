//! How operations are declared: once, as `husk_wire` does it for messages between nodes.
//!
//! ```text
//!   operation = Type of ARGUMENT { arguments } -> Answer = default,
//!       by handler with clock;
//!
//!   operations! ─┬─ declare!                     the trait, and its part of `ALL` (this file)
//!                ├─ fs_operations!(dispatch)     the carrier's methods (`husk_carrier::dispatch`)
//!                └─ `page`                       docs/protocol.md
//! ```
//!
//! - `Type` is the `Operation` that it is counted as, `-` if it is not counted.
//! - `of ARGUMENT`: the node that is the home of this inode answers.
//! - The default, if any, is what a carrier says that does not serve the operation.
//! - The handler is a path in `husk_kernel`. It takes the kernel's state, then the arguments, and
//!   `with clock` the time; `without kernel` only the arguments; `naming DIR` between the two marks
//!   of a change of names in that directory. `carrier`: the carrier puts several handlers together
//!   (`husk_carrier::steps`).
//! - `operations` may change something (`&mut self`), `looks` do not (`&self`, `shortcuts`).

use crate::Operation;

/// Operations that belong together.
#[derive(Clone, Copy, Debug)]
pub struct Service {
    /// The path of its module, from which its file follows.
    pub module: &'static str,
    /// The module that declares it.
    pub name: &'static str,
    /// What it is about, as documentation.
    pub text: &'static str,
    /// Its operations, in the order of their declaration.
    pub operations: &'static [Declared],
}

/// Everything that is declared of an operation.
#[derive(Clone, Copy, Debug)]
pub struct Declared {
    /// The method of the trait.
    pub name: &'static str,
    /// What it does, as documentation.
    pub text: &'static str,
    /// What it is counted as.
    pub counted: Option<Operation>,
    /// The argument, if any, whose home answers.
    pub home: &'static [&'static str],
    /// Names and types of the arguments.
    pub arguments: &'static [(&'static str, &'static str)],
    /// The type of the answer.
    pub answer: &'static str,
    /// The path of the handler behind `::`, or `::carrier`.
    pub handler: &'static str,
}

impl Declared {
    /// Whether the client's code runs before it is answered.
    pub fn calls_back(&self) -> bool {
        self.arguments.iter().any(|(_, kind)| kind.contains("FnMut") || kind.contains("FnOnce"))
    }
}

/// All services.
pub const ALL: &[Service] = &[
    crate::fs::DECLARED,
    crate::descriptor::DECLARED,
    crate::flight::DECLARED,
    crate::process::DECLARED,
    crate::lock::DECLARED,
    crate::pipe::DECLARED,
    crate::epoll::DECLARED,
    crate::watch::DECLARED,
    crate::image::DECLARED,
    crate::volume::DECLARED,
    crate::shortcuts::DECLARED,
    crate::admin::DECLARED,
    crate::overview::DECLARED,
    crate::volume_log::DECLARED,
];

/// Declares a service: for this crate by `declare!`, for others as a macro `$export` that hands the
/// declaration to the macro it is given. `($)` is how one macro writes another.
macro_rules! operations {
    (($dollar:tt) $export:ident $($declaration:tt)*) => {
        /// Hands what is declared of a service to the macro of this name.
        #[macro_export]
        macro_rules! $export {
            ($dollar with:ident) => { $dollar with! { $($declaration)* } };
        }

        declare! { $($declaration)* }
    };
}

/// The trait of a service, and what is declared of its operations.
macro_rules! declare {
    ($(#[doc = $text:literal])+ $trait:ident in $module:ident, $way:ident { $(
        $(#[doc = $doc:literal])+
        $name:ident = $type:tt $(of $home:ident)? {
            $($arg:ident: $kind:ty),* $(,)?
        } -> $answer:ty $(= $default:expr)?,
            by $($path:ident)::+ $(with $extra:ident)? $(without $less:ident)?
            $(naming $dir:ident $($other:ident)?)?;
    )* }) => {
        $(#[doc = $text])+
        #[allow(unused_variables, clippy::too_many_arguments)]
        pub trait $trait {
            $(method! {
                $way $(#[doc = $doc])+ $name ($($arg: $kind),*) -> $answer $(= $default)?
            })*
        }

        /// What is declared of this service.
        pub(crate) const DECLARED: $crate::declare::Service = $crate::declare::Service {
            module: module_path!(),
            name: stringify!($module),
            text: concat!($($text),+),
            operations: &[$($crate::declare::Declared {
                name: stringify!($name),
                text: concat!($($doc),+),
                counted: counted!($type),
                home: &[$(stringify!($home))?],
                arguments: &[$((stringify!($arg), stringify!($kind))),*],
                answer: stringify!($answer),
                handler: concat!($("::", stringify!($path)),+),
            }),*],
        };
    };
}

/// One method of the trait.
macro_rules! method {
    (operations $(#[$doc:meta])+ $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty) => {
        $(#[$doc])+
        fn $name(&mut self, $($arg: $kind),*) -> $answer;
    };
    (operations $(#[$doc:meta])+ $name:ident ($($arg:ident: $kind:ty),*)
        -> $answer:ty = $default:expr) => {
        $(#[$doc])+
        fn $name(&mut self, $($arg: $kind),*) -> $answer { $default }
    };
    (looks $(#[$doc:meta])+ $name:ident ($($arg:ident: $kind:ty),*) -> $answer:ty) => {
        $(#[$doc])+
        fn $name(&self, $($arg: $kind),*) -> $answer;
    };
    (looks $(#[$doc:meta])+ $name:ident ($($arg:ident: $kind:ty),*)
        -> $answer:ty = $default:expr) => {
        $(#[$doc])+
        #[inline(always)]
        fn $name(&self, $($arg: $kind),*) -> $answer { $default }
    };
}

/// What an operation is counted as.
macro_rules! counted {
    (-) => {
        None
    };
    ($type:ident) => {
        Some($crate::Operation::$type)
    };
}
