//! The errors of system calls.

use linux_raw_sys::errno as e;

/// A Linux error number, positive.
#[derive(Clone, Copy, PartialEq, Eq)]
pub struct Errno(pub i32);

impl Errno {
    /// The value a system call returns for this error.
    pub const fn as_return(self) -> i64 {
        -(self.0 as i64)
    }

    /// Splits a raw return value of the host kernel.
    pub const fn check(raw: i64) -> Result<u64, Errno> {
        if raw < 0 && raw >= -4095 { Err(Errno(-raw as i32)) } else { Ok(raw as u64) }
    }
}

/// What a text says of an error, without the number that Rust puts behind it (`(os error 2)`);
/// `None`: there is no number.
pub fn without_number(text: &str) -> Option<&str> {
    text.find(" (os error").map(|end| &text[..end])
}

macro_rules! errors {
    ($($name:ident)*) => {
        #[allow(missing_docs)]
        impl Errno { $(pub const $name: Errno = Errno(e::$name as i32);)* }

        impl core::fmt::Debug for Errno {
            fn fmt(&self, f: &mut core::fmt::Formatter<'_>) -> core::fmt::Result {
                match *self {
                    $(Errno::$name => f.write_str(stringify!($name)),)*
                    Errno(n) => write!(f, "errno {n}"),
                }
            }
        }
    };
}

errors! {
    EPERM ENOENT ESRCH EINTR EIO ENXIO E2BIG ENOEXEC EBADF ECHILD EAGAIN ENOMEM EACCES EFAULT
    ENOTBLK EBUSY EEXIST EXDEV ENODEV ENOTDIR EISDIR EINVAL ENFILE EMFILE ENOTTY ETXTBSY EFBIG
    ENOSPC ESPIPE EROFS EMLINK EPIPE EDOM ERANGE EDEADLK ENAMETOOLONG ENOLCK ENOSYS ENOTEMPTY
    ELOOP ENODATA EOVERFLOW ENOTSOCK EPROTOTYPE EOPNOTSUPP EADDRINUSE ETOOMANYREFS ETIMEDOUT
    ECONNREFUSED ECONNRESET ECONNABORTED ENOTCONN ESTALE EDQUOT ECANCELED EOWNERDEAD EINPROGRESS
    EHOSTDOWN
}
