//! `husk net top`: what is steered, again and again (`screen.rs`).
//!
//! ```text
//!   husk net top   3 servers   1 s
//!   127.0.0.1:80  process 7, ...: 4711 connections (300/s), 12 moves (2/s), busiest 1.10x the mean
//!   kernel      pid  groups    SYN/s     open  CPU %   load
//!        0        8    2048      150       12   40.0   0.45
//!   q quit  arrows scroll  L load  S SYN/s  O open  P cpu  G groups  N number  I invert
//! ```

use std::collections::HashMap;
use std::time::{Duration, Instant};

use husk_net::steer::{COLUMNS, Kernel, NOTHING, Problem, Snapshot};
use husk_supervisor::Failure;
use ratatui::Frame as Canvas;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::Line;

use crate::screen::{self, Ended, Page};

/// Keys, as they are shown.
const KEYS: &str =
    "q quit  arrows scroll  L load  S SYN/s  O open  P cpu  G groups  N number  I invert";

/// Order of the kernels of a server.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Order {
    Number,
    Load,
    Arrivals,
    Open,
    Cpu,
    Groups,
}

impl Order {
    /// The greatest comes first, but for numbers.
    fn sort(self, kernels: &mut [Kernel]) {
        let by = |of: &dyn Fn(&Kernel) -> f64, kernels: &mut [Kernel]| {
            kernels.sort_by(|one, two| of(two).total_cmp(&of(one)));
        };
        match self {
            Order::Number => kernels.sort_by_key(|kernel| kernel.kernel),
            Order::Load => by(&|kernel| kernel.load, kernels),
            Order::Arrivals => by(&|kernel| kernel.arrivals_per_s.unwrap_or_default(), kernels),
            Order::Open => by(&|kernel| kernel.open as f64, kernels),
            Order::Cpu => by(&|kernel| kernel.cpu, kernels),
            Order::Groups => by(&|kernel| kernel.groups as f64, kernels),
        }
    }
}

/// Address and namespace of a server.
type Key = (String, u64);

fn key(server: &Snapshot) -> Key {
    (server.address.clone(), server.namespace)
}

/// Connections and moves of a server at a time.
#[derive(Clone, Copy)]
struct Counts {
    at: Instant,
    connections: Option<u64>,
    moves: u64,
}

/// The page.
pub struct Top<S> {
    /// Asks the balancers.
    see: S,
    interval: Duration,
    servers: Vec<Snapshot>,
    /// Of the look before, by address, and rates of connections and moves since.
    before: HashMap<Key, Counts>,
    rates: HashMap<Key, (Option<f64>, f64)>,
    order: Order,
    inverted: bool,
    /// First line that is shown, and lines there is room for.
    first: usize,
    room: usize,
    /// Why there is nothing to look at any more.
    problem: Option<Problem>,
}

/// Shows what `see` finds until a key ends it, or `see` fails, which is the error.
pub fn watch(
    see: impl FnMut() -> Result<Vec<Snapshot>, Problem>,
    interval: Duration,
) -> Result<(), Failure> {
    let mut top = Top::new(see, interval);
    // Before the terminal is taken: a wrong target is told as by every command.
    top.see_all()?;
    match (screen::show(&mut top, "cannot show what is steered")?, top.problem) {
        (Ended::Gone, Some(Problem { what, why, remedy })) => Err(Failure::new(what, why, remedy)),
        _ => Ok(()),
    }
}

impl<S: FnMut() -> Result<Vec<Snapshot>, Problem>> Top<S> {
    fn new(see: S, interval: Duration) -> Top<S> {
        Top {
            see,
            interval,
            servers: Vec::new(),
            before: HashMap::new(),
            rates: HashMap::new(),
            order: Order::Number,
            inverted: false,
            first: 0,
            room: 0,
            problem: None,
        }
    }

    fn see_all(&mut self) -> Result<(), Failure> {
        let seen = (self.see)();
        let seen = seen.map_err(|Problem { what, why, remedy }| Failure::new(what, why, remedy))?;
        self.show(seen, Instant::now());
        Ok(())
    }

    /// Takes a new look in.
    fn show(&mut self, servers: Vec<Snapshot>, at: Instant) {
        let known = std::mem::take(&mut self.before);
        self.rates.clear();
        for server in &servers {
            let (key, Snapshot { connections, moves, .. }) = (key(server), server);
            let now = Counts { at, connections: *connections, moves: *moves };
            if let Some(before) = known.get(&key) {
                let seconds = at.duration_since(before.at).as_secs_f64().max(1e-3);
                let rate = |now: u64, before: u64| now.saturating_sub(before) as f64 / seconds;
                let came = connections.zip(before.connections);
                let came = came.map(|(now, before)| rate(now, before));
                let rates = (came, rate(*moves, before.moves));
                self.rates.insert(key.clone(), rates);
            }
            self.before.insert(key, now);
        }
        self.servers = servers;
        self.sort();
    }

    fn sort(&mut self) {
        for server in &mut self.servers {
            self.order.sort(&mut server.kernels);
            if self.inverted {
                server.kernels.reverse();
            }
        }
    }

    fn lines(&self) -> Vec<Line<'static>> {
        let over = Style::new().add_modifier(Modifier::REVERSED);
        let mut lines = Vec::new();
        for server in &self.servers {
            let rates = self.rates.get(&key(server));
            let rates = rates.map_or(String::new(), |(connections, moves)| {
                let came =
                    connections.map_or(String::new(), |came| format!(" {came:.0} connections/s,"));
                format!(";{came} {moves:.1} moves/s")
            });
            lines.push(Line::raw(format!("{}{rates}", server.line())));
            if !server.kernels.is_empty() {
                lines.push(Line::styled(COLUMNS, over));
            }
            lines.extend(server.kernels.iter().map(|kernel| Line::raw(kernel.line())));
            lines.push(Line::raw(""));
        }
        if lines.is_empty() {
            lines.push(Line::raw(NOTHING));
        }
        lines
    }

    fn order_by(&mut self, order: Order) {
        self.order = order;
        self.sort();
    }

    fn scroll(&mut self, lines: isize) {
        self.first = self.first.saturating_add_signed(lines);
    }
}

impl<S: FnMut() -> Result<Vec<Snapshot>, Problem>> Page for Top<S> {
    fn interval(&self) -> Duration {
        self.interval
    }

    fn look(&mut self) -> bool {
        match (self.see)() {
            Ok(servers) => self.show(servers, Instant::now()),
            Err(problem) => self.problem = Some(problem),
        }
        self.problem.is_none()
    }

    fn draw(&mut self, canvas: &mut Canvas<'_>) {
        let area = canvas.area();
        let height = area.height as usize;
        let lines = self.lines();
        // Summary above, keys below.
        self.room = height.saturating_sub(2);
        self.first = self.first.min(lines.len().saturating_sub(self.room));
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let plural = if self.servers.len() == 1 { "" } else { "s" };
        let summary =
            format!("husk net top   {} server{plural}   {:?}", self.servers.len(), self.interval);
        let shown = lines.into_iter().skip(self.first).take(self.room);
        let all = [Line::styled(summary, bold)].into_iter().chain(shown);
        for (row, line) in all.take(height.saturating_sub(1)).enumerate() {
            canvas.render_widget(line, Rect { y: area.y + row as u16, height: 1, ..area });
        }
        if height > 0 {
            let last = Rect { y: area.y + area.height - 1, height: 1, ..area };
            canvas.render_widget(Line::raw(KEYS), last);
        }
    }

    fn key(&mut self, key: KeyEvent) -> bool {
        if key.kind == KeyEventKind::Release {
            return true;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        match key.code {
            KeyCode::Char('c' | 'd') if control => return false,
            KeyCode::Char('q' | 'Q') | KeyCode::F(10) | KeyCode::Esc => return false,
            KeyCode::Char('L' | 'l') => self.order_by(Order::Load),
            KeyCode::Char('S' | 's') => self.order_by(Order::Arrivals),
            KeyCode::Char('O' | 'o') => self.order_by(Order::Open),
            KeyCode::Char('P' | 'p' | 'C' | 'c') => self.order_by(Order::Cpu),
            KeyCode::Char('G' | 'g') => self.order_by(Order::Groups),
            KeyCode::Char('N' | 'n') => self.order_by(Order::Number),
            KeyCode::Char('I' | 'i') => {
                self.inverted = !self.inverted;
                self.sort();
            }
            KeyCode::Up => self.scroll(-1),
            KeyCode::Down => self.scroll(1),
            KeyCode::PageUp => self.scroll(-(self.room as isize)),
            KeyCode::PageDown => self.scroll(self.room as isize),
            KeyCode::Home => self.scroll(isize::MIN),
            KeyCode::End => self.scroll(isize::MAX),
            _ => {}
        }
        true
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn kernel(kernel: usize, load: f64, groups: usize) -> Kernel {
        Kernel {
            kernel,
            pid: Some(100 + kernel as u32),
            processes: 1,
            groups,
            syns: Some(0),
            open: kernel as u64,
            arrivals_per_s: Some(load * 10.0),
            connections: 0.0,
            cpu: load,
            load,
        }
    }

    fn server(connections: u64, moves: u64) -> Snapshot {
        Snapshot {
            address: "127.0.0.1:80".to_owned(),
            namespace: 1,
            pid: 7,
            balancer: 8,
            way: husk_net::steer::Kind::Ebpf,
            seconds: 9,
            connections: Some(connections),
            moves,
            moved: Vec::new(),
            worst_over_mean: 1.5,
            trouble: None,
            kernels: vec![kernel(0, 0.25, 100), kernel(1, 0.75, 3000), kernel(2, 0.5, 996)],
        }
    }

    type Seen = Result<Vec<Snapshot>, Problem>;

    fn top(seen: Vec<Snapshot>) -> Top<impl FnMut() -> Seen> {
        let mut top = Top::new(|| Ok(Vec::new()), Duration::from_secs(1));
        top.show(seen, Instant::now());
        top
    }

    fn drawn(top: &mut impl Page, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|canvas| top.draw(canvas)).unwrap();
        terminal.backend().to_string()
    }

    fn press(top: &mut impl Page, key: char) -> bool {
        top.key(KeyEvent::new(KeyCode::Char(key), KeyModifiers::NONE))
    }

    #[test]
    fn keys_order_the_kernels_of_a_server() {
        let mut top = top(vec![server(0, 0)]);
        let order = |top: &Top<_>| -> Vec<usize> {
            top.servers[0].kernels.iter().map(|one| one.kernel).collect()
        };
        assert_eq!(order(&top), [0, 1, 2]);
        for (key, wanted) in
            [('l', [1, 2, 0]), ('G', [1, 2, 0]), ('O', [2, 1, 0]), ('I', [0, 1, 2])]
        {
            assert!(press(&mut top, key));
            assert_eq!(order(&top), wanted, "{key}");
        }
        top.show(vec![server(0, 0)], Instant::now());
        assert_eq!(order(&top), [0, 1, 2], "a new look keeps the order");
        assert!(!press(&mut top, 'q'));
    }

    #[test]
    fn rates_are_what_came_between_two_looks() {
        let mut top = top(vec![server(100, 2)]);
        assert!(!drawn(&mut top, 150, 10).contains("moves/s"), "there is only one look");
        let at = top.before[&("127.0.0.1:80".to_owned(), 1)].at + Duration::from_secs(2);
        top.show(vec![server(700, 7)], at);
        let text = drawn(&mut top, 150, 10);
        assert!(text.contains("300 connections/s, 2.5 moves/s"), "{text}");
        top.show(Vec::new(), at);
        assert!(drawn(&mut top, 80, 10).contains("nothing is steered"));
    }

    #[test]
    fn every_size_of_terminal_is_drawn_and_scrolled() {
        let mut top = top(vec![server(1, 1); 30]);
        for (width, height) in [(1, 1), (20, 2), (80, 5), (300, 400)] {
            for code in [KeyCode::End, KeyCode::Down, KeyCode::PageUp, KeyCode::Home, KeyCode::Up] {
                assert!(top.key(KeyEvent::new(code, KeyModifiers::NONE)));
                drawn(&mut top, width, height);
            }
        }
        top.key(KeyEvent::new(KeyCode::End, KeyModifiers::NONE));
        let text = drawn(&mut top, 80, 7);
        assert!(text.contains("husk net top   30 servers") && text.contains("q quit"), "{text}");
        assert!(!text.contains("process 7"), "the last lines are shown: {text}");
    }

    #[test]
    fn what_is_gone_ends_it_with_the_reason() {
        let mut looks = 0;
        let mut top = Top::new(
            move || {
                looks += 1;
                if looks > 1 {
                    Err(Problem { what: "it".into(), why: "is gone".into(), remedy: String::new() })
                } else {
                    Ok(vec![])
                }
            },
            Duration::from_secs(1),
        );
        assert!(top.look() && !top.look());
        assert_eq!(top.problem.map(|problem| problem.why), Some("is gone".to_owned()));
    }
}
