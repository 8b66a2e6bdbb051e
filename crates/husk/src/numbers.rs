//! Whole numbers, as they are typed.

use std::fmt::Display;
use std::ops::RangeInclusive;
use std::str::FromStr;

/// Reads a number of this range. Who types something else is told what to type.
pub fn whole<T: FromStr + PartialOrd + Display + Clone>(
    range: RangeInclusive<T>,
) -> impl Fn(&str) -> Result<T, String> + Clone {
    move |typed| {
        let number = typed.parse().ok().filter(|number| range.contains(number));
        let (first, last) = (range.start(), range.end());
        number.ok_or_else(|| format!("choose a whole number from {first} to {last}"))
    }
}

#[cfg(test)]
mod tests {
    use super::whole;

    #[test]
    fn what_is_no_number_of_the_range_is_told_its_ends() {
        let read = whole::<u8>(2..=24);
        assert_eq!((read("2"), read("24")), (Ok(2), Ok(24)));
        for wrong in ["1", "25", "x", "", "-3", "2.5", "99999999999999999999"] {
            assert_eq!(read(wrong), Err("choose a whole number from 2 to 24".to_owned()));
        }
    }
}
