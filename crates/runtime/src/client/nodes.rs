//! What an exec asks that may go on at another node, and where the image has a place on the host.

use core::ffi::CStr;

use husk_abi::Errno;
use husk_proto::Shortcuts as _;
use husk_proto::place::Rule;
use husk_proto::process::Processes as _;

use crate::thread::client::ThreadClient;

impl ThreadClient {
    /// How many nodes the image has, if this is the home of all names; else 0.
    pub fn nodes(&mut self) -> u16 {
        self.with_open(|served| served.services().nodes()).unwrap_or(0)
    }

    /// The image's directory at the host, where it has one, into `out`.
    pub fn private_path<'a>(&mut self, out: &'a mut [u8]) -> Option<&'a CStr> {
        let length = self.with_open(|served| {
            let path = served.services().private_path();
            out.get_mut(..path.len())?.copy_from_slice(path);
            Some(path.len())
        });
        *out.get_mut(length??)? = 0;
        CStr::from_bytes_until_nul(out).ok().filter(|path| !path.is_empty())
    }

    /// How the image's programs are placed, where nobody says otherwise.
    pub fn place_rule(&mut self) -> Rule {
        self.with_open(|served| served.services().place_rule()).unwrap_or_default()
    }

    /// Whose turn it is among the nodes.
    pub fn next_node_turn(&mut self) -> u64 {
        self.with_open(|served| served.services().next_node_turn()).unwrap_or(0)
    }

    /// Whether a process supervises this `husk run`.
    pub fn is_supervisor(&mut self, pid: u32) -> bool {
        self.with_open(|served| served.services().home_pid() == pid).unwrap_or(false)
    }

    /// What a program takes along to another node, with its directory's path if that is in a tree.
    pub fn takes_along<'a>(
        &mut self,
        numbers: &'a mut [u32],
        passed: &'a mut [u32],
        place: &'a mut [u8],
    ) -> Result<Along<'a>, Errno> {
        let along = self.with_open(|served| {
            let (count, many) = served.inherited_along(numbers, passed)?;
            if many > 0 {
                // Another process looks into this one's table.
                served.services().set_alone(false);
            }
            let umask = served.services().umask();
            let path = served.directory_in_tree()?;
            let room = place.get_mut(..path.len()).ok_or(Errno::ENAMETOOLONG)?;
            room.copy_from_slice(path);
            Ok((count, many, path.len(), umask))
        });
        let (count, many, length, umask) = along.unwrap_or(Err(Errno::ENODEV))?;
        let (numbers, passed, here) = (&numbers[..count], &passed[..many], &place[..length]);
        Ok(Along { numbers, passed, here, umask })
    }
}

/// What a program takes along to another node.
pub struct Along<'a> {
    /// Descriptors of the host.
    pub numbers: &'a [u32],
    /// Numbers under which the image has something open: its own, or what the host's show.
    pub passed: &'a [u32],
    /// The path of its directory, if that is in a tree.
    pub here: &'a [u8],
    /// Its umask.
    pub umask: u32,
}
