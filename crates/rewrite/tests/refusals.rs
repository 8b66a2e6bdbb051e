//! Every form, and every reason not to use it, on a function made for the purpose.

mod support;

use husk_rewrite::{Form, Reason, Refusal, Verdict, patch};
use support::{FIXED, SHARED, assemble, function, verdicts};

use Verdict::{Left, Patched};

fn one(body: &str) -> Verdict {
    let found = verdicts(&function(body), SHARED);
    assert_eq!(found.len(), 1, "one site expected in {body}");
    found[0]
}

#[test]
fn a_number_loaded_right_before_is_patched() {
    assert_eq!(one("mov $39,%eax; syscall; ret"), Patched(Form::Numbered));
    assert_eq!(one("mov $39,%rax; syscall; ret"), Patched(Form::NumberedWide));
}

#[test]
fn a_compare_right_behind_is_patched() {
    let checked = "mov %edi,%eax; syscall; cmp $-4096,%rax; ja 1f; ret; 1: neg %eax; ret";
    assert_eq!(one(checked), Patched(Form::Compare4096));
    assert_eq!(one(&checked.replace("4096", "4095")), Patched(Form::Compare4095));
    assert_eq!(one(&checked.replace("4096", "4094")), Left(Reason::NoForm));
    assert_eq!(one(&checked.replace("%rax;", "%eax;")), Left(Reason::NoForm));
}

#[test]
fn a_number_out_of_the_table_is_left() {
    assert_eq!(one("mov $499,%eax; syscall; ret"), Patched(Form::Numbered));
    assert_eq!(one("mov $500,%eax; syscall; ret"), Left(Reason::NumberTooLarge));
    assert_eq!(one("mov $-1,%eax; syscall; ret"), Left(Reason::NumberTooLarge));
}

#[test]
fn a_jump_to_the_syscall_itself_is_left_or_takes_the_other_form() {
    let retry = "mov $39,%eax; 1: syscall; test %rax,%rax; js 1b; ret";
    assert_eq!(one(retry), Left(Reason::TargetInside));
    let checked = "mov $39,%eax; 1: syscall; cmp $-4096,%rax; ja 1b; ret";
    assert_eq!(one(checked), Patched(Form::Compare4096));
}

#[test]
fn a_jump_to_any_later_byte_is_left() {
    for byte in 1..7 {
        let body = format!("1: mov $39,%eax; syscall; test %rax,%rax; js 1b+{byte}; ret");
        assert_eq!(one(&body), Left(Reason::TargetInside), "{byte}");
    }
}

#[test]
fn a_jump_to_the_start_of_a_site_is_harmless() {
    assert_eq!(
        one("1: mov $39,%eax; syscall; test %rax,%rax; js 1b; ret"),
        Patched(Form::Numbered)
    );
}

#[test]
fn a_jump_to_the_compare_is_left() {
    let body =
        "test %edi,%edi; js 1f; mov %edi,%eax; syscall; 1: cmp $-4096,%rax; ja 2f; ret; 2: ret";
    assert_eq!(one(body), Left(Reason::TargetInside));
}

#[test]
fn a_jump_from_another_function_counts() {
    let source = function("mov $39,%eax; .Linside: syscall; ret")
        + ".type g,@function\ng: .cfi_startproc; jmp .Linside; .cfi_endproc; .size g,.-g\n";
    assert_eq!(verdicts(&source, SHARED), [Left(Reason::TargetInside)]);
}

#[test]
fn a_code_address_in_a_register_counts() {
    let taken = "lea 1f(%rip),%rdx; jmp *%rdx; mov $39,%eax; 1: syscall; ret";
    assert_eq!(one(taken), Left(Reason::TargetInside));
}

#[test]
fn a_pointer_in_data_counts() {
    let source = function("mov $39,%eax; .Linside: syscall; ret") + ".data\n.quad .Linside\n";
    assert_eq!(verdicts(&source, SHARED), [Left(Reason::TargetInside)]);
    assert_eq!(verdicts(&source, FIXED), [Left(Reason::TargetInside)]);
    let source = source.replace(".data", ".data\n.balign 8");
    let packed: Vec<&str> = [SHARED, &["-Wl,-z,pack-relative-relocs"]].concat();
    assert_eq!(verdicts(&source, &packed), [Left(Reason::TargetInside)]);
}

#[test]
fn an_entry_of_a_jump_table_counts() {
    let body = "lea .Ltable(%rip),%rdx; movslq (%rdx,%rdi,4),%rax; add %rdx,%rax; jmp *%rax
        .Lfirst: mov $39,%eax; .Linside: syscall; ret";
    let table = |entry: &str| {
        let data = ".section .rodata\n.align 4\n.Ltable: .long .Lfirst-.Ltable";
        function(body) + data + &format!(", {entry}-.Ltable\n")
    };
    assert_eq!(verdicts(&table(".Linside"), SHARED), [Left(Reason::TargetInside)]);
    assert_eq!(verdicts(&table(".Lfirst"), SHARED), [Patched(Form::Numbered)]);
}

#[test]
fn a_computed_jump_without_a_table_is_left() {
    let body = "add %rdi,%rax; jmp *%rax; mov $39,%eax; syscall; ret";
    assert_eq!(one(body), Left(Reason::UnknownJump));
    let tail_call = "mov $39,%eax; syscall; mov 8(%rdi),%rax; jmp *%rax";
    assert_eq!(one(tail_call), Patched(Form::Numbered));
}

#[test]
fn a_landing_pad_counts() {
    let source = ".globl f\n.type f,@function\nf: .cfi_startproc\n.cfi_lsda 0x1b,.Lexceptions
        nop; mov $39,%eax; .Linside: syscall; ret\n.cfi_endproc\n.size f,.-f
        .section .gcc_except_table,\"a\"\n.Lexceptions: .byte 0xff,0xff,0x01
        .uleb128 .Lend-.Lbegin\n.Lbegin: .uleb128 0; .uleb128 1; .uleb128 .Linside-f; .uleb128 0
        .Lend:\n";
    assert_eq!(verdicts(source, SHARED), [Left(Reason::TargetInside)]);
    let harmless = source.replace(".Linside-f", "0");
    assert_eq!(verdicts(&harmless, SHARED), [Patched(Form::Numbered)]);
}

#[test]
fn a_red_zone_in_use_is_left() {
    let site = "mov $39,%eax; syscall;";
    let red = Left(Reason::RedZone);
    assert_eq!(one(&format!("mov %rdi,-8(%rsp); {site} mov -8(%rsp),%rax; ret")), red);
    assert_eq!(one(&format!("lea -16(%rsp),%rsi; {site} ret")), red);
    assert_eq!(one(&format!("{site} mov %rdi,-8(%rsp); ret")), red);
    let frame = "push %rbp; mov %rsp,%rbp;";
    assert_eq!(one(&format!("{frame} mov %edi,-4(%rbp); {site} pop %rbp; ret")), red);
    assert_eq!(
        one(&format!("{frame} push %rbx; mov %edi,-16(%rbp); {site} pop %rbx; pop %rbp; ret")),
        red
    );
    assert_eq!(one(&format!("lea 8(%rsp),%r10; mov %rdi,-16(%r10); {site} ret")), red);
    assert_eq!(one(&format!("mov %rsp,%rsi; mov %rdi,-8(%rsi); {site} ret")), red);
}

#[test]
fn allocated_stack_is_no_red_zone() {
    let site = "mov $39,%eax; syscall;";
    let good = Patched(Form::Numbered);
    let allocated = "sub $24,%rsp; mov %rdi,8(%rsp);";
    assert_eq!(one(&format!("{allocated} {site} add $24,%rsp; ret")), good);
    let frame = "push %rbp; mov %rsp,%rbp; sub $16,%rsp; mov %edi,-4(%rbp);";
    assert_eq!(one(&format!("{frame} {site} leave; ret")), good);
    let pushed = "push %rbp; mov %rsp,%rbp; push %rbx; mov -8(%rbp),%rdi;";
    assert_eq!(one(&format!("{pushed} {site} pop %rbx; pop %rbp; ret")), good);
    let copy = "sub $24,%rsp; lea 16(%rsp),%r10; mov %rdi,-8(%r10);";
    assert_eq!(one(&format!("{copy} {site} add $24,%rsp; ret")), good);
    let probe = "lea -4096(%rsp),%r11; sub $4096,%rsp;";
    assert_eq!(one(&format!("{probe} {site} add $4096,%rsp; ret")), good);
}

#[test]
fn a_red_zone_reaches_into_the_part_moved_elsewhere() {
    for jump in ["js", "jmp"] {
        let source = function(&format!("mov %rdi,-8(%rsp); test %edi,%edi; {jump} cold; ret"))
            + ".type cold,@function\ncold: .cfi_startproc; mov $39,%eax; syscall; ret; .cfi_endproc
               .size cold,.-cold\n";
        assert_eq!(verdicts(&source, SHARED), [Left(Reason::RedZone)], "{jump}");
    }
}

#[test]
fn a_stack_pointer_from_elsewhere_is_left() {
    let site = "mov $39,%eax; syscall; ret";
    for load in
        ["mov %rdi,%rsp", "mov 8(%rdi),%rsp", "xchg %rdi,%rsp", "lea 8(%rdi),%rsp", "pop %rsp"]
    {
        assert_eq!(one(&format!("{load}; {site}")), Left(Reason::StackSwitched), "{load}");
    }
    let saved = "push %rbx; mov %rsp,%rbx; sub %rdi,%rsp; mov $39,%eax; syscall
        mov %rbx,%rsp; pop %rbx; ret";
    assert_eq!(one(saved), Patched(Form::Numbered));
}

#[test]
fn sites_whose_stack_or_bytes_matter_are_left() {
    assert_eq!(one("mov $15,%eax; syscall"), Left(Reason::Sigreturn));
    assert_eq!(one("mov $15,%rax; syscall"), Left(Reason::Sigreturn));
    assert_eq!(one("mov $60,%eax; syscall; hlt"), Left(Reason::StackMayBeGone));
    assert_eq!(one("mov $11,%eax; syscall; ret"), Patched(Form::Numbered));
    let leave = "mov $11,%eax; syscall; xor %edi,%edi; mov $60,%eax; syscall; hlt";
    let found = verdicts(&function(leave), SHARED);
    assert_eq!(found, [Left(Reason::StackMayBeGone); 2]);
}

#[test]
fn a_function_that_does_not_decode_is_left() {
    assert_eq!(one("mov $39,%eax; syscall; ret; .byte 0x06"), Left(Reason::Unclean));
    // The last instruction reaches behind the end of the function.
    assert_eq!(one("mov $39,%eax; syscall; ret; .byte 0xb8"), Left(Reason::Unclean));
}

#[test]
fn bytes_that_only_look_like_a_site_are_not_found() {
    // mov $0x50f,%ecx holds the bytes 0f 05.
    let found = verdicts(&function("mov $0x050f27b8,%ecx; mov $0x050f,%edx; ret"), SHARED);
    assert_eq!(found, []);
}

#[test]
fn writable_code_is_never_touched() {
    let source = function("mov $39,%eax; syscall; ret");
    let writable: Vec<&str> = [FIXED, &["-Wl,-N"]].concat();
    assert_eq!(verdicts(&source, &writable), []);
    assert_eq!(verdicts(&source, FIXED), [Patched(Form::Numbered)]);
}

/// File offsets of the program headers that are loaded.
fn loads(bytes: &[u8]) -> Vec<usize> {
    let word = |at: usize| u64::from_le_bytes(bytes[at..at + 8].try_into().expect("8 bytes"));
    let count = u16::from_le_bytes([bytes[56], bytes[57]]) as usize;
    let headers = (0..count).map(|index| word(32) as usize + 56 * index);
    headers.filter(|&at| bytes[at..at + 4] == [1, 0, 0, 0]).collect()
}

#[test]
fn only_executable_read_only_segments_are_touched() {
    let good = assemble(&function("mov $39,%eax; syscall; ret"), FIXED);
    let text = loads(&good).into_iter().find(|&at| good[at + 4] == 5).expect("text");
    let sites = |bytes: &[u8]| patch(bytes).expect("a good file").sites.len();
    assert_eq!(sites(&good), 1);
    for flags in [4, 6, 7] {
        let mut bytes = good.clone();
        bytes[text + 4] = flags;
        assert_eq!(sites(&bytes), 0, "flags {flags}");
    }
}

#[test]
fn code_under_a_writable_segment_is_never_touched() {
    let good = assemble(&function("mov $39,%eax; syscall; ret"), FIXED);
    let text = loads(&good).into_iter().find(|&at| good[at + 4] == 5).expect("text");
    let other = loads(&good).into_iter().find(|&at| good[at + 4] == 4).expect("constants");
    let mut bytes = good.clone();
    bytes[other + 4] = 6;
    assert_eq!(patch(&bytes).expect("a good file").sites.len(), 1);
    bytes.copy_within(text + 16..text + 24, other + 16); // p_vaddr
    assert_eq!(patch(&bytes).expect("a good file").sites.len(), 0);
}

#[test]
fn a_relocation_inside_a_site_is_left() {
    let source = function("nop; mov $39,%eax; syscall; ret") + ".data\nd: .quad f\n";
    let mut bytes = assemble(&source, SHARED);
    let site = patch(&bytes).expect("a good file").sites[0];
    assert_eq!(site.verdict, Patched(Form::Numbered));
    let relocation = relocation_at(&bytes);
    bytes[relocation..relocation + 8].copy_from_slice(&(site.address - 4).to_le_bytes());
    let again = patch(&bytes).expect("a good file").sites[0];
    assert_eq!(again.verdict, Left(Reason::RelocationInside));
}

/// File offset of the only dynamic relocation.
fn relocation_at(bytes: &[u8]) -> usize {
    use object::{Object, ObjectSection};
    let file = object::File::parse(bytes).expect("an ELF file");
    let section = file.section_by_name(".rela.dyn").expect("relocations");
    let (offset, size) = section.file_range().expect("in the file");
    assert_eq!(size, 24, "one relocation expected");
    offset as usize
}

#[test]
fn whole_files_are_refused_with_a_reason() {
    let good = assemble(&function("mov $39,%eax; syscall; ret"), SHARED);
    let with = |place: usize, byte: u8| {
        let mut bytes = good.clone();
        bytes[place] = byte;
        patch(&bytes).map(|patched| patched.sites.len())
    };
    assert_eq!(with(0, 0), Err(Refusal::NotElf));
    assert_eq!(with(4, 1), Err(Refusal::Machine)); // 32-bit
    assert_eq!(with(5, 2), Err(Refusal::Machine)); // big-endian
    assert_eq!(with(7, 9), Err(Refusal::Machine)); // FreeBSD
    assert_eq!(with(7, 3), Ok(1)); // GNU
    assert_eq!(with(18, 0xb7), Err(Refusal::Machine)); // AArch64
    assert_eq!(with(16, 1), Err(Refusal::Kind)); // relocatable
    assert_eq!(with(16, 4), Err(Refusal::Kind)); // core
    assert_eq!(patch(&[]).unwrap_err(), Refusal::NotElf);
    assert_eq!(patch(b"#!/bin/sh\n").unwrap_err(), Refusal::NotElf);
    assert_eq!(patch(&good[..64]).unwrap_err(), Refusal::Malformed);
    assert_eq!(patch(&good[..good.len() - 1]).unwrap_err(), Refusal::Malformed);
    let mut bare = good.clone();
    bare[40..48].fill(0); // e_shoff
    bare[60..62].fill(0); // e_shnum
    assert_eq!(patch(&bare).unwrap_err(), Refusal::NoSections);
}
