//! What is asked of the server of a volume from outside of its image.

use husk_proto::Result;

use crate::Direct;

pub(crate) fn volume_resize(
    me: &mut Direct,
    tree: u32,
    size_bytes: u64,
    told: &mut dyn FnMut(u64, u64),
) -> Result<()> {
    me.ask_volume_size(tree, size_bytes, told)
}
