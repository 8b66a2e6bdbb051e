//! Messages that no honest node sends, at the dispatch of an agent over a real region: each is
//! refused and counted, nothing is damaged, and the agent goes on.

use std::os::fd::{AsRawFd, OwnedFd};
use std::sync::{Arc, Mutex, MutexGuard, OnceLock, PoisonError};
use std::time::{Duration, Instant};

use husk_carrier::{Direct, Layout, check, scratch_words};
use husk_client::{Buffers, Client};
use husk_proto::fs::{Credentials, Fs as _, Imported, Node};
use husk_proto::image::Cover;
use husk_proto::{Admin as _, Inode, Process};
use husk_wire::field::Member;
use husk_wire::messages::{ALL, Declaration, Visitor, decode_reply, encode, visit_all};
use husk_wire::record::{Access, Object, Spot, Wants, What};
use husk_wire::text::{List, Name};
use husk_wire::{
    Failure, Fault, HEADER_BYTES, Header, Kind, Message, Role, Shape, Version, message, record,
    request,
};

use crate::CALL_BYTES_MAX;
use crate::agent::Agent;
use crate::dispatch::reply_to;
use crate::plain::{Plain, now_ns};
use crate::serve::start;
use crate::sessions::Sessions;

const LAYOUT: Layout = Layout { kernels: 2, memory_bytes: 64 << 20 };
/// Random messages of a run.
const MESSAGES: u32 = 2_000;

fn everything() -> Credentials<'static> {
    Credentials { uid: 0, gid: 0, groups: &[], capabilities: u64::MAX, within: None }
}

/// The one region of this process, and its root: one test at a time.
fn region() -> (MutexGuard<'static, ()>, Inode, Process) {
    static TURN: Mutex<()> = Mutex::new(());
    static MADE: OnceLock<(Inode, Process, OwnedFd)> = OnceLock::new();
    let turn = TURN.lock().unwrap_or_else(PoisonError::into_inner);
    let (root, process, _) = MADE.get_or_init(|| {
        let flags = rustix::fs::MemfdFlags::CLOEXEC;
        let memory = rustix::fs::memfd_create("husk-test", flags).expect("memory");
        rustix::fs::ftruncate(&memory, LAYOUT.total_bytes()).expect("room");
        husk_carrier::map_region(memory.as_raw_fd() as u32, LAYOUT).expect("mapped");
        husk_carrier::format(LAYOUT, 77, b"/tmp/copies").expect("formatted");
        let mut boss = attach(Process(0));
        let root = boss
            .add_mount(b"/tmp/mount", Cover::Memory, &Imported::top(b"/tmp/mount", 0o755))
            .expect("mounted");
        let process = boss.first_process(std::process::id(), &[]).expect("record");
        boss.detach();
        (root, process, memory)
    });
    (turn, *root, *process)
}

fn attach(process: Process) -> Direct {
    let tid = rustix::thread::gettid().as_raw_nonzero().get() as u32;
    Direct::attach(now_ns, process, std::process::id(), tid).expect("attached")
}

/// An agent, and what answers.
struct Desk {
    agent: Agent,
    root: Inode,
    room: Vec<u8>,
    _turn: MutexGuard<'static, ()>,
}

impl Desk {
    fn new() -> Desk {
        let (turn, root, process) = region();
        let buffers = Box::leak(Box::new(Buffers::new()));
        let client = Client::new(attach(process), Plain, Plain, buffers);
        let agent = Agent::new(client, Arc::new(Sessions::begin(|_| {})));
        Desk { agent, root, room: vec![0; CALL_BYTES_MAX], _turn: turn }
    }

    /// What is answered to these bytes.
    fn raw(&mut self, message: &[u8], is_supervisor: bool) -> Option<(Header, Vec<u8>)> {
        let length = reply_to(&mut self.agent, message, || is_supervisor, &mut self.room)?;
        let (header, body) = Header::split(&self.room[..length]).expect("an answer is sound");
        Some((header, body.to_vec()))
    }

    fn asked<M: Message>(&mut self, node: u16, asked: &M::Request<'_>) -> Result<(), Failure> {
        let whole = whole::<M>(node, 0, asked);
        let (header, body) = self.raw(&whole, false).expect("an answer");
        decode_reply::<M>(&header, &body).expect("of this kind").map(drop)
    }

    /// How many files are open for other nodes.
    fn holds(&mut self) -> usize {
        let mut count = 0;
        self.agent.direct().each_hold(&mut |_, _| count += 1);
        count
    }

    /// An honest request is answered.
    fn goes_on(&mut self) {
        let asked = walk(self.root, &[]);
        self.asked::<message::Walk>(1, &asked).expect("answered");
    }

    fn refused(&self, fault: Fault) -> u64 {
        self.agent.sessions.refused(fault)
    }
}

impl Drop for Desk {
    fn drop(&mut self) {
        let direct = self.agent.direct();
        direct.end_holds(|_, _| true);
        direct.detach();
    }
}

fn object(inode: Inode) -> Object {
    Object { number: inode.number.into(), generation: inode.generation }
}

fn nobody() -> record::Credentials<'static> {
    let groups = List::new(&[]).expect("short");
    record::Credentials { uid: 0, gid: 0, capabilities: u64::MAX, groups }
}

fn walk<'a>(directory: Inode, names: &'a [Name<'a>]) -> request::Walk<'a> {
    let names = List::new(names).expect("few");
    request::Walk { directory: object(directory), names, wants: Wants::default(), caller: nobody() }
}

/// A whole request.
fn whole<M: Message>(node: u16, epoch: u32, asked: &M::Request<'_>) -> Vec<u8> {
    let mut body = vec![0; CALL_BYTES_MAX];
    let length = encode(asked, &mut body).expect("it fits");
    let header = Header::new(M::KIND, Role::Request);
    let header = Header { source: node, epoch, request: 1, length: length as u32, ..header };
    [&header.encode()[..], &body[..length]].concat()
}

#[test]
fn each_way_to_break_the_rules_is_counted_by_its_fault_and_the_agent_goes_on() {
    let mut desk = Desk::new();
    let good = whole::<message::Walk>(1, 0, &walk(desk.root, &[]));
    let head = Header::decode(good.first_chunk().expect("a header")).expect("sound");
    let with = |header: Header, body: &[u8]| {
        let length = body.len() as u32;
        [&Header { length, ..header }.encode()[..], body].concat()
    };
    let changed = |at: usize, to: u8| {
        let mut bytes = good.clone();
        bytes[at] = to;
        bytes
    };
    let body = &good[HEADER_BYTES..];
    let name_at = HEADER_BYTES + 8 + 4;
    let longer = [&good[..], b"x"].concat();
    let reply = Header { role: Role::Reply, ..head };
    let posted = Header { role: Role::Posted, request: 0, ..head };
    let cases = [
        (good[..17].to_vec(), Fault::Short, None),
        (Vec::new(), Fault::Short, None),
        (with(head, &body[..body.len() - 1]), Fault::Short, Some(Failure::Protocol)),
        (with(head, &[body, b"x"].concat()), Fault::Long, Some(Failure::Protocol)),
        (changed(0, b'h'), Fault::Magic, None),
        (changed(2, 9), Fault::Major, None),
        (longer, Fault::Length, Some(Failure::Protocol)),
        (changed(12, 7), Fault::Role, None),
        (changed(13, 2), Fault::Spare, None),
        (changed(9, 0xff), Fault::Node, None),
        (changed(6, 5), Fault::Status, None),
        // A count of names, of which the first is empty; and one that no list may have.
        (
            with(head, &[&body[..name_at - HEADER_BYTES], &[1, 0, 0]].concat()),
            Fault::Name,
            Some(Failure::Protocol),
        ),
        (changed(name_at + 1, 0xff), Fault::Count, Some(Failure::Protocol)),
        (with(reply, body), Fault::Unasked, None),
        (with(posted, body), Fault::Role, None),
    ];
    for (n, (bytes, fault, answer)) in cases.into_iter().enumerate() {
        let before = desk.refused(fault);
        let answered = desk.raw(&bytes, false);
        assert_eq!(desk.refused(fault), before + 1, "case {n}: {fault}, {answered:?}");
        let status = answered.map(|(header, _)| Failure::of(header.status));
        assert_eq!(status, answer.map(Some), "case {n}");
        desk.goes_on();
    }
    // A newer minor version may have more fields and kinds.
    let newer = Version { minor: 200, ..Version::CURRENT };
    let more = with(Header { version: newer, ..head }, &[body, b"more"].concat());
    assert_eq!(desk.raw(&more, false).expect("answered").0.status, 0);
    let kind = with(Header { kind: 9999, ..head }, body);
    let status = desk.raw(&kind, false).expect("answered").0.status;
    assert_eq!(Failure::of(status), Some(Failure::Unserved));
}

#[test]
fn what_a_node_holds_is_its_own_and_falls_with_it_and_what_it_asks_when_dead_is_fenced() {
    let mut desk = Desk::new();
    let before = desk.agent.direct().usage();
    let spot = Spot { directory: object(desk.root), name: Name::new(b"gone").expect("a name") };
    let create = request::Create {
        spot,
        mode: 0o100644,
        device: 0,
        target: None,
        flags: 2,
        open: Some(Access::Both),
        own: None,
        caller: nobody(),
    };
    let made = whole::<message::Create>(1, 0, &create);
    let (header, body) = desk.raw(&made, false).expect("an answer");
    let made = decode_reply::<message::Create>(&header, &body).expect("sound").expect("made");
    let hold = made.grant.expect("it is open").number;
    let remove = request::Remove { spot, what: What::File, caller: nobody() };
    desk.asked::<message::Remove>(1, &remove).expect("removed");
    let grants = [hold];
    let back = request::Return { grants: List::new(&grants).expect("one"), quiet: false };
    desk.asked::<message::Return>(2, &back).expect("harmless");
    assert_eq!(desk.holds(), 1, "another node does not give it back");
    let (none, dead) = ([], [1]);
    let members = List::new(&none).expect("none");
    let death = request::Epoch { epoch: 1, members, dead: List::new(&dead).expect("one") };
    let told = whole::<message::Epoch>(2, 0, &death);
    let status = desk.raw(&told, false).expect("an answer").0.status;
    assert_eq!(Failure::of(status), Some(Failure::Protocol), "not who has started the agent");
    assert_eq!(desk.holds(), 1);
    assert_eq!(desk.raw(&told, true).expect("an answer").0.status, 0);
    assert_eq!(desk.holds(), 0);
    assert_eq!(desk.agent.direct().usage().inodes_free, before.inodes_free, "its file is gone");
    let asked = walk(desk.root, &[]);
    assert_eq!(desk.asked::<message::Walk>(1, &asked), Err(Failure::Fenced));
    assert_eq!(desk.agent.sessions.fenced(), 1);
    desk.asked::<message::Walk>(2, &asked).expect("another node");
}

/// A socket that agents listen to.
fn listening(path: &std::path::Path) -> OwnedFd {
    use rustix::net::{AddressFamily, SocketAddrUnix, SocketFlags, SocketType};
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(path).expect("a short path");
    rustix::net::bind(&socket, &address).expect("a new name");
    rustix::net::listen(&socket, 1024).expect("it listens");
    socket
}

/// A connection to an agent on which this has been sent.
fn connected(path: &std::path::Path, message: &[u8]) -> OwnedFd {
    use rustix::net::{AddressFamily, SendFlags, SocketAddrUnix, SocketFlags, SocketType};
    let (family, kind) = (AddressFamily::UNIX, SocketType::SEQPACKET);
    let socket = rustix::net::socket_with(family, kind, SocketFlags::CLOEXEC, None);
    let socket = socket.expect("a socket");
    let address = SocketAddrUnix::new(path).expect("a short path");
    rustix::net::connect(&socket, &address).expect("it listens");
    if !message.is_empty() {
        rustix::net::send(&socket, message, SendFlags::NOSIGNAL).expect("sent");
    }
    socket
}

#[test]
fn peers_that_send_nothing_or_garbage_or_read_nothing_hold_up_nobody() {
    let (turn, root, process) = region();
    let path = std::env::temp_dir().join(format!("husk-node-{}", std::process::id()));
    let socket = listening(&path);
    let sessions = Arc::new(Sessions::begin(|_| {}));
    // They end with the process.
    let _threads = start(socket, sessions.clone(), process, None, None);
    let good = whole::<message::Walk>(1, 0, &walk(root, &[]));
    let mut kept = Vec::new();
    for _ in 0..150 {
        kept.push(connected(&path, &[]));
        kept.push(connected(&path, &good));
        kept.push(connected(&path, &good[1..]));
    }
    let mut room = vec![0; CALL_BYTES_MAX];
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(path.as_os_str());
    for _ in 0..20 {
        // In less than those who are silent may take together.
        let length = husk_link::call(bytes, [&good, &[]], &mut room, 30).expect("answered");
        let (header, _) = Header::split(&room[..length]).expect("sound");
        assert_eq!(header.status, 0);
    }
    let end = Instant::now() + Duration::from_secs(60);
    while sessions.refused(Fault::Magic) < 150 {
        assert!(Instant::now() < end, "{} refused", sessions.refused(Fault::Magic));
        std::thread::yield_now();
    }
    drop((kept, turn));
    let _ = std::fs::remove_file(&path);
}

#[test]
fn what_was_opened_for_a_process_that_has_gone_before_its_answer_is_let_go_of() {
    let (turn, root, process) = region();
    let path = std::env::temp_dir().join(format!("husk-node-gone-{}", std::process::id()));
    let socket = listening(&path);
    let spot = Spot { directory: object(root), name: Name::new(b"left").expect("a name") };
    let (mode, open, caller) = (0o100644, Some(Access::Both), nobody());
    let (device, target, flags, own) = (0, None, 2, None);
    let create = request::Create { spot, mode, device, target, flags, open, own, caller };
    // It is killed: its connection waits in the queue, and nobody is at the other end.
    drop(connected(&path, &whole::<message::Create>(3, 0, &create)));
    let mut direct = attach(process);
    let free = direct.usage().inodes_free;
    // They end with the process.
    let _threads = start(socket, Arc::new(Sessions::begin(|_| {})), process, None, None);
    let names = [spot.name];
    let (seen, bytes) = (whole::<message::Walk>(1, 0, &walk(root, &names)), path.as_os_str());
    let bytes = std::os::unix::ffi::OsStrExt::as_bytes(bytes);
    let (end, mut room) = (Instant::now() + Duration::from_secs(60), vec![0; CALL_BYTES_MAX]);
    let mut is_there = || {
        let length = husk_link::call(bytes, [&seen, &[]], &mut room, 30).expect("answered");
        Header::split(&room[..length]).expect("sound").0.status == 0
    };
    while !is_there() {
        assert!(Instant::now() < end, "it is not made");
        std::thread::yield_now();
    }
    direct.unlink(&everything(), root, spot.name.bytes()).expect("it is there");
    while direct.usage().inodes_free != free {
        assert!(Instant::now() < end, "it is still open");
        std::thread::yield_now();
    }
    direct.detach();
    drop(turn);
    let _ = std::fs::remove_file(&path);
}

/// Numbers of one row, by a seed.
struct Dice {
    state: u64,
    inodes: Vec<Inode>,
}

impl Dice {
    fn below(&mut self, bound: u64) -> u64 {
        self.state = self.state.wrapping_mul(6364136223846793005).wrapping_add(1442695040888963407);
        (self.state >> 33) % bound
    }

    /// A number: small, at an edge, or any.
    fn number(&mut self, bytes: u8) -> u64 {
        let edge = 1u64 << (self.below(8 * u64::from(bytes)));
        match self.below(6) {
            0 => 0,
            1 => self.below(8),
            2 => edge,
            3 => edge.wrapping_sub(1),
            4 => u64::MAX - self.below(3),
            _ => self.below(1 << 20) << self.below(44),
        }
    }

    fn body(&mut self, members: &[Member], out: &mut Vec<u8>) {
        for member in members {
            let which = self.below(self.inodes.len() as u64) as usize;
            let inode = self.inodes[which];
            match (member.name, &member.shape) {
                // In the place of a hold an inode is meant, mostly.
                ("hold", Shape::Number { bytes: 8, .. }) if self.below(4) > 0 => {
                    let hold = u64::from(inode.generation) << 32 | u64::from(inode.number);
                    out.extend(hold.to_le_bytes());
                }
                (_, Shape::Record("Object", _)) if self.below(4) > 0 => {
                    let mut room = [0; 64];
                    let length = encode(&object(inode), &mut room).expect("short");
                    out.extend(&room[..length]);
                }
                (_, shape) => self.field(shape, out),
            }
        }
    }

    fn field(&mut self, shape: &Shape, out: &mut Vec<u8>) {
        match *shape {
            Shape::Number { bytes, .. } => {
                let number = self.number(bytes).to_le_bytes();
                out.extend(&number[..bytes.into()]);
            }
            Shape::Flag => out.push(self.below(2) as u8),
            Shape::Choice(_, cases) => out.push(self.below(cases.len() as u64) as u8),
            Shape::Flags(_, flags) => out.push(self.below(1 << flags.len()) as u8),
            Shape::Name => {
                let long = self.below(20) == 0;
                let length = if long { 255 } else { 1 + self.below(2) };
                out.push(length as u8);
                out.extend((0..length).map(|_| b'a' + self.below(4) as u8));
            }
            Shape::Bytes(most) => {
                let length = self.below(300).min(most.into()) as u32;
                out.extend(length.to_le_bytes());
                out.extend((0..length).map(|_| self.below(256) as u8));
            }
            Shape::Maybe(inner) => {
                let there = self.below(2);
                out.push(there as u8);
                (0..there).for_each(|_| self.field(inner, out));
            }
            Shape::List(most, inner) => {
                let count = self.below(4).min(most.into()) as u16;
                out.extend(count.to_le_bytes());
                (0..count).for_each(|_| self.field(inner, out));
            }
            Shape::Record(_, members) => self.body(members, out),
        }
    }
}

/// Checks that an answer is one to its kind.
struct Sound<'a>(u16, &'a Header, &'a [u8]);

impl Visitor for Sound<'_> {
    fn visit<M: Message>(&mut self) {
        if M::KIND as u16 == self.0 {
            let answer = decode_reply::<M>(self.1, self.2);
            assert!(answer.is_ok(), "{:?}: {:?}", M::KIND, answer.err());
        }
    }
}

fn inodes(desk: &mut Desk) -> Vec<Inode> {
    let (who, root) = (everything(), desk.root);
    let direct = desk.agent.direct();
    let mut found = vec![root];
    for (name, node) in [
        (&b"file"[..], Node::File(0o644)),
        (b"dir", Node::Directory(0o755)),
        (b"link", Node::Symlink(b"file")),
        (b"other", Node::File(0o600)),
    ] {
        found.push(direct.create(&who, root, name, node).expect("made"));
    }
    direct.write_at(found[1], 0, &[7; 5000]).expect("written");
    found
}

#[test]
fn a_lock_whose_answer_nobody_takes_goes_and_what_its_table_had_before_stays() {
    let mut desk = Desk::new();
    let (who, root) = (everything(), desk.root);
    let made = desk.agent.direct().create(&who, root, b"locked", Node::File(0o644));
    let file = made.expect("made");
    let object = Object { number: file.number.into(), generation: file.generation };
    let mut is_granted = |node: u16, owner, start, is_heard: bool| {
        let (mode, by) = (record::LockMode::Exclusive, record::LockBy::Process);
        let range = record::Range { start, length: 10 };
        let asked = request::Lock { object, owner, range, mode, waits: false, by };
        let whole = whole::<message::Lock>(node, 0, &asked);
        let (header, body) = desk.raw(&whole, false).expect("an answer");
        if !is_heard {
            desk.agent.was_not_heard();
        }
        decode_reply::<message::Lock>(&header, &body).expect("a lock").expect("said").is_granted
    };
    assert!(is_granted(1, 7, 0, false) && is_granted(2, 7, 0, true), "nobody had it");
    assert!(is_granted(1, 8, 20, true) && is_granted(1, 8, 25, false));
    assert!(!is_granted(2, 8, 20, true), "it was there before");
}

#[test]
fn a_number_of_another_node_is_gone_at_home_and_nobody_is_asked_for_it() {
    let mut desk = Desk::new();
    let asked = request::HostFile { origin: u32::MAX };
    // Who asked for it would wait for an agent that is not there, and say EIO.
    let found = desk.asked::<message::HostFile>(1, &asked);
    assert_eq!(found, Err(Failure::Gone));
    desk.goes_on();
}

#[test]
fn a_number_that_no_inode_has_had_is_gone_and_nothing_is_written_there() {
    let mut desk = Desk::new();
    let who = nobody();
    // Within the table, the first place of which is nobody's, and behind it.
    for number in [0, 3000, (1 << 31) - 1] {
        let object = Object { number, generation: 0 };
        let settings = record::Settings { mode: Some(0o777), ..settings() };
        let leaves = record::Leaves::All;
        let asked = request::SetAttributes { object, settings, leaves, caller: who };
        let set = desk.asked::<message::SetAttributes>(1, &asked);
        assert_eq!(set, Err(Failure::Gone), "{number}");
        let hold = number;
        let asked = request::Read { hold, offset: 0, length: 1, ahead: 0 };
        assert_eq!(desk.asked::<message::Read>(1, &asked), Err(Failure::Gone), "{number}");
    }
    desk.goes_on();
}

fn settings() -> record::Settings {
    let (mode, uid, gid) = (None, None, None);
    record::Settings { mode, uid, gid, accessed: None, modified: None, size: None }
}

#[test]
fn random_messages_of_every_kind_leave_a_sound_region() {
    let mut desk = Desk::new();
    let mut dice = Dice { state: 24, inodes: inodes(&mut desk) };
    let kinds: Vec<&Declaration> = ALL.iter().collect();
    for n in 0..MESSAGES {
        let one = kinds[dice.below(kinds.len() as u64) as usize];
        let mut body = Vec::new();
        dice.body(one.request, &mut body);
        if dice.below(8) == 0 && !body.is_empty() {
            let at = dice.below(body.len() as u64) as usize;
            body[at] = dice.below(256) as u8;
        }
        let source = dice.below(3) as u16 + if dice.below(8) == 0 { crate::AFAR } else { 0 };
        let header = Header { source, request: 1 + n, ..Header::new(one.kind, Role::Request) };
        let length = body.len() as u32;
        let bytes = [&Header { length, ..header }.encode()[..], &body].concat();
        let is_supervisor = dice.below(50) == 0 && one.kind != Kind::Epoch;
        let (header, answer) = desk.raw(&bytes, is_supervisor).expect("each is answered");
        visit_all(&mut Sound(one.kind as u16, &header, &answer));
    }
    desk.goes_on();
    let mut found = Vec::new();
    let kernel = desk.agent.direct().kernel();
    let mut scratch = vec![0; scratch_words(kernel)];
    check(kernel, &mut scratch, &mut |finding| found.push(format!("{finding:?}")));
    assert_eq!(found, [""; 0]);
}

/// A request to make directory `name` in the root, under a number.
fn makes(desk: &mut Desk, name: &str, request: u32, again: bool) -> Result<(), Failure> {
    let spot =
        Spot { directory: object(desk.root), name: Name::new(name.as_bytes()).expect("a name") };
    let asked = request::MakeDirectory { spot, mode: 0o755, caller: nobody() };
    let bytes = whole::<message::MakeDirectory>(9, 0, &asked);
    let (header, body) = Header::split(&bytes).expect("sound");
    let bytes = [&Header { request, again, ..header }.encode()[..], body].concat();
    let (header, body) = desk.raw(&bytes, false).expect("an answer");
    decode_reply::<message::MakeDirectory>(&header, &body).expect("of this kind").map(drop)
}

/// Requests that share a set of the reply cache, which has room for 8.
fn sharing(count: u32) -> impl Iterator<Item = u32> {
    (0..count).map(|n| 7 + 32 * n)
}

#[test]
fn a_change_whose_record_had_to_go_unheard_is_not_made_again_and_those_that_were_heard_go_first() {
    let mut desk = Desk::new();
    let exists = Err(Failure::Errno(husk_proto::Errno::EEXIST));
    let name = |n: u32| format!("of-{n}");
    for n in sharing(8) {
        makes(&mut desk, &name(n), n, false).expect("made");
        if n == 7 + 32 {
            desk.agent.was_heard();
        }
    }
    assert_eq!(makes(&mut desk, &name(7), 8, true), exists, "another number is another request");
    // The one that was heard goes.
    makes(&mut desk, "ninth", 7 + 32 * 8, false).expect("made");
    for n in sharing(8).filter(|n| *n != 7 + 32) {
        assert_eq!(makes(&mut desk, &name(n), n, true), Ok(()), "{n} is answered as it was");
    }
    assert_eq!(makes(&mut desk, &name(7 + 32), 7 + 32, true), exists);
    // All others are unheard; the oldest goes, and nobody knows any more.
    makes(&mut desk, "tenth", 7 + 32 * 9, false).expect("made");
    let unknown = Err(Failure::Errno(husk_proto::Errno::EIO));
    assert_eq!(makes(&mut desk, &name(7), 7, true), unknown);
    assert_eq!(makes(&mut desk, "never", 6, true), unknown, "asked before that one");
    makes(&mut desk, "never", 7 + 32 * 10, true).expect("asked after it, and never done");
    assert_eq!(makes(&mut desk, &name(103), 103, true), Ok(()));
    // The node is dead.
    desk.agent.direct().forget_answers(9, 1).expect("forgotten");
    assert_eq!(makes(&mut desk, &name(103), 103, true), exists);
    assert_eq!(makes(&mut desk, &name(7), 7, true), exists, "its next life begins anew");
}

#[test]
fn a_directory_of_the_longest_names_is_listed_in_pages_that_fit() {
    const NAMES: usize = 300;
    let mut desk = Desk::new();
    makes(&mut desk, "long", 900, false).expect("made");
    let root = desk.root;
    let dir = desk.agent.direct().lookup(root, b"long").expect("it is there").inode;
    for n in 0..NAMES {
        let name = format!("{n:0255}");
        let made =
            desk.agent.direct().create(&everything(), dir, name.as_bytes(), Node::File(0o600));
        made.expect("made");
    }
    let (mut cookie, mut seen) = (0, 0);
    loop {
        let asked = request::ListNames { directory: object(dir), cookie, change: 0 };
        let (header, body) =
            desk.raw(&whole::<message::ListNames>(1, 0, &asked), false).expect("one");
        let said = decode_reply::<message::ListNames>(&header, &body).expect("of this kind");
        let page = said.expect("a page");
        if page.entries.is_empty() {
            break;
        }
        (cookie, seen) = (page.cookie, seen + page.entries.len());
    }
    assert_eq!(seen, NAMES);
}
