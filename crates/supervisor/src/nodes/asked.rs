//! `HUSK_NODE` in the environment that a first program is started with.
//!
//! Each exec on the first node looks at it (`runtime/src/process/elsewhere.rs`). A value that names
//! no node would make every one of them fail, so it is refused before anything is made.

use std::ffi::OsStr;

use crate::output::failure::Failure;

/// The variable.
pub const NODE_NAME: &str = "HUSK_NODE";

/// The node that `value` names, where an image has so many.
pub fn settle_asked(value: Option<&OsStr>, nodes: u32) -> Result<Option<u16>, Failure> {
    let Some(value) = value else { return Ok(None) };
    let text = value.to_str().filter(|text| text.bytes().all(|byte| byte.is_ascii_digit()));
    let number = text.and_then(|text| text.parse::<u32>().ok());
    if let Some(node) = number.filter(|node| *node < nodes) {
        return Ok(Some(node as u16));
    }
    let shown = value.to_string_lossy().replace(char::is_control, "?");
    let (why, remedy) = match nodes {
        1 => ("the image has one node".to_owned(), format!("add --nodes, or unset {NODE_NAME}")),
        _ => {
            let last = nodes - 1;
            (format!("the image has nodes 0 to {last}"), format!("set one, or unset {NODE_NAME}"))
        }
    };
    Err(Failure::new(format!("cannot use {NODE_NAME}={shown}"), why, remedy))
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_node_that_is_there_is_taken_and_any_other_value_is_refused() {
        let settle = |value: &str, nodes| settle_asked(Some(OsStr::new(value)), nodes);
        assert_eq!(settle_asked(None, 1).unwrap(), None);
        assert_eq!(settle("0", 1).unwrap(), Some(0));
        assert_eq!(settle("2", 3).unwrap(), Some(2));
        for wrong in ["3", "-1", "+1", "", " 1", "one", "1x", "4294967296", "99999999999999999999"]
        {
            let line = settle(wrong, 3).unwrap_err().to_string();
            assert!(line.contains("nodes 0 to 2") && !line.contains('\n'), "{wrong}: {line}");
        }
        assert!(settle("1", 1).unwrap_err().to_string().contains("add --nodes"));
    }
}
