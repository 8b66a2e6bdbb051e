//! May what a program's loader has made of it be mapped again at each start? Not where linking has
//! changed code, which is taken from the files, and not where the loader does not say what it has
//! loaded. Functions of libraries do not matter: they have not run yet.

use super::Refusal;
use super::memory::Memory;
use super::run::{AT_SYSINFO_EHDR, Recorded};

const DT_DEBUG: u64 = 21;
const DT_TEXTREL: u64 = 22;
const DT_FLAGS: u64 = 30;
/// `DF_TEXTREL`.
const CHANGES_CODE: u64 = 4;
const PT_DYNAMIC: u32 = 2;
const HEADER_BYTES: u64 = 56;
/// Entries of a dynamic section, and libraries, at most.
const ENTRIES_MAX: u64 = 256;
const OBJECTS_MAX: usize = 64;

/// Looks at all objects that were linked.
pub fn check(recorded: &Recorded) -> Result<(), Refusal> {
    let memory = &recorded.memory;
    let own = dynamic_of_program(recorded)?;
    let debug = value(memory, own, DT_DEBUG)?.filter(|&at| at != 0);
    let debug = debug.ok_or_else(|| Refusal::of("its loader does not say what it has loaded"))?;
    let vdso = recorded.noted.inputs.vector.get(&AT_SYSINFO_EHDR).copied();
    let mut object = memory.word(debug + 8)?;
    for _ in 0..OBJECTS_MAX {
        if object == 0 {
            return Ok(());
        }
        let (base, dynamic) = (memory.word(object)?, memory.word(object + 16)?);
        if Some(base) != vdso {
            leaves_code_alone(memory, dynamic)?;
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

fn leaves_code_alone(memory: &Memory, dynamic: u64) -> Result<(), Refusal> {
    let flags = value(memory, dynamic, DT_FLAGS)?.unwrap_or(0);
    if flags & CHANGES_CODE != 0 || value(memory, dynamic, DT_TEXTREL)?.is_some() {
        return Err(Refusal::of("a part of it has code that is changed as it is linked"));
    }
    Ok(())
}
