//! The report: one HTML page that needs nothing else, with the plots as drawings in it.

use std::fmt::Write;

use crate::bench::files::hare::{Row, Workloads};
use crate::bench::measure::machine::Machine;
use crate::bench::measure::technique::Technique;
use crate::bench::report::Report;
use crate::picture::{self, escaped};

const BAR_PX: f64 = 14.0;
const LABEL_PX: f64 = 250.0;
const WIDTH_PX: f64 = 760.0;

/// The page of workloads or commands.
pub fn workloads(report: &Workloads) -> String {
    let good: Vec<&Row> = report.rows.iter().filter(|row| row.error.is_none()).collect();
    let ratio = good.iter().map(|row| (label(row), row.wall_ratio)).collect::<Vec<_>>();
    let cpu = good.iter().map(|row| (label(row), row.cpu_ratio)).collect::<Vec<_>>();
    let mut page = head(report.suite.title().0, &report.machine, report.control);
    page += "<p>Each figure is the median of rounds in which both sides took turns. P: processes \
             at once.</p><h2>tmpfs time / Husk time, wall</h2>";
    page += &bars(&ratio);
    page += "<h2>tmpfs time / Husk time, CPU</h2>";
    page += &bars(&cpu);
    let techniques = good.first().map_or(&[][..], |row| &row.without);
    page += &worths(techniques.iter().map(|worth| worth.technique), "CPU time", |n| {
        let worth = |row: &&Row| Some((label(row), row.without.get(n)?.cpu_worth));
        good.iter().filter_map(worth).collect()
    });
    for (title, husk) in [("Husk", true), ("tmpfs", false)] {
        let _ = write!(page, "<h2>Rate of P processes over that of one, {title}</h2>");
        page += &bars(&scaling(&good, husk));
    }
    page += &table(report);
    page
}

/// The page of single calls and of process starts.
pub fn calls(report: &Report) -> String {
    let good = || report.rows.iter().filter(|row| row.error.is_none());
    let mut page = head("Calls and starts", &report.machine, report.control.native_over_husk);
    page += "<p>Calls: medians of slices alone on their core. Starts: CPU time, medians of rounds \
             in which both sides took turns.</p><h2>tmpfs time / Husk time</h2>";
    let ratio = good().map(|row| (row.name.clone(), row.native_over_husk)).collect::<Vec<_>>();
    page += &bars(&ratio);
    let techniques = good().next().map_or(&[][..], |row| &row.without);
    page += &worths(techniques.iter().map(|worth| worth.0), "time", |n| {
        good().filter_map(|row| Some((row.name.clone(), row.without.get(n)?.1))).collect()
    });
    page += "<h2>Figures</h2><table><tr><th>call<th>tmpfs, ns<th>Husk, ns<th>ratio<th>wanted<th>\
             met</tr>";
    for row in &report.rows {
        let _ = write!(page, "<tr><td>{}", escaped(&row.name));
        let _ = match &row.error {
            Some(error) => write!(page, "<td colspan=5>{}</tr>", escaped(error)),
            None => write!(
                page,
                "<td>{:.0}<td>{:.0}<td>{:.2}x<td>{}<td>{}</tr>",
                row.native_ns,
                row.husk_ns,
                row.native_over_husk,
                escaped(&row.wanted),
                row.met.map_or("", |met| if met { "yes" } else { "no" }),
            ),
        };
    }
    page + "</table>\n"
}

/// The page of several nodes: bars with their titles, and times.
pub fn nodes(
    (machine, control): (&Machine, f64),
    plots: &[(String, Vec<(String, f64)>)],
    heads: [&str; 3],
    figures: &[[String; 3]],
) -> String {
    let mut page = picture::head("Nodes", "Several nodes of an image against one");
    page += &measured_on(machine, "one node twice", control);
    page += "<p>Each figure is the median of rounds in which all sides took turns.</p>";
    for (title, values) in plots {
        let _ = write!(page, "<h2>{}</h2>", escaped(title));
        page += &bars(values);
    }
    page += "<h2>Figures</h2><table><tr>";
    heads.iter().for_each(|head| page += &format!("<th>{head}"));
    for [name, one, other] in figures {
        let _ = write!(page, "<tr><td>{}<td>{one}<td>{other}</tr>", escaped(name));
    }
    page + "</table>\n"
}

fn head(title: &str, machine: &Machine, control: f64) -> String {
    let head = picture::head(title, &format!("{title}, Husk against tmpfs"));
    head + &measured_on(machine, "native twice", control)
}

fn measured_on(machine: &Machine, sides: &str, control: f64) -> String {
    let mut head = String::new();
    let _ = write!(
        head,
        "<p>{}, {} cores, Linux {}, load {:.1}, guard {}. Control ({sides}): {control:.2}.</p>",
        escaped(&machine.cpu),
        machine.cores,
        escaped(&machine.kernel),
        machine.load,
        escaped(&machine.guard),
    );
    head
}

/// What each technique is worth that the rows were measured without, too; `of` gives the worths of
/// the n-th one.
fn worths(
    techniques: impl Iterator<Item = Technique>,
    time: &str,
    of: impl Fn(usize) -> Vec<(String, f64)>,
) -> String {
    let mut section = String::new();
    for (n, technique) in techniques.enumerate() {
        let name = technique.name();
        let _ = write!(section, "<h2>What {name} is worth: {time} without / with</h2>");
        section += &bars(&of(n));
    }
    section
}

fn label(row: &Row) -> String {
    match row.place() {
        "" => format!("{}, P = {}", row.name, row.processes),
        place => format!("{}, P = {}, {place}", row.name, row.processes),
    }
}

/// What several processes do in the time of one.
fn scaling(rows: &[&Row], husk: bool) -> Vec<(String, f64)> {
    let wall = |row: &Row| if husk { row.husk_wall_ns } else { row.native_wall_ns };
    let alone = |name| rows.iter().find(|row| row.name == name && row.processes == 1);
    let several = rows.iter().filter(|row| row.processes > 1);
    several
        .filter_map(|row| {
            let one = wall(alone(row.name)?);
            Some((label(row), f64::from(row.processes) * one / wall(row).max(1.0)))
        })
        .collect()
}

/// Bars with a line at 1.
fn bars(values: &[(String, f64)]) -> String {
    let most = values.iter().map(|value| value.1).fold(1.0, f64::max);
    let unit = (WIDTH_PX - LABEL_PX - 60.0) / most;
    let height = (values.len() as f64 + 1.0) * (BAR_PX + 4.0);
    let one = LABEL_PX + unit;
    let mut drawing = format!(
        "<svg width={WIDTH_PX} height={height:.0}><path d='M{one:.1} 0V{height:.0}' stroke=#000 />"
    );
    for (n, (label, value)) in values.iter().enumerate() {
        let top = n as f64 * (BAR_PX + 4.0);
        let base = top + BAR_PX - 3.0;
        let colour = if *value < 1.0 { "#c44" } else { "#47a" };
        let _ = write!(
            drawing,
            "<text x={:.0} y={base:.0} text-anchor=end>{}</text>\
             <rect x={LABEL_PX} y={top:.0} width={:.1} height={BAR_PX} fill={colour} />\
             <text x={:.0} y={base:.0}>{value:.2}</text>",
            LABEL_PX - 6.0,
            escaped(label),
            value * unit,
            LABEL_PX + value * unit + 5.0,
        );
    }
    drawing + "</svg>"
}

fn table(report: &Workloads) -> String {
    let mut table = "<h2>Figures</h2><table><tr><th>workload<th>P<th>place<th>tmpfs, ms<th>Husk, \
                     ms<th>wall<th>tmpfs, CPU ms<th>Husk, CPU ms<th>CPU</tr>"
        .to_owned();
    for row in &report.rows {
        let _ = write!(table, "<tr><td>{}<td>{}<td>{}", row.name, row.processes, row.place());
        if let Some(error) = &row.error {
            let _ = write!(table, "<td colspan=6>{}</tr>", escaped(error));
            continue;
        }
        for ms in [row.native_wall_ns, row.husk_wall_ns] {
            let _ = write!(table, "<td>{:.1}", ms / 1e6);
        }
        let _ = write!(table, "<td>{:.2}x", row.wall_ratio);
        for ms in [row.native_cpu_ns, row.husk_cpu_ns] {
            let _ = write!(table, "<td>{:.1}", ms / 1e6);
        }
        let _ = write!(table, "<td>{:.2}x</tr>", row.cpu_ratio);
    }
    table + "</table>\n"
}
