//! From the words that were typed to the program of the image.

use core::ffi::CStr;

use husk_abi::proc;
use husk_host::calls::{is_close_on_exec, pread};
use husk_host::probe;
use husk_proto::entry::{IMAGES_BELOW_HOME, JOB, JOB_NODE, Site, home_in};
use husk_region::{HEADER_BYTES, Header, read_header};
use husk_runtime::entry::{Joined, Newcomer, Text, is_name, joined, letter};
use husk_runtime::handover::{GIVEN, GUARD, HEAD_MAX, Handover, INITIAL, JOINS, PLAIN};

use crate::host::{self, ANSWER_BYTES_MAX, Descriptor};
use crate::settle::{Room, settle};

/// Most descriptors a program is started with.
const INHERITED_MAX: usize = 64;
/// Who has more than those below this is asked for a list.
const LOW_END: u32 = 8;
/// The two high numbers lie below this, whatever the limit, and above that.
const NUMBERS_END_MAX: u64 = 1024;
const NUMBERS_END_MIN: u64 = 256;
/// Where the words of the command begin: `husk exec NAME -- COMMAND`.
pub const COMMAND: usize = 4;
/// Where a job has the path of its program (`husk_proto::entry::JOB`).
const JOB_PROGRAM: usize = 3;
/// Longest path, of a command or a directory: a start pays for each page of its stack.
const PATH_BYTES_MAX: usize = 512;
/// Room for a letter: a directory, a number for each descriptor, and what stands around them.
const LETTER_BYTES_MAX: usize = PATH_BYTES_MAX + 512;
/// Room for a hand-over.
const HANDOVER_BYTES_MAX: usize = PATH_BYTES_MAX + HEAD_MAX + 1;

/// Called with the stack as the host has made it, where this code lies, and where the command does.
/// Returns where the whole command is to do it.
#[unsafe(no_mangle)]
#[unsafe(link_section = ".text.enter")]
extern "C" fn enter(stack: *mut usize, own: usize, own_bytes: usize, low: usize, end: usize) {
    if host::has_room() {
        become_command(stack, Room { own: [own, own_bytes], husk: [low, end] });
    }
}

/// Apart, as it takes more of the stack than there may be.
#[inline(never)]
fn become_command(stack: *mut usize, room: Room) {
    // SAFETY: nobody else uses the stack meanwhile.
    let mut start = unsafe { Start::of(stack) };
    let Some(ready) = join(&start) else { return };
    let mut text = [0; HANDOVER_BYTES_MAX];
    let program = start.word(start.program).to_bytes();
    if let Some(told) = handover(&mut text, &ready, program, GIVEN) {
        settle(&start, &ready.loader, told.as_ptr() as usize, &room);
    }
    if let Some(told) = handover(&mut text, &ready, program, 0) {
        start.execute(&ready.loader, told);
    }
}

/// All that the runtime has to be told, and what must stay open for it.
struct Ready {
    joined: Joined,
    loader: Descriptor,
    region: Descriptor,
}

fn join(start: &Start) -> Option<Ready> {
    let (site, name) = match start.is_job() {
        true => (Some(Site::parse(start.word(2).to_bytes())?), JOB_NODE.as_bytes()),
        false => (None, start.word(2).to_bytes()),
    };
    // A job has been placed, whatever its environment says of nodes.
    let unplaced = start.variable(b"HUSK_NODE=").is_none();
    let usual = start.is_job() || start.word(3) == c"--" && is_name(name) && unplaced;
    if !usual || start.word(start.program).count_bytes() > PATH_BYTES_MAX {
        return None;
    }
    // It wakes while the rest is found out.
    let images = site.as_ref().map(|site| site.images);
    let socket = reach(images.or(start.variable(b"HUSK_IMAGES=").map(CStr::to_bytes)), name)?;
    let mut numbers = [0; INHERITED_MAX];
    let inherited = inherited(&mut numbers)?;
    probe::syscall_user_dispatch().ok()?;
    ask(&socket, inherited, site.as_ref())?;
    host::fill_stack();
    let places = free_numbers()?;
    let mut room = [0; ANSWER_BYTES_MAX];
    let (answer, [region, loader]) = host::receive(&socket, &mut room)?;
    let joined = joined(answer)?;
    is_region(&region).then_some(())?;
    let (region, loader) = (host::place(&region, places[0])?, host::place(&loader, places[1])?);
    Some(Ready { joined, loader, region })
}

/// The descriptors that a program started now would have.
fn inherited(numbers: &mut [u32; INHERITED_MAX]) -> Option<&[u32]> {
    // To ask `/proc` for a count costs more than to ask for each of so few.
    let few = host::is_table_small();
    let mut left = if few { usize::MAX } else { host::open_count()? };
    let mut found = Found { numbers, count: 0 };
    for number in 0..if few { host::SMALL_TABLE } else { LOW_END } {
        if left == 0 {
            break;
        }
        left -= usize::from(found.look(number)?);
    }
    if left > 0 && !few {
        let listing = host::listing(c"/proc/self/fd")?;
        let high = |name: &[u8]| number(name).filter(|number| *number >= LOW_END);
        host::each_name(&listing, |name| high(name).map_or(Some(()), |n| found.look(n).map(drop)))?;
    }
    let Found { numbers, count } = found;
    numbers.get(..count)
}

fn number(name: &[u8]) -> Option<u32> {
    core::str::from_utf8(name).ok()?.parse().ok()
}

/// Descriptors that exec leaves open.
struct Found<'a> {
    numbers: &'a mut [u32; INHERITED_MAX],
    count: usize,
}

impl Found<'_> {
    /// Whether something is open under `number`. `None`: there are too many.
    fn look(&mut self, number: u32) -> Option<bool> {
        let Ok(closes) = is_close_on_exec(number as usize) else { return Some(false) };
        if !closes {
            *self.numbers.get_mut(self.count)? = number;
            self.count += 1;
        }
        Some(true)
    }
}

/// A connection to the supervisor of image `name`, where its place is as it should be: the first
/// that the whole command would look in (`husk-supervisor`, `named::base`).
fn reach(images: Option<&[u8]>, name: &[u8]) -> Option<Descriptor> {
    let mut room = [0; PATH_BYTES_MAX];
    let length = match images.filter(|said| !said.is_empty()) {
        // What is relative, the whole command refuses.
        Some(said) if !said.starts_with(b"/") => return None,
        Some(said) => Text::new(&mut room).put(said).whole()?.len(),
        None => {
            let home = home(&mut room)?;
            let below = Text::new(room.get_mut(home..)?)
                .put(b"/")
                .put(IMAGES_BELOW_HOME.as_bytes())
                .whole()?
                .len();
            home + below
        }
    };
    *room.get_mut(length)? = 0;
    private(CStr::from_bytes_until_nul(&room).ok()?)?;
    let mut rest = Text::new(room.get_mut(length..)?);
    let named = rest.put(b"/").put(name).whole()?.len() + length;
    rest.put(b"/socket\0").whole()?;
    let socket = CStr::from_bytes_until_nul(&room).ok()?;
    if socket.count_bytes() < husk_host::messages::PATH_BYTES {
        return host::connect(socket, host::PATIENCE_S);
    }
    *room.get_mut(named)? = 0;
    let place = host::directory(CStr::from_bytes_until_nul(&room).ok()?)?;
    let mut room = [0; 64];
    let mut socket = Text::new(&mut room);
    socket.put(proc::DESCRIPTORS).number(place.0 as u32).put(b"/socket\0");
    host::connect(string(&socket)?, host::PATIENCE_S)
}

/// Puts this user's home directory, as `/etc/passwd` names it, into `room`; its length.
fn home(room: &mut [u8; PATH_BYTES_MAX]) -> Option<usize> {
    let users = host::file(c"/etc/passwd")?;
    let (us, mut at) = (host::user(), 0);
    loop {
        let got = pread(users.0, room, at).ok()?;
        // A line that is longer than the room is left to the whole command, and so is the last one
        // without an end.
        let lines = room.get(..got)?;
        let end = lines.iter().rposition(|byte| *byte == b'\n')?;
        let lines = lines.get(..end)?.split(|byte| *byte == b'\n');
        if let Some(home) = lines.filter_map(|line| home_in(line, us)).next() {
            let length = home.len();
            let from = home.as_ptr() as usize - room.as_ptr() as usize;
            room.copy_within(from..from + length, 0);
            *room.get_mut(length)? = 0;
            let path = CStr::from_bytes_until_nul(&*room).ok()?;
            return host::status(path, true).filter(|found| found.uid == us).map(|_| length);
        }
        at += end as u64 + 1;
    }
}

/// Whether a directory is this user's alone: so is all that lies in it.
fn private(path: &CStr) -> Option<()> {
    const KIND: u32 = 0o170000;
    const DIRECTORY: u32 = 0o040000;
    let found = host::status(path, false)?;
    let private = found.mode & 0o077 == 0 && found.mode & KIND == DIRECTORY;
    (private && found.uid == host::user()).then_some(())
}

fn string<'a>(text: &'a Text<'_>) -> Option<&'a CStr> {
    CStr::from_bytes_with_nul(text.whole()?).ok()
}

fn ask(socket: &Descriptor, inherited: &[u32], site: Option<&Site<'_>>) -> Option<()> {
    let mut room = [0; PATH_BYTES_MAX];
    let here = match site {
        Some(site) => {
            host::set_umask(site.umask);
            Some(site.here)
        }
        None => host::here(&mut room).filter(|here| here.starts_with(b"/")),
    };
    let pid = husk_host::calls::getpid();
    let newcomer = Newcomer { pid, inherited, passed: &[], umask: host::umask(), here };
    let mut room = [0; LETTER_BYTES_MAX];
    host::send(socket, letter(&newcomer, &mut Text::new(&mut room))?)
}

/// The two highest numbers below the limit under which nothing is open.
fn free_numbers() -> Option<[usize; 2]> {
    let end = host::numbers_end()?.min(NUMBERS_END_MAX);
    let numbers = (NUMBERS_END_MIN..end).rev().map(|number| number as usize);
    let mut free = numbers.filter(|number| is_close_on_exec(*number).is_err());
    Some([free.next()?, free.next()?])
}

/// Whether it is a region of this version.
fn is_region(region: &Descriptor) -> bool {
    const SEAL_SHRINK: usize = 2;
    let mut head = [0; HEADER_BYTES];
    let read = pread(region.0, &mut head, 0) == Ok(HEADER_BYTES);
    let Header::Ours(layout) = read_header(&head) else { return false };
    let sealed = host::seals(region).is_some_and(|seals| seals & SEAL_SHRINK != 0);
    let size = husk_host::calls::fstat(region.0).map(|found| found.size as u64);
    read && sealed && size == Ok(layout.file_bytes())
}

/// The string that the runtime finds before the environment.
fn handover<'a>(
    text: &'a mut [u8; HANDOVER_BYTES_MAX],
    ready: &Ready,
    command: &[u8],
    flags: u32,
) -> Option<&'a CStr> {
    let Joined { process, guard, trap_only } = ready.joined;
    let flags = flags | INITIAL | JOINS;
    let flags = flags | if guard { GUARD } else { 0 } | if trap_only { PLAIN } else { 0 };
    let (region_fd, loader_fd) = (ready.region.0 as i32, ready.loader.0 as i32);
    let handover = Handover { process, region_fd, loader_fd, flags };
    let mut head = [0; HEAD_MAX];
    let length = handover.head(&mut head);
    let mut all = Text::new(text);
    let length = all.put(head.get(..length)?).put(command).put(b"\0").whole()?.len();
    CStr::from_bytes_with_nul(text.get(..length)?).ok()
}

/// The stack of a program that starts: the number of its words, the words, 0, variables, 0.
pub struct Start {
    /// Where the words begin.
    pub words: *mut usize,
    /// How many they are.
    pub count: usize,
    /// Which of them is the program's path, and what it is told that exec was given.
    pub program: usize,
}

impl Start {
    /// # Safety
    /// `stack` is as the host has made it, and lent to the result.
    unsafe fn of(stack: *mut usize) -> Start {
        // SAFETY: the number of words stands before them.
        let mut start = unsafe { Start { words: stack.add(1), count: *stack, program: COMMAND } };
        if start.is_job() {
            start.program = JOB_PROGRAM;
        }
        start
    }

    /// Whether it is another host's program that is to begin.
    fn is_job(&self) -> bool {
        self.word(0).to_bytes() == JOB.as_bytes()
    }

    /// A word that is there: `entry.s` has counted them.
    fn word(&self, index: usize) -> &'static CStr {
        assert!(index < self.count);
        // SAFETY: one of the words, which stay where they are.
        unsafe { CStr::from_ptr(*self.words.add(index) as *const _) }
    }

    /// What stands behind `name` (with its `=`) in the environment.
    fn variable(&self, name: &[u8]) -> Option<&'static CStr> {
        // SAFETY: the variables follow the 0 behind the words, and end with another.
        let list = |index| unsafe { *self.words.add(self.count + 1 + index) };
        let mut strings = (0..).map(list).take_while(|string| *string != 0);
        strings.find_map(|string| {
            // SAFETY: a string of the environment, which stays where it is.
            let string = unsafe { CStr::from_ptr(string as *const _) };
            let value = string.to_bytes_with_nul().strip_prefix(name)?;
            CStr::from_bytes_with_nul(value).ok()
        })
    }

    /// Where the variables stand, and how many they are.
    fn variables(&self) -> (*mut usize, usize) {
        // SAFETY: they follow the 0 behind the words, and end with another.
        unsafe {
            let first = self.words.add(self.count + 1);
            (first, (0..).take_while(|index| *first.add(*index) != 0).count())
        }
    }

    /// What the auxiliary vector, which follows the variables, has of `kind`.
    pub fn auxiliary(&self, kind: usize) -> Option<usize> {
        let (first, count) = self.variables();
        // SAFETY: the vector ends with kind 0.
        unsafe {
            let mut entry = first.add(count + 1).cast::<[usize; 2]>();
            while (*entry)[0] != 0 && (*entry)[0] != kind {
                entry = entry.add(1);
            }
            ((*entry)[0] == kind).then_some((*entry)[1])
        }
    }

    /// Where the stack of the command begins once its words have moved: as aligned as this one.
    pub fn new_stack(&self) -> usize {
        self.words as usize + (COMMAND - 3) * size_of::<usize>()
    }

    /// From where to where the strings of the command lie, and those of its variables.
    pub fn strings(&self) -> ([u64; 2], [u64; 2]) {
        let (first, count) = self.variables();
        // SAFETY: strings that the host has put one behind the other.
        let ends = |text: usize| unsafe {
            (text + CStr::from_ptr(text as *const _).count_bytes() + 1) as u64
        };
        // SAFETY: of the words, and of the variables where there are any.
        unsafe {
            let from = *self.words.add(COMMAND) as u64;
            let end = ends(*self.words.add(self.count - 1));
            let last = if count == 0 { end } else { ends(*first.add(count - 1)) };
            ([from, end], [end, last])
        }
    }

    /// Becomes the command. The hand-over takes the place of the 0 behind the words, so that the
    /// environment follows it, and the command's words move down by one to end before it. Where
    /// that fails, all is put back.
    fn execute(&mut self, loader: &Descriptor, handover: &CStr) {
        let path = proc::descriptor(loader.0 as u32);
        let Ok(path) = CStr::from_bytes_until_nul(&path) else { return };
        let moved = self.count - COMMAND;
        // SAFETY: all within the words and the 0 behind them; the lists are as exec wants them.
        unsafe {
            let (end, command) = (self.words.add(self.count), self.words.add(COMMAND));
            let dashes = *command.sub(1);
            command.copy_to(command.sub(1), moved);
            (*end.sub(1), *end) = (0, handover.as_ptr() as usize);
            host::execute(path, command.sub(1), end);
            command.sub(1).copy_to(command, moved);
            (*command.sub(1), *end) = (dashes, 0);
        }
    }
}
