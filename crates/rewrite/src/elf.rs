//! The parts of an ELF file that the rewriter needs, checked once.
//!
//! Invariants
//! 1. Every `Code` range lies inside the file, inside one executable, non-writable `PT_LOAD`, at
//!    the file offset that segment gives it, and inside no other segment's file range.
//! 2. Code ranges are sorted by address and disjoint; no address in them wraps.
//! 3. Nothing here panics on any input; sizes and counts are bounded by the file's length.

use object::LittleEndian as LE;
use object::elf;
use object::read::elf::{
    Dyn as _, FileHeader, ProgramHeader, Rela as _, SectionHeader, SectionTable, Sym as _,
};

/// Largest file that is looked at, bytes.
pub const FILE_BYTES_MAX: usize = 512 << 20;

/// Most loaded segments; linkers make four to eight.
const LOADS_MAX: usize = 256;

type Header = elf::FileHeader64<LE>;

/// Why a whole file is refused.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Refusal {
    /// Not an ELF file.
    NotElf,
    /// Not 64-bit little-endian x86-64 for Linux.
    Machine,
    /// Neither a program nor a shared library.
    Kind,
    /// Headers contradict each other or the length of the file.
    Malformed,
    /// No section headers: function bounds are unknown.
    NoSections,
    /// Longer than [`FILE_BYTES_MAX`].
    TooLarge,
    /// Its tables take more work than a file of its length can need.
    TooComplex,
}

impl std::fmt::Display for Refusal {
    fn fmt(&self, out: &mut std::fmt::Formatter<'_>) -> std::fmt::Result {
        out.write_str(match self {
            Refusal::NotElf => "not an ELF file",
            Refusal::Machine => "not for Linux on 64-bit x86",
            Refusal::Kind => "neither a program nor a shared library",
            Refusal::Malformed => "malformed or truncated ELF file",
            Refusal::NoSections => "no section headers",
            Refusal::TooLarge => "file too large",
            Refusal::TooComplex => "tables out of proportion",
        })
    }
}

impl std::error::Error for Refusal {}

/// A stretch of instructions.
#[derive(Clone, Copy, Debug)]
pub struct Code {
    /// Virtual address as linked.
    pub address: u64,
    /// Place in the file.
    pub offset: usize,
    /// Length, bytes.
    pub len: usize,
}

impl Code {
    /// First address behind it.
    pub fn end(&self) -> u64 {
        self.address + self.len as u64
    }

    /// Whether the address is in it.
    pub fn contains(&self, address: u64) -> bool {
        (self.address..self.end()).contains(&address)
    }
}

/// A loaded stretch that is not instructions.
#[derive(Clone, Copy, Debug)]
pub struct Data<'a> {
    /// Virtual address as linked.
    pub address: u64,
    /// Its bytes in the file.
    pub bytes: &'a [u8],
    /// Whether the program may write to it.
    pub writable: bool,
}

impl<'a> Data<'a> {
    fn bytes_at(&self, address: u64) -> Option<&'a [u8]> {
        let from = usize::try_from(address.checked_sub(self.address)?).ok()?;
        self.bytes.get(from..).filter(|bytes| !bytes.is_empty())
    }
}

/// A name's place in the code.
#[derive(Clone, Copy, Debug)]
pub struct Symbol {
    /// Where it points.
    pub address: u64,
    /// How far it reaches, 0 if it does not say.
    pub size: u64,
}

/// A relocation.
#[derive(Clone, Copy, Debug)]
pub struct Relocation {
    /// First changed address.
    pub address: u64,
    /// The addend: for relative relocations an address in this file.
    pub addend: u64,
}

/// A parsed file.
pub struct Image<'a> {
    /// The whole file.
    pub bytes: &'a [u8],
    /// Whether addresses are absolute (`ET_EXEC`).
    pub absolute: bool,
    /// Entry point.
    pub entry: u64,
    /// Instructions.
    pub code: Vec<Code>,
    /// Everything else that is loaded, sorted by address.
    pub data: Vec<Data<'a>>,
    /// Symbols in code.
    pub symbols: Vec<Symbol>,
    /// Relocations of any kind.
    pub relocations: Vec<Relocation>,
    /// `.eh_frame`: address and bytes.
    pub eh_frame: Option<(u64, &'a [u8])>,
    /// Go's table of functions.
    pub pclntab: Option<&'a [u8]>,
    /// Loaded file ranges: offset, address, bytes in the file, executable and not writable.
    pub(crate) loads: Vec<Load>,
    soname: Option<&'a [u8]>,
    interpreted: bool,
}

#[derive(Clone, Copy, Debug)]
pub(crate) struct Load {
    pub(crate) offset: u64,
    pub(crate) address: u64,
    pub(crate) file_bytes: u64,
    pub(crate) memory_bytes: u64,
    pub(crate) flags: u32,
}

impl Load {
    fn is_code(&self) -> bool {
        self.flags & (elf::PF_X.0 | elf::PF_W.0) == elf::PF_X.0
    }

    pub(crate) fn file_end(&self) -> u64 {
        self.offset.saturating_add(self.file_bytes)
    }
}

impl<'a> Image<'a> {
    /// Parses and checks the headers.
    pub fn parse(bytes: &'a [u8]) -> Result<Image<'a>, Refusal> {
        let header = check_header(bytes)?;
        let loads = loads(header, bytes)?;
        let sections = header.sections(LE, bytes).map_err(|_| Refusal::Malformed)?;
        if sections.is_empty() {
            return Err(Refusal::NoSections);
        }
        let mut image = Image {
            bytes,
            absolute: header.e_type(LE) == elf::ET_EXEC,
            entry: header.e_entry(LE),
            code: Vec::new(),
            data: Vec::new(),
            symbols: Vec::new(),
            relocations: Vec::new(),
            eh_frame: None,
            pclntab: None,
            loads,
            soname: None,
            interpreted: has_interpreter(header, bytes),
        };
        image.read_sections(&sections)?;
        image.read_symbols(&sections)?;
        image.soname = soname(&sections, bytes);
        Ok(image)
    }

    /// The code range around an address.
    pub fn code_at(&self, address: u64) -> Option<&Code> {
        let after = self.code.partition_point(|code| code.address <= address);
        self.code[..after].last().filter(|code| code.contains(address))
    }

    /// Read-only, non-code bytes from an address on.
    pub fn constants_at(&self, address: u64) -> Option<&'a [u8]> {
        self.data_at(address).filter(|data| !data.writable)?.bytes_at(address)
    }

    fn data_at(&self, address: u64) -> Option<&Data<'a>> {
        let after = self.data.partition_point(|data| data.address <= address);
        self.data[..after].last()
    }

    /// Whether this is glibc's dynamic loader.
    pub fn is_loader(&self) -> bool {
        let named = self.soname.is_some_and(|name| name.starts_with(b"ld-linux"));
        named && !self.interpreted && !self.absolute
    }

    /// Bytes of a code range.
    pub fn code_bytes(&self, code: &Code) -> &'a [u8] {
        &self.bytes[code.offset..code.offset + code.len]
    }

    fn read_sections(
        &mut self,
        sections: &SectionTable<'a, Header, &'a [u8]>,
    ) -> Result<(), Refusal> {
        let mut in_place = Vec::new();
        for section in sections.iter() {
            let kind = section.sh_type(LE);
            if kind == elf::SHT_NULL || kind == elf::SHT_NOBITS {
                continue;
            }
            let bytes = section.data(LE, self.bytes).map_err(|_| Refusal::Malformed)?;
            // Others were applied by the linker and are kept for tools.
            let loaded = section.sh_flags(LE).0 & elf::SHF_ALLOC.0 != 0;
            match kind {
                _ if !loaded => {}
                elf::SHT_RELA => self.read_relocations(section)?,
                elf::SHT_RELR => self.read_relative(section, &mut in_place)?,
                _ => {}
            }
            let flags = section.sh_flags(LE).0;
            if flags & elf::SHF_ALLOC.0 == 0 || bytes.is_empty() {
                continue;
            }
            let name = sections.section_name(LE, section).unwrap_or(b"");
            self.add_section(section, name, bytes, flags);
        }
        self.data.sort_by_key(|data| data.address);
        self.add_relative(&in_place);
        self.code.sort_by_key(|code| code.address);
        let disjoint = self.code.windows(2).all(|pair| pair[0].end() <= pair[1].address);
        if disjoint { Ok(()) } else { Err(Refusal::Malformed) }
    }

    fn add_section(
        &mut self,
        section: &elf::SectionHeader64<LE>,
        name: &[u8],
        bytes: &'a [u8],
        flags: u64,
    ) {
        let (address, offset) = (section.sh_addr(LE), section.sh_offset(LE));
        if address.checked_add(bytes.len() as u64).is_none() {
            return;
        }
        match name {
            b".eh_frame" => self.eh_frame = Some((address, bytes)),
            b".gopclntab" | b".data.rel.ro.gopclntab" => self.pclntab = Some(bytes),
            _ => {}
        }
        if flags & elf::SHF_EXECINSTR.0 == 0 {
            let writable = flags & elf::SHF_WRITE.0 != 0;
            self.data.push(Data { address, bytes, writable });
        } else if self.is_safe_code(address, offset, bytes.len() as u64) {
            self.code.push(Code { address, offset: offset as usize, len: bytes.len() });
        }
    }

    /// Invariant 1.
    fn is_safe_code(&self, address: u64, offset: u64, len: u64) -> bool {
        let end = offset + len;
        let mut around = 0;
        for load in &self.loads {
            if load.file_end() <= offset || load.offset >= end {
                continue;
            }
            let inside = load.offset <= offset && end <= load.file_end();
            let same_place = address.wrapping_sub(load.address) == offset.wrapping_sub(load.offset);
            if !inside || !same_place || !load.is_code() {
                return false;
            }
            around += 1;
        }
        around == 1 && !self.is_written(address, len)
    }

    /// Whether a writable segment's pages cover these addresses.
    fn is_written(&self, address: u64, len: u64) -> bool {
        self.loads.iter().filter(|load| load.flags & elf::PF_W.0 != 0).any(|load| {
            load.address < address + len && address < load.address.saturating_add(load.memory_bytes)
        })
    }

    fn read_relocations(&mut self, section: &elf::SectionHeader64<LE>) -> Result<(), Refusal> {
        let Some((relocations, _)) =
            section.rela(LE, self.bytes).map_err(|_| Refusal::Malformed)?
        else {
            return Ok(());
        };
        self.relocations.extend(relocations.iter().map(|relocation| Relocation {
            address: relocation.r_offset(LE),
            addend: relocation.r_addend(LE) as u64,
        }));
        Ok(())
    }

    /// Compact relative relocations: the addend is the word in place.
    fn read_relative(
        &self,
        section: &elf::SectionHeader64<LE>,
        in_place: &mut Vec<u64>,
    ) -> Result<(), Refusal> {
        if let Some(words) = section.relr(LE, self.bytes).map_err(|_| Refusal::Malformed)? {
            in_place.extend(words.take(self.bytes.len() / 8));
        }
        Ok(())
    }

    fn add_relative(&mut self, in_place: &[u64]) {
        for &address in in_place {
            let word = self.data_at(address).and_then(|data| data.bytes_at(address)?.first_chunk());
            let addend = word.map_or(0, |word| u64::from_le_bytes(*word));
            self.relocations.push(Relocation { address, addend });
        }
    }

    fn read_symbols(
        &mut self,
        sections: &SectionTable<'a, Header, &'a [u8]>,
    ) -> Result<(), Refusal> {
        for kind in [elf::SHT_SYMTAB, elf::SHT_DYNSYM] {
            let table = sections.symbols(LE, self.bytes, kind).map_err(|_| Refusal::Malformed)?;
            for symbol in table.iter() {
                let (address, size) = (symbol.st_value(LE), symbol.st_size(LE));
                let named = matches!(
                    symbol.st_type(),
                    elf::STT_FUNC | elf::STT_NOTYPE | elf::STT_GNU_IFUNC | elf::STT_OBJECT
                );
                if named && self.code_at(address).is_some() {
                    self.symbols.push(Symbol { address, size });
                }
            }
        }
        Ok(())
    }
}

fn check_header(bytes: &[u8]) -> Result<&Header, Refusal> {
    if bytes.len() > FILE_BYTES_MAX {
        return Err(Refusal::TooLarge);
    }
    let identity = bytes.get(..6).filter(|b| b[..4] == elf::ELFMAG).ok_or(Refusal::NotElf)?;
    if identity[4] != 2 || identity[5] != 1 {
        return Err(Refusal::Machine);
    }
    let header = Header::parse(bytes).map_err(|_| Refusal::Malformed)?;
    let for_linux = matches!(header.e_ident.os_abi, elf::ELFOSABI_SYSV | elf::ELFOSABI_GNU);
    if header.e_machine(LE) != elf::EM_X86_64 || !for_linux {
        return Err(Refusal::Machine);
    }
    let kind = header.e_type(LE);
    if kind != elf::ET_EXEC && kind != elf::ET_DYN {
        return Err(Refusal::Kind);
    }
    Ok(header)
}

fn loads(header: &Header, bytes: &[u8]) -> Result<Vec<Load>, Refusal> {
    let headers = header.program_headers(LE, bytes).map_err(|_| Refusal::Malformed)?;
    let loads: Vec<Load> = headers
        .iter()
        .filter(|header| header.p_type(LE) == elf::PT_LOAD)
        .map(|header| Load {
            offset: header.p_offset(LE),
            address: header.p_vaddr(LE),
            file_bytes: header.p_filesz(LE),
            memory_bytes: header.p_memsz(LE),
            flags: header.p_flags(LE).0,
        })
        .collect();
    let whole = loads.iter().all(|load| load.file_end() <= bytes.len() as u64);
    if whole && (1..=LOADS_MAX).contains(&loads.len()) {
        Ok(loads)
    } else {
        Err(Refusal::Malformed)
    }
}

fn has_interpreter(header: &Header, bytes: &[u8]) -> bool {
    let headers = header.program_headers(LE, bytes).unwrap_or(&[]);
    headers.iter().any(|header| header.p_type(LE) == elf::PT_INTERP)
}

fn soname<'a>(sections: &SectionTable<'a, Header, &'a [u8]>, bytes: &'a [u8]) -> Option<&'a [u8]> {
    let (entries, link) = sections.dynamic(LE, bytes).ok()??;
    let strings = sections.strings(LE, bytes, link).ok()?;
    let entry = entries.iter().find(|entry| entry.tag(LE) == elf::DT_SONAME)?;
    strings.get(u32::try_from(entry.val(LE)).ok()?).ok()
}
