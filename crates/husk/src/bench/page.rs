//! The report: one HTML page that needs nothing else, with the plots as drawings in it.

use std::fmt::Write;

use super::hare::{Row, Workloads};

const BAR_PX: f64 = 14.0;
const LABEL_PX: f64 = 250.0;
const WIDTH_PX: f64 = 760.0;

/// The page.
pub fn html(report: &Workloads) -> String {
    let machine = &report.machine;
    let good: Vec<&Row> = report.rows.iter().filter(|row| row.error.is_none()).collect();
    let ratio = good.iter().map(|row| (label(row), row.wall_ratio)).collect::<Vec<_>>();
    let cpu = good.iter().map(|row| (label(row), row.cpu_ratio)).collect::<Vec<_>>();
    let title = report.suite.title().0;
    let mut page = format!(
        "<!doctype html><meta charset=utf-8><title>Husk: {title}</title>\
         <style>body{{font:14px sans-serif;max-width:60em;margin:2em auto}}\
         table{{border-collapse:collapse}}td,th{{padding:2px 8px;text-align:right}}\
         td:first-child{{text-align:left}}text{{font:12px sans-serif}}</style>\
         <h1>{title}, Husk against tmpfs</h1>\
         <p>{}, {} cores, Linux {}, load {:.1}, guard {}. Control (native twice): {:.2}. Each \
         figure is the median of rounds in which both sides took turns.</p>",
        escaped(&machine.cpu),
        machine.cores,
        escaped(&machine.kernel),
        machine.load,
        escaped(&machine.guard),
        report.control
    );
    page += "<h2>tmpfs time / Husk time, wall</h2>";
    page += &bars(&ratio);
    page += "<h2>tmpfs time / Husk time, CPU</h2>";
    page += &bars(&cpu);
    page += &worths(&good);
    for (title, husk) in [("Husk", true), ("tmpfs", false)] {
        let _ = write!(page, "<h2>Rate of P processes over that of one, {title}</h2>");
        page += &bars(&scaling(&good, husk));
    }
    page += &table(report);
    page
}

/// What each technique is worth that the rows were measured without, too.
fn worths(rows: &[&Row]) -> String {
    let mut section = String::new();
    let techniques = rows.first().map_or(&[][..], |row| &row.without);
    for (n, technique) in techniques.iter().map(|worth| worth.technique.name()).enumerate() {
        let _ = write!(section, "<h2>What {technique} is worth: CPU time without / with</h2>");
        let worth = |row: &&Row| Some((label(row), row.without.get(n)?.cpu_worth));
        section += &bars(&rows.iter().filter_map(worth).collect::<Vec<_>>());
    }
    section
}

fn label(row: &Row) -> String {
    format!("{} {} {}", row.name, row.processes, row.place())
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
    let mut drawing = format!("<svg width={WIDTH_PX} height={height:.0}>");
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
    let one = LABEL_PX + unit;
    let _ = write!(drawing, "<path d='M{one:.1} 0V{height:.0}' stroke=#000 /></svg>");
    drawing
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

fn escaped(text: &str) -> String {
    text.replace('&', "&amp;").replace('<', "&lt;")
}
