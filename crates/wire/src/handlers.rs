//! From a message to its typed handler and to the bytes of its reply.
//!
//! ```text
//!   impl Serve<message::Walk> for Agent { fn serve(...) }        the handler
//!   Handlers::<Agent>::new().on::<message::Walk>()               registered for its kind
//!   handlers.dispatch(&mut agent, &header, body, &mut room)      decodes, calls, encodes
//! ```
//!
//! Invariant: a handler sees only requests that were decoded completely. Handlers do not block. A
//! handler that answers later returns at once, keeps the header, and answers with `reply`.

use crate::field::{NoRoom, Writer};
use crate::messages::{Message, decode};
use crate::{Failure, Fault, Field, Header, KINDS, Role};

/// What a handler says.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Answer<R> {
    /// This.
    Now(R),
    /// Why not.
    Failed(Failure),
    /// It will be answered later, or is not answered at all (posted).
    Later,
}

/// Serves messages of kind `M`.
pub trait Serve<M: Message> {
    /// Handles one. The reply may borrow from the server and from the request.
    fn serve<'a>(&'a mut self, header: &Header, request: M::Request<'a>) -> Answer<M::Reply<'a>>;
}

/// What came of a message.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Dispatched {
    /// The reply's header; its body is the first `length` bytes of the room.
    Reply(Header),
    /// Nothing is to be sent now.
    Nothing,
}

type Entry<C> = fn(&mut C, &Header, &[u8], &mut [u8]) -> Result<Dispatched, Fault>;

/// A handler for each kind that is served.
#[derive(Debug)]
pub struct Handlers<C> {
    table: [Option<Entry<C>>; KINDS],
}

impl<C> Handlers<C> {
    /// Serves nothing yet.
    pub const fn new() -> Self {
        Self { table: [None; KINDS] }
    }

    /// Serves `M`, too.
    pub const fn on<M: Message>(mut self) -> Self
    where
        C: Serve<M>,
    {
        self.table[M::KIND as usize] = Some(call::<C, M>);
        self
    }

    /// Handles a request or a posted message. Its kind may be one that is not served: that is
    /// answered, not a fault.
    pub fn dispatch(
        &self,
        server: &mut C,
        header: &Header,
        body: &[u8],
        room: &mut [u8],
    ) -> Result<Dispatched, Fault> {
        if header.role == Role::Reply {
            return Err(Fault::Unasked);
        }
        match self.table.get(usize::from(header.kind)).copied().flatten() {
            Some(entry) => entry(server, header, body, room),
            None => Ok(failed(header, Failure::Unserved)),
        }
    }
}

impl<C> Default for Handlers<C> {
    fn default() -> Self {
        Self::new()
    }
}

fn failed(header: &Header, failure: Failure) -> Dispatched {
    match header.role {
        Role::Posted => Dispatched::Nothing,
        _ => Dispatched::Reply(header.answer(Some(failure))),
    }
}

fn call<C: Serve<M>, M: Message>(
    server: &mut C,
    header: &Header,
    body: &[u8],
    room: &mut [u8],
) -> Result<Dispatched, Fault> {
    if (header.role == Role::Posted) != M::RETRY.is_posted() {
        return Err(Fault::Role);
    }
    let request = decode(header, body)?;
    Ok(match server.serve(header, request) {
        Answer::Later => Dispatched::Nothing,
        Answer::Failed(failure) => failed(header, failure),
        Answer::Now(_) if header.role == Role::Posted => Dispatched::Nothing,
        Answer::Now(answer) => match reply::<M>(header, &answer, room) {
            Ok(header) => Dispatched::Reply(header),
            Err(NoRoom) => failed(header, Failure::Busy),
        },
    })
}

/// Encodes the answer to a request into `room`; its header.
pub fn reply<M: Message>(
    header: &Header,
    answer: &M::Reply<'_>,
    room: &mut [u8],
) -> Result<Header, NoRoom> {
    let mut to = Writer::new(room);
    answer.put(&mut to);
    let length = to.finish()? as u32;
    Ok(Header { length, ..header.answer(None) })
}
