//! Functions and landing pads, from `.eh_frame` and the tables it points to.
//!
//! Exception tables (LSDA, Itanium C++ ABI): a header of encodings, then records
//! (start, length, landing pad, action), relative to the function's start. Only landing pads
//! matter here: the unwinder jumps to them.

use std::collections::HashMap;

use gimli::{
    BaseAddresses, CieOrFde, EhFrame, EndianSlice, LittleEndian, Pointer, Reader, UnwindSection,
};

use crate::elf::Image;
use crate::targets::Targets;

type Slice<'a> = EndianSlice<'a, LittleEndian>;

/// Calls `add(start, bytes)` for each function; marks landing pads.
pub fn read(image: &Image<'_>, add: impl FnMut(u64, u64), targets: &mut Targets) {
    // A damaged table gives what precedes the damage: fewer bounds, fewer patches.
    let _ = try_read(image, add, targets);
}

fn try_read(
    image: &Image<'_>,
    mut add: impl FnMut(u64, u64),
    targets: &mut Targets,
) -> gimli::Result<()> {
    let Some((address, bytes)) = image.eh_frame else { return Ok(()) };
    let section = EhFrame::new(bytes, LittleEndian);
    let text = image.code.first().map_or(0, |code| code.address);
    let bases = BaseAddresses::default().set_eh_frame(address).set_text(text);
    let mut common = HashMap::new();
    let mut entries = section.entries(&bases);
    while let Some(entry) = entries.next()? {
        let CieOrFde::Fde(partial) = entry else { continue };
        let frame = partial.parse(|section, bases, offset| {
            if let Some(known) = common.get(&offset.0) {
                return Ok(gimli::CommonInformationEntry::clone(known));
            }
            let read = section.cie_from_offset(bases, offset)?;
            common.insert(offset.0, read.clone());
            Ok(read)
        })?;
        // A signal trampoline's range begins one byte early, in the middle of an instruction.
        if frame.is_signal_trampoline() {
            continue;
        }
        add(frame.initial_address(), frame.len());
        if let Some(Pointer::Direct(table)) = frame.lsda() {
            let _ = mark_landing_pads(image, table, frame.initial_address(), targets);
        }
    }
    Ok(())
}

fn mark_landing_pads(
    image: &Image<'_>,
    table: u64,
    function: u64,
    targets: &mut Targets,
) -> gimli::Result<()> {
    let Some(bytes) = image.constants_at(table) else { return Ok(()) };
    let mut input: Slice<'_> = EndianSlice::new(bytes, LittleEndian);
    let base_encoding = input.read_u8()?;
    let mut base = function;
    if base_encoding != gimli::DW_EH_PE_omit.0 {
        base = read_value(&mut input, base_encoding)?;
    }
    if input.read_u8()? != gimli::DW_EH_PE_omit.0 {
        input.read_uleb128()?;
    }
    let encoding = input.read_u8()?;
    let len = input.read_uleb128()? as usize;
    let mut records = input.split(len)?;
    while !records.is_empty() && targets.step() {
        read_value(&mut records, encoding)?;
        read_value(&mut records, encoding)?;
        let pad = read_value(&mut records, encoding)?;
        records.read_uleb128()?;
        if pad != 0 {
            targets.mark(base.wrapping_add(pad));
        }
    }
    Ok(())
}

fn read_value(input: &mut Slice<'_>, encoding: u8) -> gimli::Result<u64> {
    match gimli::DwEhPe(encoding & 0x0f) {
        gimli::DW_EH_PE_uleb128 => input.read_uleb128(),
        gimli::DW_EH_PE_udata2 => Ok(u64::from(input.read_u16()?)),
        gimli::DW_EH_PE_udata4 => Ok(u64::from(input.read_u32()?)),
        gimli::DW_EH_PE_absptr | gimli::DW_EH_PE_udata8 => input.read_u64(),
        _ => Err(gimli::Error::UnknownPointerEncoding(gimli::DwEhPe(encoding))),
    }
}
