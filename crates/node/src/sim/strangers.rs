//! Messages that no honest node sends, between those of honest ones: each is refused and counted,
//! or an error, and nothing at home changes.

use husk_wire::record::{Object, What};
use husk_wire::{Failure, HEADER_BYTES, Header, Kind, NODES_MAX, Role, Version};

use super::asks::{Ask, Letter, TRUNCATE};
use super::dice::Dice;
use super::faults::Site;
use super::play::World;

/// Numbers that no inode has.
const NUMBERS: [u64; 6] = [0, 1 << 20, (1 << 31) - 1, 1 << 31, 1 << 40, u64::MAX];
const LETTER: Letter = b'a';
/// In the header: what a stranger may have changed there.
const MAGIC: usize = 0;
const MAJOR: usize = 2;
const STATUS: usize = 6;
const SOURCE_HIGH: usize = 9;
const TARGET_HIGH: usize = 11;
const ROLE: usize = 12;
const SPARE: usize = 13;
const LENGTH: usize = 16;

/// A strange message, and what is to come of it.
struct Strange {
    bytes: Vec<u8>,
    right: Right,
}

/// What is to come of it.
#[derive(Clone, Copy, PartialEq, Debug)]
enum Right {
    /// It breaks the rules: it is counted, and is answered so where its header can be read.
    Broken,
    /// It fails so.
    Fails(Failure),
    /// It fails.
    FailsSomehow,
    /// It does no harm.
    Harmless,
}

impl World {
    /// A stranger sends a message, if a thread of the agent is free.
    pub fn strange(&mut self) -> Result<(), String> {
        if !self.home.has_agent() || self.stopped || !self.has_free_thread() {
            return Ok(());
        }
        let Strange { bytes, right } = self.some_message();
        let before = (self.home.refused(), self.home.holds());
        let thread = self.free_thread();
        let answer = self.home.answer_any(thread, &bytes, false);
        let counted = self.home.refused() - before.0;
        let answer = answer.map(|answer| Header::split(&answer).expect("sound").0.status);
        let failure = answer.map(Failure::of);
        let is_right = match right {
            Right::Broken => {
                counted == 1 && matches!(failure, None | Some(Some(Failure::Protocol)))
            }
            Right::Fails(with) => counted == 0 && failure == Some(Some(with)),
            Right::FailsSomehow => counted == 0 && matches!(failure, Some(Some(_))),
            Right::Harmless => counted == 0 && answer.is_some(),
        };
        let told = |what: &str| Err(format!("{what} {right:?}: {failure:?}, {bytes:?}"));
        if self.prints {
            println!("{} us, a stranger: {right:?}, {failure:?}", self.network.now_us());
        }
        if !is_right || self.home.holds() != before.1 {
            return told("a strange message came to something else than");
        }
        self.fired.add(if right == Right::Broken { Site::Broken } else { Site::Refused });
        self.compare().or_else(|why| told(&format!("{why}: a strange message changed this,")))
    }

    fn some_message(&mut self) -> Strange {
        let root = crate::translate::object(self.home.root);
        let source = 1 + self.dice.below(3) as u16;
        // Not one of the dead, unless that is what is strange.
        let epoch = self.epoch + 1;
        let header = Header { source, epoch, request: 7, ..Header::new(Kind::Walk, Role::Request) };
        let good = Ask::Walk(root, Some(LETTER)).message(header);
        let sent = |ask: Ask, right| Strange { bytes: ask.message(header), right };
        let over = self.dead.iter().next().map(|(node, epoch)| (*node, *epoch));
        let of_another = self.tree.held_by_another(source);
        match self.dice.below(7) {
            0 => broken(&mut self.dice, &good),
            1 => {
                let right = Right::Broken;
                match self.dice.below(3) {
                    0 => sent(Ask::Dead(vec![1, 2], u32::MAX), right),
                    1 => with(&good, ROLE, Role::Reply as u8, right),
                    _ => {
                        // Told, not asked.
                        let header = Header { role: Role::Posted, request: 0, ..header };
                        let ask = Ask::MakeDirectory(root, b'z', 0o755);
                        let mut bytes = ask.message(Header { request: 7, ..header });
                        bytes[ROLE] = Role::Posted as u8;
                        bytes[28..32].fill(0);
                        Strange { bytes, right }
                    }
                }
            }
            2 => {
                let kind = self.dice.one(&[0, 9999, Kind::Locked as u16, Kind::Spawn as u16]);
                let mut bytes = good;
                bytes[4..6].copy_from_slice(&kind.to_le_bytes());
                Strange { bytes, right: Right::Fails(Failure::Unserved) }
            }
            3 if over.is_some() => {
                let (node, over) = over.unwrap_or_default();
                let fenced = self.tree.is_fenced(node, over - 1);
                let header = Header { source: node, epoch: over - 1, ..header };
                let bytes = Ask::Remove(root, LETTER, What::File).message(header);
                let right = if fenced { Right::Fails(Failure::Fenced) } else { Right::Harmless };
                match fenced {
                    true => Strange { bytes, right },
                    // The home has not heard of its death yet.
                    false => sent(Ask::Walk(root, None), Right::Harmless),
                }
            }
            4 if of_another.is_some() => {
                sent(Ask::Return(of_another.into_iter().collect()), Right::Harmless)
            }
            5 => sent(nowhere(&mut self.dice, root), Right::Fails(Failure::Gone)),
            _ => sent(beyond(&mut self.dice, root), Right::FailsSomehow),
        }
    }
}

fn with(good: &[u8], at: usize, to: u8, right: Right) -> Strange {
    let mut bytes = good.to_vec();
    bytes[at] = to;
    Strange { bytes, right }
}

/// A message that is none.
fn broken(dice: &mut Dice, good: &[u8]) -> Strange {
    let right = Right::Broken;
    let high = (NODES_MAX >> 8) as u8;
    let fewer = dice.below(good.len() as u64) as usize;
    match dice.below(8) {
        0 => Strange { bytes: good[..fewer].to_vec(), right },
        1 => Strange { bytes: [good, b"more"].concat(), right },
        2 => with(good, dice.one(&[MAGIC, MAJOR, LENGTH]), 0xee, right),
        3 => with(good, dice.one(&[SOURCE_HIGH, TARGET_HIGH]), high + 1, right),
        4 => with(good, dice.one(&[STATUS, SPARE, SPARE + 1, ROLE]), 9, right),
        5 => {
            // A whole message, whose body is shorter than its fields.
            let body = good.len() - HEADER_BYTES;
            let less = dice.below(body as u64) as usize;
            let mut bytes = good[..HEADER_BYTES + less].to_vec();
            bytes[LENGTH..LENGTH + 4].copy_from_slice(&(less as u32).to_le_bytes());
            Strange { bytes, right }
        }
        6 => {
            // Or longer, in a version that has no more fields.
            let mut bytes = [good, b"x"].concat();
            let length = (bytes.len() - HEADER_BYTES) as u32;
            bytes[LENGTH..LENGTH + 4].copy_from_slice(&length.to_le_bytes());
            assert_eq!(bytes[MAJOR + 1], Version::CURRENT.minor);
            Strange { bytes, right }
        }
        _ => {
            // The name is none that a directory can have.
            let at = good.iter().rposition(|byte| *byte == LETTER).expect("a name");
            let at = if good[at - 1] == 1 { at } else { HEADER_BYTES + 15 };
            with(good, at, dice.one(b"./\0"), right)
        }
    }
}

/// An inode that is not, or is not any more.
fn nowhere(dice: &mut Dice, root: Object) -> Ask {
    let of_root = Object { generation: root.generation + 1 + dice.below(9) as u32, ..root };
    let (number, generation) = (dice.one(&NUMBERS), dice.below(5) as u32);
    let object = dice.one(&[of_root, Object { number, generation }]);
    let bytes = vec![LETTER; 100];
    dice.one(&[
        Ask::Walk(object, None),
        Ask::Walk(object, Some(LETTER)),
        Ask::List(object),
        Ask::Above(object),
        Ask::Create(object, LETTER, 0o644, Some(2)),
        Ask::MakeDirectory(object, LETTER, 0o755),
        Ask::Link(object, root, b'z'),
        Ask::Remove(object, LETTER, What::File),
        Ask::Rename(root, LETTER, object, LETTER, 0),
        Ask::SetMode(object, 0),
        Ask::Truncate(object, 0),
        Ask::Open(object, 2),
        Ask::Read(object, 0, 100),
        Ask::Write(object, 0, bytes),
        Ask::Punch(object, 0, 1),
        Ask::SetExtended(object, LETTER, vec![LETTER]),
    ])
}

/// Something that is beyond what there can be.
fn beyond(dice: &mut Dice, root: Object) -> Ask {
    dice.one(&[
        Ask::Truncate(root, u64::MAX),
        Ask::Open(root, 1 << 31),
        Ask::Open(root, TRUNCATE),
        Ask::Create(root, b'z', 0o644, Some(1 << 30)),
        Ask::Rename(root, LETTER, root, b'b', 3),
        Ask::Rename(root, LETTER, root, b'b', 1 << 20),
        Ask::Write(root, u64::MAX - 1, vec![LETTER]),
        Ask::Punch(root, u64::MAX, u64::MAX),
        Ask::Punch(root, 0, 0),
    ])
}
