//! Reasons for which a call that went to the host comes back here to be recorded (`passthrough`).

use crate::{After, Answer, Call, Verdict};

/// The result is a descriptor, kept over exec.
pub(crate) const OPENED: u32 = 1;
/// The result is a descriptor, closed on exec.
pub(crate) const OPENED_CLOSE_ON_EXEC: u32 = 2;
/// The result is a descriptor; ask the host whether it is closed on exec.
pub(crate) const ASK: u32 = 3;
/// Two descriptors stand at the address in argument 0.
pub(crate) const PAIR: u32 = 4;
/// Two descriptors stand at the address in argument 3.
pub(crate) const SOCKET_PAIR: u32 = 5;
/// The result is a second number of argument 0.
pub(crate) const DUPLICATE: u32 = 6;
/// The host's working directory changed.
pub(crate) const DIRECTORY: u32 = 7;
/// Credentials may have changed.
pub(crate) const IDENTITY: u32 = 8;
/// The limit of descriptors may have changed.
pub(crate) const LIMIT: u32 = 9;
/// A message with descriptors may have arrived (`struct msghdr` in argument 1).
pub(crate) const MESSAGE: u32 = 10;
/// Several (`struct mmsghdr` array in argument 1), with room for names of as many bytes as argument
/// 5; 0: none is ours.
pub(crate) const MESSAGES: u32 = 11;
/// Close-on-exec of argument 0 becomes argument 2.
pub(crate) const CLOSE_ON_EXEC: u32 = 12;

/// Nothing is to be noted.
pub(crate) const NOTHING: u32 = 13;
/// The result is a connection whose name was asked for in arguments 1 and 2, with room for as many
/// bytes as argument 4.
pub(crate) const ACCEPTED: u32 = 14;
pub(crate) const ACCEPTED_CLOSE_ON_EXEC: u32 = 15;
/// A name was asked for in arguments 4 and 5, with room for as many bytes as argument 1.
pub(crate) const SENDER: u32 = 16;
/// As `MESSAGE`, with room for a name of as many bytes as argument 3.
pub(crate) const NAMED_MESSAGE: u32 = 17;
/// The result is a descriptor that may be another process's.
pub(crate) const STRANGER: u32 = 18;

/// The result is an instance of inotify.
pub(crate) const WATCHER: u32 = 19;
/// The result is the host's watch descriptor, of the instance in argument 0.
pub(crate) const WATCH: u32 = 20;
/// The host has a new name.
pub(crate) const NAMED: u32 = 21;
/// The result is a directory in the directory of argument 0, by a name and no link.
pub(crate) const BELOW: u32 = 22;
pub(crate) const BELOW_CLOSE_ON_EXEC: u32 = 23;

// From here on failures are noted, too.

/// A counted read of a pipe (argument 0: which, 1: bytes before).
pub(crate) const PIPE_READ: u32 = 24;
/// A counted write.
pub(crate) const PIPE_WRITE: u32 = 25;
/// A poll of sockets with rings, woken by a bell (argument 0: the list for the host, the bell last;
/// 4: the program's list; 5: waits that have begun again).
pub(crate) const POLLED: u32 = 26;
/// A read of a socket with a ring, woken by a bell (argument 0: the list for the host, 4: the
/// socket's number, 5: the place of the bell, and the lane).
pub(crate) const READ_SLEPT: u32 = 27;

/// A poll of pipes that are counted as reads in flight; their names fill the arguments.
pub(crate) const WATCHING: u32 = 28;
/// The result is an epoll set.
pub(crate) const EPOLL: u32 = 29;
/// What is left of a `sendfile`, or of a `recv` of all, after as many bytes as argument 4 says.
pub(crate) const REST: u32 = 30;

/// The result is a socket.
pub(crate) const SOCKET: u32 = 31;

/// A connection to a node.
pub(crate) const CONNECTED: u32 = 32;

/// The host has waited in an epoll set with rings (argument 0: its number, 1: where events lie, 2:
/// room, 3: the set, 4: this thread sleeps there).
pub(crate) const MEMBERS_WAITED: u32 = 33;

/// A connection of TCP to an address of this host has begun, or failed.
pub(crate) const TCP_CONNECTED: u32 = 34;
/// A connection to an abstract name.
pub(crate) const CONNECTED_BESIDE: u32 = 38;
/// The result is an eventfd (argument 2: its count, 3: its flags).
pub(crate) const EVENTFD: u32 = 35;
/// The result is a FIFO's descriptor; arguments 4 and 5 name the inode, which is pinned.
pub(crate) const FIFO: u32 = 36;
/// A message with stand-ins (`Client::carried`).
pub(crate) const CARRIED: u32 = 37;

/// The reason for a call whose result is a descriptor.
pub(crate) const fn opened(close_on_exec: bool) -> u32 {
    if close_on_exec { OPENED_CLOSE_ON_EXEC } else { OPENED }
}

/// The same of a directory, of which no link was followed.
pub(crate) const fn opened_below(close_on_exec: bool) -> u32 {
    if close_on_exec { BELOW_CLOSE_ON_EXEC } else { BELOW }
}

/// Passes `call`, to be noted for `reason`.
pub(crate) fn then(call: &Call, reason: u32) -> Answer {
    Ok(Verdict::PassThen(After { number: call.number, args: call.args, reason }))
}
