//! POSIX access control lists, as `system.posix_acl_access` and `system.posix_acl_default` hold
//! them (acl(5); the rules are those of Linux's `fs/posix_acl.c`).
//!
//! ```text
//!   version:32 = 2, then of each entry   tag:16 rights:16 id:32     (little endian)
//!   in this order: owner, users, group, groups, mask, other
//! ```
//!
//! Invariants
//! 1. A list that was `check`ed has one owner, one group and one other, and a mask where it has
//!    users or groups. All functions here take others too: entries that are no entries are skipped.
//! 2. With an access list the mode's group bits are those of the mask.

use crate::fs::{Credentials, Step};
use crate::{Errno, Result};

/// The list that says who may.
pub const ACCESS: &[u8] = b"system.posix_acl_access";
/// The list of a directory that what is made in it gets.
pub const DEFAULT: &[u8] = b"system.posix_acl_default";
/// Longest list that new objects get, bytes: 128 entries.
pub const BYTES_MAX: usize = HEAD + 128 * ENTRY;

const HEAD: usize = 4;
const ENTRY: usize = 8;
const VERSION: u32 = 2;

const OWNER: u16 = 0x01;
const USER: u16 = 0x02;
const GROUP_OF: u16 = 0x04;
const GROUP: u16 = 0x08;
const MASK: u16 = 0x10;
const OTHER: u16 = 0x20;

const NOBODY: u32 = u32::MAX;

/// One entry.
#[derive(Clone, Copy)]
struct Entry {
    tag: u16,
    rights: u32,
    id: u32,
}

fn entry(bytes: &[u8]) -> Entry {
    let half = |at: usize| u16::from_le_bytes([bytes[at], bytes[at + 1]]);
    let id = u32::from_le_bytes([bytes[4], bytes[5], bytes[6], bytes[7]]);
    Entry { tag: half(0), rights: u32::from(half(2)), id }
}

fn entries(list: &[u8]) -> impl Iterator<Item = Entry> + '_ {
    list.get(HEAD..).unwrap_or(&[]).chunks_exact(ENTRY).map(entry)
}

/// Whether `name` is one of the two attributes.
pub fn is_list(name: &[u8]) -> bool {
    name == ACCESS || name == DEFAULT
}

/// Whether a value has the shape of a list with entries; without any (`false`) it takes the list
/// away.
pub fn is_given(value: &[u8]) -> Result<bool> {
    if value.is_empty() {
        return Ok(false);
    }
    let Some(head) = value.first_chunk() else { return Err(Errno::EINVAL) };
    if u32::from_le_bytes(*head) != VERSION {
        return Err(Errno::EOPNOTSUPP);
    }
    let whole = (value.len() - HEAD).is_multiple_of(ENTRY);
    let known = |Entry { tag, id, .. }: Entry| match tag {
        USER | GROUP => id != NOBODY,
        tag => matches!(tag, OWNER | GROUP_OF | MASK | OTHER),
    };
    match whole && entries(value).all(known) {
        true => Ok(value.len() > HEAD),
        false => Err(Errno::EINVAL),
    }
}

/// Invariant 1: each tag in its place, and a mask where one is needed.
pub fn check(list: &[u8]) -> Result<()> {
    let (mut next, mut needs_mask) = (OWNER, false);
    for Entry { tag, rights, .. } in entries(list) {
        let named = matches!(tag, USER | GROUP);
        let fits = match tag {
            OWNER => next == OWNER,
            USER => next == USER,
            GROUP_OF => next == USER,
            GROUP => next == GROUP,
            MASK => next == GROUP,
            OTHER => next == OTHER || next == GROUP && !needs_mask,
            _ => false,
        };
        if !fits || rights & !7 != 0 {
            return Err(Errno::EINVAL);
        }
        needs_mask |= named;
        next = match tag {
            OWNER => USER,
            GROUP_OF => GROUP,
            MASK => OTHER,
            OTHER => 0,
            _ => next,
        };
    }
    if next == 0 { Ok(()) } else { Err(Errno::EINVAL) }
}

/// The permission bits that an access list stands for, and whether it says no more than they do.
pub fn mode_of(list: &[u8]) -> (u32, bool) {
    let (mut mode, mut mask, mut same) = (0, None, true);
    for Entry { tag, rights, .. } in entries(list) {
        match tag {
            OWNER => mode |= rights << 6,
            GROUP_OF => mode |= rights << 3,
            OTHER => mode |= rights,
            MASK => mask = Some(rights),
            _ => {}
        }
        same &= matches!(tag, OWNER | GROUP_OF | OTHER);
    }
    let group = mask.map_or(mode & 0o070, |mask| mask << 3);
    (mode & 0o707 | group, same)
}

/// The entry that the mode's group bits are of.
fn group_class(list: &[u8]) -> u16 {
    if entries(list).any(|entry| entry.tag == MASK) { MASK } else { GROUP_OF }
}

/// Puts `change(class shift, rights)` in the entries of owner, group class and other.
fn each_class(list: &mut [u8], mut change: impl FnMut(u32, u32) -> u32) {
    let group = group_class(list);
    let Some(entries) = list.get_mut(HEAD..) else { return };
    for bytes in entries.chunks_exact_mut(ENTRY) {
        let Entry { tag, rights, .. } = entry(bytes);
        let shift = match tag {
            OWNER => 6,
            OTHER => 0,
            tag if tag == group => 3,
            _ => continue,
        };
        let rights = change(shift, rights) as u16;
        bytes[2..4].copy_from_slice(&rights.to_le_bytes());
    }
}

/// Turns a directory's default list into the access list of what is made in it with `mode`; the
/// mode it gets, and whether the list says more than that.
pub fn hand_down(list: &mut [u8], mode: u32) -> (u32, bool) {
    each_class(list, |shift, rights| rights & mode >> shift);
    let (bits, same) = mode_of(list);
    (mode & !0o777 | bits, !same)
}

/// What `chmod` does to an access list.
pub fn change_mode(list: &mut [u8], mode: u32) {
    each_class(list, |shift, _| mode >> shift & 7);
}

/// Whether `who`, who is not the owner, may by an access list.
fn allows(who: &Credentials<'_>, step: &Step, list: &[u8], want: u32) -> bool {
    let mask = entries(list).find(|entry| entry.tag == MASK).map_or(7, |entry| entry.rights);
    let mut found = false;
    for Entry { tag, rights, id } in entries(list) {
        let belongs = match tag {
            USER if id == who.uid => return rights & mask & want == want,
            GROUP_OF => who.in_group(step.gid),
            GROUP => who.in_group(id),
            OTHER => return !found && rights & want == want,
            _ => false,
        };
        if belongs && rights & want == want {
            return mask & want == want;
        }
        found |= belongs;
    }
    false
}

impl Credentials<'_> {
    /// `permit` of what has an access list.
    pub fn permit_by_list(&self, step: &Step, list: &[u8], want: u32) -> Result<()> {
        // Linux looks at no list where the group class has no rights.
        if self.uid == step.uid || step.mode & 0o070 == 0 {
            return self.permit(step, want);
        }
        if allows(self, step, list, want) { Ok(()) } else { self.permit_by_capability(step, want) }
    }
}

#[cfg(test)]
mod tests {
    extern crate std;

    use super::*;
    use crate::Inode;
    use crate::fs::Kind;
    use std::vec::Vec;

    fn list(entries: &[(u16, u16, u32)]) -> Vec<u8> {
        let mut bytes = VERSION.to_le_bytes().to_vec();
        for (tag, rights, id) in entries {
            bytes.extend(tag.to_le_bytes());
            bytes.extend(rights.to_le_bytes());
            bytes.extend(id.to_le_bytes());
        }
        bytes
    }

    const ALL: u32 = NOBODY;

    fn usual() -> Vec<u8> {
        list(&[(OWNER, 7, ALL), (USER, 6, 5), (GROUP_OF, 5, ALL), (MASK, 7, ALL), (OTHER, 0, ALL)])
    }

    #[test]
    fn only_lists_in_order_are_lists() {
        assert_eq!((is_given(&usual()), check(&usual())), (Ok(true), Ok(())));
        assert_eq!((is_given(b""), is_given(&list(&[]))), (Ok(false), Ok(false)));
        assert_eq!(is_given(&[1, 0, 0, 0]), Err(Errno::EOPNOTSUPP));
        let mut cut = usual();
        cut.pop();
        for wrong in [b"abc", &list(&[(64, 5, ALL)])[..], &list(&[(USER, 7, ALL)]), &cut] {
            assert_eq!(is_given(wrong), Err(Errno::EINVAL), "{wrong:?}");
        }
        let wrong: [&[(u16, u16, u32)]; 5] = [
            &[(OWNER, 7, ALL)],
            &[(GROUP_OF, 5, ALL), (OWNER, 7, ALL), (OTHER, 0, ALL)],
            &[(OWNER, 7, ALL), (USER, 6, 5), (GROUP_OF, 5, ALL), (OTHER, 0, ALL)],
            &[(OWNER, 9, ALL), (GROUP_OF, 5, ALL), (OTHER, 0, ALL)],
            &[(OWNER, 7, ALL), (GROUP_OF, 5, ALL), (OTHER, 0, ALL), (OTHER, 0, ALL)],
        ];
        for entries in wrong {
            assert_eq!(check(&list(entries)), Err(Errno::EINVAL), "{entries:?}");
        }
    }

    #[test]
    fn a_default_list_gives_what_mode_and_list_both_have() {
        let mut given = usual();
        assert_eq!(hand_down(&mut given, 0o2640), (0o2640, true));
        let wanted = [(OWNER, 6, ALL), (USER, 6, 5), (GROUP_OF, 5, ALL), (MASK, 4, ALL)];
        assert_eq!(given[..36], list(&wanted)[..]);
        let mut three = list(&[(OWNER, 6, ALL), (GROUP_OF, 6, ALL), (OTHER, 4, ALL)]);
        assert_eq!(hand_down(&mut three, 0o777), (0o664, false));
    }

    #[test]
    fn chmod_changes_the_mask_and_leaves_the_group() {
        let mut changed = usual();
        change_mode(&mut changed, 0o4621);
        assert_eq!(mode_of(&changed), (0o621, false));
        assert_eq!(
            entries(&changed).map(|entry| entry.rights).collect::<Vec<_>>(),
            [6, 6, 5, 2, 1]
        );
    }

    #[test]
    fn who_is_named_has_what_the_mask_leaves_and_nothing_else() {
        let inode = Inode { number: 1, generation: 1 };
        let (kind, unlisted) = (Kind::File, false);
        let step = Step { inode, kind, mode: 0o770, uid: 1, gid: 2, unlisted, acl: true };
        let who =
            |uid, gid, groups| Credentials { uid, gid, groups, capabilities: 0, within: None };
        let may = |uid, gid, want| who(uid, gid, &[]).permit_by_list(&step, &usual(), want).is_ok();
        assert!(may(5, 9, 6) && !may(5, 9, 1), "a named user has the named rights");
        assert!(may(5, 2, 6) && !may(5, 2, 5), "also a member of the group");
        assert!(may(6, 2, 5) && !may(6, 2, 2), "the group has its own, not the mask's");
        assert!(!may(6, 9, 4) && may(1, 9, 7), "others have none, the owner the mode's");
        let low = Step { mode: 0o700, ..step };
        assert!(who(5, 9, &[]).permit_by_list(&low, &usual(), 4).is_err(), "no group class");
    }
}
