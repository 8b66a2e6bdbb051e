//! What programs ask of the home, as messages, and what they hear.

use std::collections::BTreeMap;

use husk_wire::messages::{decode_reply, encode};
use husk_wire::record::{
    Access, AttributeCall, Attributes, Credentials, Leaves, Object, Run, Settings, Sort, SpaceCall,
    Spot, Wants, What,
};
use husk_wire::text::{Bytes, List, Name};
use husk_wire::{Failure, Header, Message, Retry, Role, message, request};

use crate::CALL_BYTES_MAX;

/// In the place of an offset: at the end of the file.
pub const AT_END: u64 = u64::MAX;
/// Read and write.
pub const BOTH: u32 = 2;
pub const TRUNCATE: u32 = 0o1000;
/// Longest line that tells of a request.
const LINE: usize = 150;
const S_IFREG: u32 = 0o100000;
const S_IFLNK: u32 = 0o120000;

/// A name of one letter.
pub type Letter = u8;

/// One request.
#[derive(Clone, PartialEq, Debug)]
pub enum Ask {
    Walk(Object, Option<Letter>),
    List(Object),
    Above(Object),
    /// Flags where it is to be opened, too.
    Create(Object, Letter, u32, Option<u32>),
    Symlink(Object, Letter, Vec<u8>),
    MakeDirectory(Object, Letter, u32),
    Link(Object, Object, Letter),
    Remove(Object, Letter, What),
    Rename(Object, Letter, Object, Letter, u32),
    SetMode(Object, u32),
    Truncate(Object, u64),
    Open(Object, u32),
    Return(Vec<u64>),
    Read(Object, u64, u32),
    Write(Object, u64, Vec<u8>),
    Punch(Object, u64, u64),
    GetExtended(Object, Letter),
    SetExtended(Object, Letter, Vec<u8>),
    RemoveExtended(Object, Letter),
    /// Nodes that are dead, and the epoch: told by the home's supervisor.
    Dead(Vec<u16>, u32),
}

/// What stat tells, without times.
#[derive(Clone, PartialEq, Debug)]
pub struct Facts {
    pub object: Object,
    pub sort: Sort,
    pub mode: u32,
    pub links: u32,
    pub size: u64,
}

/// An answer.
#[derive(Clone, PartialEq, Debug)]
pub enum Heard {
    Nothing,
    /// Attributes, the target of a link, and the hold where it was opened.
    Facts(Facts, Option<Vec<u8>>, Option<u64>),
    Names(BTreeMap<Vec<u8>, (Object, Sort)>),
    Place(Object, Option<Vec<u8>>),
    Bytes(Vec<u8>),
    Written(Facts, u64, u64),
}

impl Heard {
    /// Of an inode that is known by its number only.
    pub fn made(object: Object) -> Heard {
        let (sort, mode, links, size) = (Sort::File, 0, 0, 0);
        Heard::Facts(Facts { object, sort, mode, links, size }, None, None)
    }
}

/// A message that is built.
struct Draft {
    kind: husk_wire::Kind,
    retry: Retry,
    body: Vec<u8>,
}

fn draft<M: Message>(asked: &M::Request<'_>) -> Draft {
    let mut body = vec![0; CALL_BYTES_MAX];
    let length = encode(asked, &mut body).expect("it fits");
    body.truncate(length);
    Draft { kind: M::KIND, retry: M::RETRY, body }
}

/// Who asks: may everything.
fn caller() -> Credentials<'static> {
    let groups = List::new(&[]).expect("short");
    Credentials { uid: 0, gid: 0, capabilities: u64::MAX, groups }
}

fn text<const MOST: u32>(bytes: &[u8]) -> Bytes<'_, MOST> {
    Bytes::new(bytes).expect("short")
}

fn hold(object: Object) -> u64 {
    u64::from(object.generation) << 32 | object.number
}

fn extended(object: Object, call: AttributeCall, name: Letter, value: &[u8]) -> Draft {
    let name = [b"user.", &[name][..]].concat();
    let (name, value, flags) = (text(&name), text(value), 0);
    draft::<message::Extended>(&request::Extended {
        object,
        call,
        name,
        value,
        flags,
        caller: caller(),
    })
}

impl Ask {
    /// The file whose bytes it changes.
    pub fn changes_bytes(&self) -> Option<Object> {
        match self {
            Ask::Write(object, ..) | Ask::Truncate(object, _) | Ask::Punch(object, ..) => {
                Some(*object)
            }
            Ask::Open(object, flags) if flags & TRUNCATE != 0 => Some(*object),
            _ => None,
        }
    }

    /// In a line.
    pub fn line(&self) -> String {
        let told = format!("{self:?}");
        told.get(..LINE).map_or(told.clone(), |start| format!("{start}..."))
    }

    /// The name of what it makes.
    pub fn made(&self) -> Option<(Object, Letter)> {
        match self {
            Ask::Create(dir, name, ..) | Ask::Symlink(dir, name, _) => Some((*dir, *name)),
            Ask::MakeDirectory(dir, name, _) => Some((*dir, *name)),
            _ => None,
        }
    }

    /// What the sender does that hears nothing.
    pub fn retry(&self) -> Retry {
        self.draft().retry
    }

    /// Its kind.
    pub fn kind(&self) -> husk_wire::Kind {
        self.draft().kind
    }

    /// As a message; the header lacks kind, role and length.
    pub fn message(&self, header: Header) -> Vec<u8> {
        let draft = self.draft();
        let (kind, length) = (draft.kind as u16, draft.body.len() as u32);
        let header = Header { kind, length, role: Role::Request, ..header };
        [&header.encode()[..], &draft.body].concat()
    }

    fn draft(&self) -> Draft {
        match self {
            Ask::Walk(..) | Ask::List(_) | Ask::Above(_) => self.look(),
            Ask::Create(..) | Ask::Symlink(..) | Ask::MakeDirectory(..) | Ask::Link(..) => {
                self.make()
            }
            Ask::Remove(dir, name, what) => {
                let name = [*name];
                let (spot, what) = (spot(*dir, &name), *what);
                draft::<message::Remove>(&request::Remove { spot, what, caller: caller() })
            }
            Ask::Rename(dir, name, to, new, flags) => {
                let (name, new) = ([*name], [*new]);
                let (source, target, flags) = (spot(*dir, &name), spot(*to, &new), *flags);
                let asked = request::Rename { source, target, flags, caller: caller() };
                draft::<message::Rename>(&asked)
            }
            Ask::SetMode(object, mode) => set(*object, Some(*mode), None),
            Ask::Truncate(object, size) => set(*object, None, Some(*size)),
            Ask::GetExtended(object, name) => extended(*object, AttributeCall::Get, *name, b""),
            Ask::SetExtended(object, name, value) => {
                extended(*object, AttributeCall::Set, *name, value)
            }
            Ask::RemoveExtended(object, name) => {
                extended(*object, AttributeCall::Remove, *name, b"")
            }
            Ask::Dead(dead, epoch) => {
                let (members, dead) = (List::new(&[]), List::new(dead));
                let (members, dead) = (members.expect("none"), dead.expect("few"));
                draft::<message::Epoch>(&request::Epoch { epoch: *epoch, members, dead })
            }
            _ => self.bytes(),
        }
    }

    fn look(&self) -> Draft {
        match *self {
            Ask::Walk(directory, name) => {
                let name = name.map(|name| [name]);
                let names: Vec<_> =
                    name.iter().map(|name| Name::new(name).expect("a name")).collect();
                let (names, wants) = (List::new(&names).expect("one"), Wants::TARGET);
                draft::<message::Walk>(&request::Walk { directory, names, wants, caller: caller() })
            }
            Ask::List(directory) => {
                let asked = request::ListNames { directory, cookie: 0, change: 0 };
                draft::<message::ListNames>(&asked)
            }
            Ask::Above(object) => draft::<message::Above>(&request::Above { object }),
            _ => unreachable!("another ask"),
        }
    }

    fn make(&self) -> Draft {
        let create = |spot, mode, target, open: Option<u32>| {
            let (flags, open) = (open.unwrap_or(0), open.map(|_| Access::Both));
            let (device, own, caller) = (0, None, caller());
            let asked = request::Create { spot, mode, device, target, flags, open, own, caller };
            draft::<message::Create>(&asked)
        };
        match self {
            Ask::Create(dir, name, mode, open) => {
                create(spot(*dir, &[*name]), S_IFREG | mode, None, *open)
            }
            Ask::Symlink(dir, name, target) => {
                create(spot(*dir, &[*name]), S_IFLNK | 0o777, Some(text(target)), None)
            }
            Ask::MakeDirectory(dir, name, mode) => {
                let name = [*name];
                let (spot, mode) = (spot(*dir, &name), *mode);
                let asked = request::MakeDirectory { spot, mode, caller: caller() };
                draft::<message::MakeDirectory>(&asked)
            }
            Ask::Link(object, dir, name) => {
                let name = [*name];
                let (object, spot) = (*object, spot(*dir, &name));
                draft::<message::Link>(&request::Link { object, spot, caller: caller() })
            }
            _ => unreachable!("another ask"),
        }
    }

    fn bytes(&self) -> Draft {
        let leaves = Leaves::All;
        match self {
            Ask::Open(object, flags) => {
                let (object, flags, access) = (*object, *flags, Access::Both);
                let asked = request::Open { object, flags, access, leaves, caller: caller() };
                draft::<message::Open>(&asked)
            }
            Ask::Return(grants) => {
                let grants = List::new(grants).expect("few");
                // Of what is open to write to this says nothing.
                let quiet = grants.len() > 1;
                draft::<message::Return>(&request::Return { grants, quiet })
            }
            Ask::Read(object, offset, length) => {
                let (hold, offset, length) = (hold(*object), *offset, *length);
                draft::<message::Read>(&request::Read { hold, offset, length, ahead: 0 })
            }
            Ask::Write(object, offset, bytes) => {
                let run = Run { offset: *offset, data: text(bytes) };
                let (hold, grant, size, modified) = (hold(*object), 0, None, None);
                draft::<message::WriteHome>(&request::WriteHome {
                    hold,
                    grant,
                    run,
                    size,
                    modified,
                    close: false,
                    leaves,
                })
            }
            Ask::Punch(object, offset, length) => {
                let (hold, offset, length) = (hold(*object), *offset, *length);
                let (call, keep_size) = (SpaceCall::Punch, true);
                let asked = request::Space { hold, call, offset, length, keep_size, leaves };
                draft::<message::Space>(&asked)
            }
            _ => unreachable!("another ask"),
        }
    }

    /// What was answered.
    pub fn heard(&self, header: &Header, body: &[u8]) -> Result<Heard, Failure> {
        Ok(match self {
            Ask::Walk(..) => {
                let said = said::<message::Walk>(header, body)?;
                let step = said.steps.iter().next().expect("a step");
                let target = step.target.map(|target| target.bytes().to_vec());
                Heard::Facts(facts(&step.attributes), target, None)
            }
            Ask::List(_) => {
                let said = said::<message::ListNames>(header, body)?;
                let entry = |entry: husk_wire::record::Entry<'_>| {
                    let seen = entry.attributes;
                    (entry.name.bytes().to_vec(), (seen.place.object, seen.sort))
                };
                let names: Vec<_> = said.entries.iter().map(entry).collect();
                let once = names.len();
                let names = BTreeMap::from_iter(names);
                assert_eq!(names.len(), once, "a name twice in one listing");
                Heard::Names(names)
            }
            Ask::Above(_) => {
                let said = said::<message::Above>(header, body)?;
                Heard::Place(said.directory, said.name.map(|name| name.bytes().to_vec()))
            }
            Ask::Create(..) | Ask::Symlink(..) => {
                let said = said::<message::Create>(header, body)?;
                Heard::Facts(facts(&said.attributes), None, said.grant.map(|grant| grant.number))
            }
            Ask::MakeDirectory(..) => {
                let said = said::<message::MakeDirectory>(header, body)?;
                Heard::Facts(facts(&said.attributes), None, None)
            }
            Ask::Link(..) => {
                let said = said::<message::Link>(header, body)?;
                Heard::Facts(facts(&said.attributes), None, None)
            }
            Ask::SetMode(..) | Ask::Truncate(..) => {
                let said = said::<message::SetAttributes>(header, body)?;
                Heard::Facts(facts(&said.attributes), None, None)
            }
            Ask::Open(..) => {
                let said = said::<message::Open>(header, body)?;
                Heard::Facts(facts(&said.attributes), None, said.grant.map(|grant| grant.number))
            }
            Ask::Read(..) => {
                Heard::Bytes(said::<message::Read>(header, body)?.data.bytes().to_vec())
            }
            Ask::Write(..) => {
                let said = said::<message::WriteHome>(header, body)?;
                Heard::Written(facts(&said.attributes), said.offset, said.count)
            }
            Ask::GetExtended(..) => {
                Heard::Bytes(said::<message::Extended>(header, body)?.value.bytes().to_vec())
            }
            Ask::SetExtended(..) | Ask::RemoveExtended(..) => {
                said::<message::Extended>(header, body).map(|_| Heard::Nothing)?
            }
            Ask::Remove(..) => said::<message::Remove>(header, body).map(|_| Heard::Nothing)?,
            Ask::Rename(..) => said::<message::Rename>(header, body).map(|_| Heard::Nothing)?,
            Ask::Return(_) => said::<message::Return>(header, body).map(|_| Heard::Nothing)?,
            Ask::Punch(..) => said::<message::Space>(header, body).map(|_| Heard::Nothing)?,
            Ask::Dead(..) => said::<message::Epoch>(header, body).map(|_| Heard::Nothing)?,
        })
    }
}

fn said<'a, M: Message>(header: &Header, body: &'a [u8]) -> Result<M::Reply<'a>, Failure> {
    decode_reply::<M>(header, body).expect("an answer to what was asked")
}

fn spot(directory: Object, name: &[u8]) -> Spot<'_> {
    Spot { directory, name: Name::new(name).expect("a name") }
}

fn set(object: Object, mode: Option<u32>, size: Option<u64>) -> Draft {
    let (uid, gid, accessed, modified) = (None, None, None, None);
    let settings = Settings { mode, uid, gid, accessed, modified, size };
    let (leaves, caller) = (Leaves::All, caller());
    let asked = request::SetAttributes { object, settings, leaves, caller };
    draft::<message::SetAttributes>(&asked)
}

fn facts(said: &Attributes) -> Facts {
    let (object, sort, mode) = (said.place.object, said.sort, said.mode);
    Facts { object, sort, mode, links: said.links, size: said.size }
}
