//! May a program's libraries be linked once for all starts? Only if linking runs no code of theirs
//! that could look at the world: what the C library's own start does is known, and so is the pair
//! of functions that compilers put into every library; a library with any other is refused.

use super::memory::Memory;
use super::run::{AT_SYSINFO_EHDR, Recorded};
use super::{Refusal, text_of};

const DT_STRTAB: u64 = 5;
const DT_INIT: u64 = 12;
const DT_SONAME: u64 = 14;
const DT_RPATH: u64 = 15;
const DT_DEBUG: u64 = 21;
const DT_TEXTREL: u64 = 22;
const DT_INIT_ARRAY: u64 = 25;
const DT_INIT_ARRAYSZ: u64 = 27;
const DT_RUNPATH: u64 = 29;
const DT_PREINIT_ARRAYSZ: u64 = 33;
const PT_DYNAMIC: u32 = 2;
const HEADER_BYTES: u64 = 56;
/// Entries of a dynamic section, and libraries, at most.
const ENTRIES_MAX: u64 = 256;
const OBJECTS_MAX: usize = 64;

/// What runs code as it is linked that is known not to depend on anything else.
const KNOWN: [&[u8]; 2] = [b"libc.so.6", b"ld-linux-x86-64.so.2"];

/// `sub rsp, 8; mov rax, [__gmon_start__]; test rax, rax; je; call rax; add rsp, 8; ret`.
const INIT: [Option<u8>; 23] = pattern("4883ec08488b05........4885c07402ffd04883c408c3");
/// The head of `register_tm_clones`: `lea rdi; lea rsi; sub; mov; shr; sar; add; sar`.
const CLONES: [Option<u8>; 34] =
    pattern("488d3d........488d35........4829fe4889f048c1ee3f48c1f8034801c648d1fe");
const LANDING: [u8; 4] = [0xf3, 0x0f, 0x1e, 0xfa];
const JUMP: u8 = 0xe9;

const fn pattern<const N: usize>(text: &str) -> [Option<u8>; N] {
    const fn digit(byte: u8) -> u8 {
        if byte.is_ascii_digit() { byte - b'0' } else { byte - b'a' + 10 }
    }
    let (text, mut out, mut at) = (text.as_bytes(), [None; N], 0);
    assert!(text.len() == 2 * N, "two digits a byte");
    while at < N {
        if text[2 * at] != b'.' {
            out[at] = Some(digit(text[2 * at]) << 4 | digit(text[2 * at + 1]));
        }
        at += 1;
    }
    out
}

/// Looks at all objects that were linked.
pub fn check(recorded: &Recorded) -> Result<(), Refusal> {
    let memory = &recorded.memory;
    let own = dynamic_of_program(recorded)?;
    if value(memory, own, DT_PREINIT_ARRAYSZ)?.is_some_and(|bytes| bytes > 0) {
        return Err(Refusal::of("it has functions that run before its libraries'"));
    }
    let debug = value(memory, own, DT_DEBUG)?.filter(|&at| at != 0);
    let debug = debug.ok_or_else(|| Refusal::of("its loader does not say what it has loaded"))?;
    let vdso = recorded.noted.inputs.vector.get(&AT_SYSINFO_EHDR).copied();
    let mut object = memory.word(debug + 8)?;
    for place in 0..OBJECTS_MAX {
        if object == 0 {
            return Ok(());
        }
        let (base, dynamic) = (memory.word(object)?, memory.word(object + 16)?);
        if Some(base) != vdso {
            searches_as_usual(memory, dynamic)?;
            if place > 0 {
                library(memory, base, dynamic)?;
            }
        }
        object = memory.word(object + 24)?;
    }
    Err(Refusal::of("it has too many libraries"))
}

fn dynamic_of_program(recorded: &Recorded) -> Result<u64, Refusal> {
    let [headers, count] = recorded.noted.headers;
    for header in (0..count.min(ENTRIES_MAX)).map(|n| headers + n * HEADER_BYTES) {
        if recorded.memory.word(header)? as u32 == PT_DYNAMIC {
            let address = recorded.memory.word(header + 16)?;
            return Ok(address.wrapping_add(recorded.noted.base));
        }
    }
    Err(Refusal::of("it is not linked as it starts"))
}

fn value(memory: &Memory, dynamic: u64, wanted: u64) -> Result<Option<u64>, Refusal> {
    for entry in (0..ENTRIES_MAX).map(|n| dynamic + n * 16) {
        match memory.word(entry)? {
            0 => return Ok(None),
            tag if tag == wanted => return Ok(Some(memory.word(entry + 8)?)),
            _ => {}
        }
    }
    Ok(None)
}

/// No paths of its own, no code that is changed as it is linked.
fn searches_as_usual(memory: &Memory, dynamic: u64) -> Result<(), Refusal> {
    for tag in [DT_RPATH, DT_RUNPATH, DT_TEXTREL] {
        if value(memory, dynamic, tag)?.is_some() {
            return Err(Refusal::of("a part of it looks for libraries in places of its own"));
        }
    }
    Ok(())
}

fn library(memory: &Memory, base: u64, dynamic: u64) -> Result<(), Refusal> {
    let names = value(memory, dynamic, DT_STRTAB)?;
    let name = match (names, value(memory, dynamic, DT_SONAME)?) {
        (Some(names), Some(at)) => memory.text(names + at)?,
        _ => Vec::new(),
    };
    if KNOWN.contains(&name.as_slice()) {
        return Ok(());
    }
    let acts = |what| Refusal::of(&format!("{} {what}", text_of(&name)));
    if let Some(init) = value(memory, dynamic, DT_INIT)?
        && !is(memory, base.wrapping_add(init), &INIT)?
    {
        return Err(acts("has a start of its own"));
    }
    let functions = value(memory, dynamic, DT_INIT_ARRAYSZ)?.unwrap_or(0) / 8;
    let list = value(memory, dynamic, DT_INIT_ARRAY)?.unwrap_or(0).wrapping_add(base);
    for function in (0..functions.min(ENTRIES_MAX)).map(|n| list + 8 * n) {
        if !is_usual(memory, memory.word(function)?)? {
            return Err(acts("has functions that run as it is linked"));
        }
    }
    Ok(())
}

/// Whether a function does nothing but go on to `register_tm_clones`, as compilers make it.
fn is_usual(memory: &Memory, function: u64) -> Result<bool, Refusal> {
    let at = behind_landing(memory, function)?;
    let mut jump = [0; 5];
    memory.read(at, &mut jump)?;
    let by = i32::from_le_bytes([jump[1], jump[2], jump[3], jump[4]]);
    Ok(jump[0] == JUMP && is(memory, (at + 5).wrapping_add_signed(by.into()), &CLONES)?)
}

fn behind_landing(memory: &Memory, function: u64) -> Result<u64, Refusal> {
    let mut head = [0; 4];
    memory.read(function, &mut head)?;
    Ok(if head == LANDING { function + 4 } else { function })
}

fn is(memory: &Memory, function: u64, wanted: &[Option<u8>]) -> Result<bool, Refusal> {
    let mut code = vec![0; wanted.len()];
    memory.read(behind_landing(memory, function)?, &mut code)?;
    Ok(code.iter().zip(wanted).all(|(byte, wanted)| wanted.is_none_or(|one| one == *byte)))
}
