//! Pages of pictures: HTML files that need nothing else, with drawings in them.

use std::fmt::Write;
use std::io::{self, ErrorKind};
use std::path::Path;

use husk_supervisor::output::failure::Failure;
use husk_supervisor::run::request::reason;

/// Size of a drawing of a course, without its labels.
const WIDTH_PX: f64 = 640.0;
const LINES_PX: f64 = 200.0;
const BARS_PX: f64 = 50.0;
/// Room for labels on the left.
const LABEL_PX: f64 = 70.0;
/// Room for the name of the lines, for numbers of the x axis, and between lines and bars.
const GAP_PX: f64 = 22.0;
const COLOURS: [&str; 6] = ["#c44", "#47a", "#593", "#a63", "#849", "#666"];

/// Makes the directory of a page, before anything is measured: its parent must be there.
pub fn make_directory(directory: &Path) -> Result<(), Failure> {
    match std::fs::create_dir(directory) {
        Err(error) if error.kind() != ErrorKind::AlreadyExists => {
            Err(not_written(directory, &error))
        }
        _ if directory.is_dir() => Ok(()),
        _ => Err(not_written(directory, &ErrorKind::NotADirectory.into())),
    }
}

/// Writes a page.
pub fn write(directory: &Path, name: &str, page: &str) -> Result<(), Failure> {
    let path = directory.join(name);
    std::fs::write(&path, page).map_err(|error| not_written(&path, &error))
}

fn not_written(path: &Path, error: &io::Error) -> Failure {
    let what = format!("cannot write the report to {}", path.display());
    Failure::new(what, reason(error), "name a directory that can be made or written to")
}

/// The beginning of a page.
pub fn head(title: &str, heading: &str) -> String {
    format!(
        "<!doctype html><meta charset=utf-8><title>Husk: {title}</title>\
         <style>body{{font:14px sans-serif;max-width:60em;margin:2em auto}}\
         table{{border-collapse:collapse}}td,th{{padding:2px 8px;text-align:right}}\
         td:first-child{{text-align:left}}\
         text{{font:12px sans-serif;paint-order:stroke;stroke:#fff;stroke-width:3px}}</style>\
         <h1>{heading}</h1>"
    )
}

/// As text of a page.
pub fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}

/// Values of one kind over time.
pub struct Line<'a> {
    /// What it is.
    pub name: &'a str,
    /// One for each window; `None`: there was nothing.
    pub values: &'a [Option<f64>],
}

/// Lines over time, and counts as bars below them.
pub struct Course<'a> {
    /// What it is.
    pub title: &'a str,
    /// What the lines show, with the unit.
    pub of_lines: &'a str,
    /// The lines, all over the same time.
    pub lines: &'a [Line<'a>],
    /// What the bars count.
    pub of_bars: &'a str,
    /// One for each window.
    pub bars: &'a [usize],
    /// Length of a window, in seconds.
    pub window_s: f64,
}

impl Course<'_> {
    /// The drawing.
    pub fn drawing(&self) -> String {
        let windows = self.lines.iter().map(|line| line.values.len()).chain([self.bars.len()]);
        let windows = windows.max().unwrap_or_default().max(1);
        let step = WIDTH_PX / windows as f64;
        let (bottom, end) = (GAP_PX + LINES_PX, GAP_PX + LINES_PX + GAP_PX + BARS_PX);
        let mut drawing = format!(
            "<h3>{}</h3><svg width={:.0} height={:.0}>",
            escaped(self.title),
            LABEL_PX + WIDTH_PX + GAP_PX,
            end + GAP_PX
        );
        let values = self.lines.iter().flat_map(|line| line.values.iter().flatten());
        let most = values.copied().fold(0.0, f64::max);
        axis(&mut drawing, GAP_PX, LINES_PX, most, self.of_lines);
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let y = |value: f64| bottom - value / most.max(f64::MIN_POSITIVE) * LINES_PX;
            let _ = write!(drawing, "<path fill=none stroke={colour} d='{}'/>", {
                path(line.values, |n| LABEL_PX + (n as f64 + 0.5) * step, y)
            });
        }
        let mut x = LABEL_PX + WIDTH_PX / 3.0;
        for (line, colour) in self.lines.iter().zip(COLOURS) {
            let name = escaped(line.name);
            let _ = write!(drawing, "<text x={x:.0} y=12 fill={colour}>{name}</text>");
            x += 8.0 * line.name.len() as f64 + 16.0;
        }
        let most = self.bars.iter().copied().max().unwrap_or_default();
        axis(&mut drawing, bottom + GAP_PX, BARS_PX, most as f64, self.of_bars);
        for (n, &count) in self.bars.iter().enumerate().filter(|(_, count)| **count > 0) {
            let height = count as f64 / most as f64 * BARS_PX;
            let (x, y) = (LABEL_PX + n as f64 * step, end - height);
            let _ = write!(
                drawing,
                "<rect x={x:.1} y={y:.1} width={:.1} height={height:.1} fill=#47a />",
                (step - 1.0).max(0.5)
            );
        }
        for part in 0..=4_u8 {
            let part = f64::from(part) / 4.0;
            let (x, y) = (LABEL_PX + part * WIDTH_PX, end + 14.0);
            let seconds = part * windows as f64 * self.window_s;
            let _ = write!(drawing, "<text x={x:.0} y={y:.0}>{seconds:.1} s</text>");
        }
        drawing + "</svg>"
    }
}

/// The y axis of a part of a drawing, from 0 to `most`.
fn axis(drawing: &mut String, top: f64, height: f64, most: f64, what: &str) {
    let (bottom, right) = (top + height, LABEL_PX + WIDTH_PX);
    let (x, digits) = (LABEL_PX - 6.0, if most < 10.0 && most.fract() > 0.0 { 2 } else { 0 });
    let _ = write!(
        drawing,
        "<path stroke=#000 d='M{LABEL_PX} {top}V{bottom}H{right}'/>\
         <text x=0 y={:.0}>{}</text>\
         <text x={x:.0} y={:.0} text-anchor=end>{most:.digits$}</text>\
         <text x={x:.0} y={bottom:.0} text-anchor=end>0</text>",
        top - 8.0,
        escaped(what),
        top + 8.0,
    );
}

/// A line that breaks where there is no value.
fn path(values: &[Option<f64>], x: impl Fn(usize) -> f64, y: impl Fn(f64) -> f64) -> String {
    let (mut path, mut draws) = (String::new(), false);
    for (n, value) in values.iter().enumerate() {
        if let Some(value) = value {
            let _ = write!(path, "{}{:.1} {:.1}", if draws { 'L' } else { 'M' }, x(n), y(*value));
        }
        draws = value.is_some();
    }
    path
}

#[cfg(test)]
mod tests {
    use super::*;

    fn drawing(values: &[Option<f64>], bars: &[usize]) -> String {
        let lines = [Line { name: "a<b", values }];
        let (title, of_lines, of_bars) = ("title", "ms", "moves");
        Course { title, of_lines, lines: &lines, of_bars, bars, window_s: 0.1 }.drawing()
    }

    #[test]
    fn a_line_breaks_where_nothing_was_seen_and_reaches_its_greatest_value() {
        let text = drawing(&[Some(1.0), Some(2.0), None, Some(0.0)], &[0, 3, 0, 1]);
        let top = GAP_PX;
        assert!(text.contains(&format!("L310.0 {top:.1}M630.0 {:.1}'", top + LINES_PX)), "{text}");
        assert_eq!(text.matches("<rect").count(), 2, "{text}");
        assert!(text.contains("a&lt;b") && text.contains(">0.4 s<"), "{text}");
    }

    #[test]
    fn nothing_is_drawn_of_nothing() {
        for text in [drawing(&[], &[]), drawing(&[None], &[0]), drawing(&[Some(0.0)], &[])] {
            assert!(!text.contains("NaN") && !text.contains("inf"), "{text}");
        }
    }
}
