//! Structures for the host's calls on messages and named sockets.

/// Bytes of a unix socket's path, with its NUL.
pub const PATH_BYTES: usize = 108;
/// `AF_UNIX`.
pub const AF_UNIX: u16 = 1;

/// `struct sockaddr_un`.
#[repr(C)]
pub struct UnixAddress {
    /// `AF_UNIX`.
    pub family: u16,
    /// The path; how much of it counts is said beside the address.
    pub path: [u8; PATH_BYTES],
}

impl UnixAddress {
    /// The address of `path`, which may bring its NUL; `None`: it is too long.
    pub fn of(path: &[u8]) -> Option<UnixAddress> {
        let mut address = UnixAddress { family: AF_UNIX, path: [0; PATH_BYTES] };
        address.path.get_mut(..path.len())?.copy_from_slice(path);
        Some(address)
    }
}

/// `struct msghdr`; all that is not named is zero.
#[repr(C)]
#[derive(Clone, Copy, Default)]
pub struct MessageHeader {
    /// Where the other side's address is.
    pub name: usize,
    /// Its bytes.
    pub name_bytes: usize,
    /// Where the buffers are (`struct iovec`: address and bytes).
    pub vectors: usize,
    /// How many they are.
    pub vector_count: usize,
    /// Where control messages are.
    pub control: usize,
    /// Their bytes.
    pub control_bytes: usize,
    /// What the host says of what it received.
    pub flags: usize,
}

const _: () = assert!(size_of::<UnixAddress>() == 110 && size_of::<MessageHeader>() == 56);
