//! Summarises changes on one screen: always removals and conflicts, of the others as many as fit.

use std::collections::HashSet;
use std::path::PathBuf;

use super::choice::{Unit, units};
use crate::differences::change::{Change, Verb};
use crate::differences::patch::printable;
use crate::differences::show;

/// Lines of a screen that are not for changes: sum, question, and what was there.
const ROWS_LEFT: usize = 6;

/// A line each, as far as `rows` go, and their sum.
pub fn brief(changes: &[Change], rows: usize) -> String {
    let units = units(changes, 0..changes.len());
    let must = |unit: &Unit| unit.members().any(|index| must_be_seen(&changes[index]));
    let always = units.iter().filter(|unit| must(unit)).count();
    let mut room = rows.saturating_sub(ROWS_LEFT + always);
    let several = changes.iter().any(|change| change.overlay != changes[0].overlay);
    let (mut text, mut left, mut overlay) = (String::new(), 0, None);
    for unit in &units {
        if !must(unit) {
            if room == 0 {
                left += unit.members().count();
                continue;
            }
            room -= 1;
        }
        let first = unit.members().next().map(|index| &changes[index]);
        let of = first.map(|change| &change.overlay);
        if several && overlay != of {
            text.extend(of.map(|path| format!("in {}:\n", printable(path))));
            overlay = of;
        }
        text += &(unit.line(changes) + "\n");
    }
    if left > 0 {
        text += &format!("... and {left} more; \"l\" shows all\n");
    }
    text + &show::sum(changes).map_or("no changes\n".to_owned(), |sum| sum + "\n")
}

/// What goes from the host, and what does not come as the image has it.
fn must_be_seen(change: &Change) -> bool {
    let other_kind = change.old.as_ref().zip(change.new.as_ref());
    change.verb == Verb::Removed
        || change.conflict.is_some()
        || other_kind.is_some_and(|(old, new)| old.what != new.what)
}

/// What is dropped where only `taken` is written back.
pub fn rest(changes: &[Change], taken: &[Change]) -> String {
    let taken: HashSet<PathBuf> = taken.iter().map(Change::target).collect();
    let left: Vec<Change> =
        changes.iter().filter(|change| !taken.contains(&change.target())).cloned().collect();
    show::sum_with_removed(&left).map_or(String::new(), |sum| format!("to be dropped: {sum}\n"))
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::review::choice::tests::{change, several};

    #[test]
    fn what_goes_is_seen_however_much_there_is() {
        assert_eq!(
            brief(&several(), 24),
            "A  a/  and 2 below it\nM  a.txt\nD  old/  and 1 below it\nM  src/b.o\n\
             3 added, 2 changed, 2 removed\n"
        );
        let mut many: Vec<Change> =
            (0..100).map(|n| change(if n % 10 == 0 { 'D' } else { 'M' }, &n.to_string())).collect();
        many[5].conflict = Some("has changed".to_owned());
        let text = brief(&many, 10);
        assert_eq!(text.lines().filter(|line| line.starts_with('D')).count(), 10);
        assert!(text.contains("M! 5  conflict: has changed\n"), "{text}");
        assert!(text.contains("... and 89 more; "), "{text}");
        assert_eq!(brief(&[], 10), "no changes\n");
    }
}
