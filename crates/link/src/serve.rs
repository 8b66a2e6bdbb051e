//! From a link to the typed handlers of a node, and back.

use husk_wire::counts::Count;
use husk_wire::{Counts, Dispatched, Failure, Handlers, Header, Role};

use crate::{Body, Broken, Lane, Link, Unsent};

/// What came of a look at a link.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Served {
    /// There was nothing.
    Nothing,
    /// A request or a posted message was handled, and answered where that was to be done.
    Handled,
    /// A reply was given to `on_reply`.
    Replied,
}

/// Buffers for one message and its answer, of `SLAB_BYTES` at least.
#[derive(Debug)]
pub struct Rooms<'a> {
    /// What comes.
    pub incoming: &'a mut [u8],
    /// What is answered.
    pub outgoing: &'a mut [u8],
}

/// Takes one message from `link`. Requests go to their typed handlers and are answered, replies
/// to `on_reply`; all are counted. What breaks the rules is counted, answered where it can be, and
/// given back: the caller ends the session. A body longer than the room is answered `Busy`.
pub fn serve<C>(
    link: &mut impl Link,
    (handlers, server): (&Handlers<C>, &mut C),
    counts: &Counts,
    rooms: &mut Rooms<'_>,
    on_reply: impl FnOnce(&Header, &[u8]),
) -> Result<Served, Broken> {
    let Some(message) = link.receive(rooms.incoming).inspect_err(|broken| note(counts, broken))?
    else {
        return Ok(Served::Nothing);
    };
    let header = message.header;
    counts.add(header.kind, Count::Received);
    let Body::Here(body) = message.body else {
        link.done();
        return answer(link, counts, &header.answer(Some(Failure::Busy)), &[]);
    };
    if header.role == Role::Reply {
        on_reply(&header, body);
        link.done();
        return Ok(Served::Replied);
    }
    let dispatched = handlers.dispatch(server, &header, body, rooms.outgoing);
    link.done();
    match dispatched {
        Ok(Dispatched::Nothing) => Ok(Served::Handled),
        Ok(Dispatched::Reply(reply)) => {
            let body = rooms.outgoing.get(..reply.length as usize).unwrap_or_default();
            answer(link, counts, &reply, body)
        }
        Err(fault) => {
            note(counts, &fault.into());
            if header.role == Role::Request {
                answer(link, counts, &header.answer(Some(Failure::Protocol)), &[])?;
            }
            Err(fault.into())
        }
    }
}

/// Answers a request that came over `link`. A body for which there is no room now, in a pool whose
/// extents are all lent, is to be asked for again.
fn answer(
    link: &mut impl Link,
    counts: &Counts,
    reply: &Header,
    body: &[u8],
) -> Result<Served, Broken> {
    let mut sent = link.send(Lane::Reply, reply, body).map(|()| reply.status);
    if sent == Err(Unsent::Full) {
        let busy = Header { status: Failure::Busy.number(), ..*reply };
        sent = link.send(Lane::Reply, &busy, &[]).map(|()| busy.status);
    }
    match sent {
        Err(Unsent::Broken(broken)) => return Err(broken),
        Ok(0) => {}
        _ => counts.add(reply.kind, Count::Failed),
    }
    counts.add(reply.kind, Count::Sent);
    Ok(Served::Handled)
}

fn note(counts: &Counts, broken: &Broken) {
    if let Broken::Message(fault) = broken {
        counts.refuse(*fault);
    }
}
