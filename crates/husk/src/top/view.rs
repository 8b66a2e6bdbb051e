//! What is shown and how keys change it. Nothing here asks the image or the terminal.
//!
//! ```text
//!   husk top: ci   3 processes   files 1.2 of 64.0 MiB   inodes 300 of 16383   host 6.5 MiB
//!   KERNEL THREADS   OPS/s  WAITS UNDONE   WALK   STAT   READ ...   OTHER
//!   all          3    120k      2      0    30k ...
//!   0            2     80k
//!        PID   OPS/s  SHARE RING B/s   CPU%   MEM S COMMAND
//!       4711    100k  83.0%        0   97.0   12M R make -j2
//!   q quit  arrows choose  O ops  P cpu  M mem  N pid  I invert  F4 filter  F9 kill
//! ```

use std::collections::HashMap;
use std::time::{Duration, Instant};

use husk_supervisor::show::rates::{Described, Frame, Share, Watcher, head, short};
use ratatui::Frame as Canvas;
use ratatui::crossterm::event::{KeyCode, KeyEvent, KeyEventKind, KeyModifiers};
use ratatui::layout::Rect;
use ratatui::style::{Modifier, Style};
use ratatui::text::{Line, Span};
use rustix::process::Signal;

/// Lines that are always there: summary, two heads, an empty one, keys.
const LINES_FIXED: usize = 5;
/// Ticks of the host in a second (`USER_HZ`, fixed on Linux).
const TICKS_PER_S: f64 = 100.0;
/// Keys, as they are shown.
const KEYS: &str =
    "q quit  arrows choose  O ops  P cpu  M mem  N pid  I invert  F4 filter  F9 kill";
/// Longest text that processes are chosen by.
const FILTER_MAX: usize = 64;

/// What a key asks for.
#[derive(Debug, PartialEq, Eq)]
pub enum Next {
    /// Nothing but to be shown.
    GoOn,
    /// The end.
    End,
    /// A signal for a process.
    Kill(u32, Signal),
}

/// Order of processes.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Order {
    Operations,
    Cpu,
    Memory,
    Number,
}

/// What is shown.
pub struct View {
    image: String,
    /// Time between two looks.
    pub interval: Duration,
    frame: Option<Frame>,
    order: Order,
    inverted: bool,
    /// The chosen process.
    chosen: Option<u32>,
    /// Who is about to be sent a signal, and what it calls itself.
    asks: Option<(u32, String)>,
    /// What a command must contain to be shown.
    filter: String,
    /// Whether keys are for the filter.
    filters: bool,
    /// What became of the last signal.
    message: String,
    /// What the host said of processes last, and when.
    known: HashMap<u32, (Described, Instant)>,
    cpu: HashMap<u32, f64>,
    /// First process that is shown.
    first: usize,
    /// Rows of processes there is room for.
    room: usize,
}

impl View {
    /// Nothing is known yet.
    pub fn new(image: &str, interval: Duration) -> View {
        View {
            image: image.to_owned(),
            interval,
            frame: None,
            order: Order::Operations,
            inverted: false,
            chosen: None,
            asks: None,
            filter: String::new(),
            filters: false,
            message: String::new(),
            known: HashMap::new(),
            cpu: HashMap::new(),
            first: 0,
            room: 0,
        }
    }

    /// Shows a new frame.
    pub fn show(&mut self, frame: Frame) {
        let ours: Vec<u32> = frame.processes.iter().map(|share| share.pid).collect();
        self.known.retain(|pid, _| ours.contains(pid));
        self.cpu.retain(|pid, _| ours.contains(pid));
        self.frame = Some(frame);
        // Who is sorted or chosen by what the host says has to be asked about, also out of sight.
        let all = matches!(self.order, Order::Cpu | Order::Memory) || !self.filter.is_empty();
        if all {
            ours.iter().for_each(|&pid| self.look_at(pid));
        }
        self.choose_rows();
        self.sort();
        if !all {
            let rows = self.rows().iter().skip(self.first).take(self.room.max(1));
            let seen: Vec<u32> = rows.map(|share| share.pid).collect();
            seen.into_iter().for_each(|pid| self.look_at(pid));
        }
    }

    /// Leaves those whose command has what is asked for.
    fn choose_rows(&mut self) {
        if self.filter.is_empty() {
            return;
        }
        let (wanted, known) = (self.filter.to_lowercase(), &self.known);
        let fits = |share: &Share| {
            let told = known.get(&share.pid).map(|(told, _)| told.process.line());
            told.is_some_and(|line| line.to_lowercase().contains(&wanted))
        };
        if let Some(frame) = &mut self.frame {
            frame.processes.retain(fits);
        }
    }

    fn rows(&self) -> &[Share] {
        self.frame.as_ref().map_or(&[], |frame| &frame.processes)
    }

    /// Asks the host about a process.
    fn look_at(&mut self, pid: u32) {
        let Some(told) = Watcher::describe(pid) else { return };
        let now = Instant::now();
        if let Some((before, at)) = self.known.get(&pid) {
            let seconds = now.duration_since(*at).as_secs_f64().max(1e-3);
            let ticks = told.ticks.saturating_sub(before.ticks) as f64;
            self.cpu.insert(pid, 100.0 * ticks / TICKS_PER_S / seconds);
        }
        self.known.insert(pid, (told, now));
    }

    fn sort(&mut self) {
        let (order, cpu, known) = (self.order, &self.cpu, &self.known);
        let cpu_of = |share: &Share| cpu.get(&share.pid).copied().unwrap_or_default();
        let memory_of =
            |share: &Share| known.get(&share.pid).map(|(told, _)| told.process.memory_bytes);
        let Some(frame) = &mut self.frame else { return };
        frame.processes.sort_by(|one, two| match order {
            Order::Operations => two.operations_per_s.total_cmp(&one.operations_per_s),
            Order::Cpu => cpu_of(two).total_cmp(&cpu_of(one)),
            Order::Memory => memory_of(two).cmp(&memory_of(one)),
            Order::Number => one.pid.cmp(&two.pid),
        });
        if self.inverted {
            frame.processes.reverse();
        }
    }

    /// What became of a signal.
    pub fn told(&mut self, pid: u32, sent: Result<(), String>) {
        self.message = match sent {
            Ok(()) => format!("sent to {pid}"),
            Err(why) => format!("cannot signal {pid}: {why}"),
        };
    }

    /// What a key means.
    pub fn key(&mut self, key: KeyEvent) -> Next {
        if key.kind == KeyEventKind::Release {
            return Next::GoOn;
        }
        let control = key.modifiers.contains(KeyModifiers::CONTROL);
        if control && matches!(key.code, KeyCode::Char('c' | 'd')) {
            return Next::End;
        }
        if let Some((pid, _)) = self.asks.take() {
            return match key.code {
                KeyCode::Char('t' | 'y') | KeyCode::Enter => Next::Kill(pid, Signal::TERM),
                KeyCode::Char('9' | 'K') => Next::Kill(pid, Signal::KILL),
                _ => Next::GoOn,
            };
        }
        if self.filters {
            self.type_filter(key.code);
            return Next::GoOn;
        }
        self.message.clear();
        match key.code {
            KeyCode::Esc if !self.filter.is_empty() => self.filter.clear(),
            KeyCode::Char('q' | 'Q') | KeyCode::F(10) | KeyCode::Esc => return Next::End,
            KeyCode::Char('O' | 'o') => self.order_by(Order::Operations),
            KeyCode::Char('C' | 'c' | 'P') => self.order_by(Order::Cpu),
            KeyCode::Char('M' | 'm') => self.order_by(Order::Memory),
            KeyCode::F(3 | 4) | KeyCode::Char('/' | '\\') => self.filters = true,
            KeyCode::Char('N' | 'n') => self.order_by(Order::Number),
            KeyCode::Char('I' | 'i') => {
                self.inverted = !self.inverted;
                self.sort();
            }
            KeyCode::Up => self.choose(-1),
            KeyCode::Down => self.choose(1),
            KeyCode::PageUp => self.choose(-(self.room as isize)),
            KeyCode::PageDown => self.choose(self.room as isize),
            KeyCode::Home => self.choose(isize::MIN / 2),
            KeyCode::End => self.choose(isize::MAX / 2),
            KeyCode::Char('k') | KeyCode::F(9) => self.ask(),
            _ => {}
        }
        Next::GoOn
    }

    /// A key while the filter is typed; the next look shows what it leaves.
    fn type_filter(&mut self, key: KeyCode) {
        match key {
            KeyCode::Char(one) if self.filter.len() < FILTER_MAX => self.filter.push(one),
            KeyCode::Backspace => {
                self.filter.pop();
            }
            KeyCode::Esc => {
                self.filter.clear();
                self.filters = false;
            }
            KeyCode::Enter | KeyCode::F(3 | 4) => self.filters = false,
            _ => {}
        }
        let unknown = self.rows().iter().filter(|share| !self.known.contains_key(&share.pid));
        let unknown: Vec<u32> = unknown.map(|share| share.pid).collect();
        unknown.into_iter().for_each(|pid| self.look_at(pid));
        self.choose_rows();
    }

    fn order_by(&mut self, order: Order) {
        self.order = order;
        self.sort();
    }

    fn index(&self) -> Option<usize> {
        self.rows().iter().position(|share| Some(share.pid) == self.chosen)
    }

    fn choose(&mut self, step: isize) {
        let last = self.rows().len().saturating_sub(1);
        let at = match self.index() {
            Some(index) => (index as isize).saturating_add(step).clamp(0, last as isize) as usize,
            None => 0,
        };
        self.chosen = self.rows().get(at).map(|share| share.pid);
        if at < self.first {
            self.first = at;
        } else if at >= self.first + self.room.max(1) {
            self.first = at + 1 - self.room.max(1);
        }
    }

    fn ask(&mut self) {
        // Nobody is killed whom nobody has chosen.
        let Some(index) = self.index() else {
            self.message = "choose a process first: up, down".to_owned();
            return;
        };
        let pid = self.rows()[index].pid;
        let name =
            self.known.get(&pid).map_or(String::new(), |(told, _)| told.process.name.clone());
        self.asks = Some((pid, name));
    }

    /// Draws everything.
    pub fn draw(&mut self, canvas: &mut Canvas<'_>) {
        let area = canvas.area();
        let kernels = self.frame.as_ref().map_or(0, |frame| frame.kernels.len());
        let height = area.height as usize;
        // Processes get half of what there is, where there are many kernels.
        let free = height.saturating_sub(LINES_FIXED);
        let shown = if kernels <= free / 2 { kernels } else { (free / 2).max(1) };
        self.room = free.saturating_sub(shown);
        let last = self.rows().len().saturating_sub(self.room);
        self.first = self.first.min(last);
        let lines = self.lines(shown);
        for (row, line) in lines.into_iter().take(height.saturating_sub(1)).enumerate() {
            let place = Rect { y: area.y + row as u16, height: 1, ..area };
            canvas.render_widget(line, place);
        }
        if height > 0 {
            let place = Rect { y: area.y + area.height - 1, height: 1, ..area };
            canvas.render_widget(self.last_line(), place);
        }
    }

    fn lines(&self, kernels: usize) -> Vec<Line<'_>> {
        let Some(frame) = &self.frame else { return Vec::new() };
        let bold = Style::new().add_modifier(Modifier::BOLD);
        let over = Style::new().add_modifier(Modifier::REVERSED);
        let image = Span::styled(format!("husk top: {}", self.image), bold);
        let mut lines = vec![Line::from(vec![image, Span::raw("   "), Span::raw(frame.summary())])];
        lines.push(Line::styled(head(), over));
        lines.extend(frame.kernels.iter().take(kernels).map(|kernel| Line::raw(kernel.line())));
        let hidden = frame.kernels.len() - kernels;
        let more = format!("       ... and {hidden} kernels more");
        lines.push(Line::raw(if hidden > 0 { more } else { String::new() }));
        let columns = format!(
            "{:>8}{} {:>7} {:>6} {} {:>6} {:>7} S COMMAND",
            "PID",
            frame.node_column("NODE".to_owned()),
            "OPS/s",
            "SHARE",
            Share::RINGS_HEAD,
            "CPU%",
            "MEM"
        );
        lines.push(Line::styled(columns, over));
        let rows = frame.processes.iter().skip(self.first).take(self.room);
        lines.extend(rows.map(|share| {
            let style = if Some(share.pid) == self.chosen { over } else { Style::new() };
            Line::styled(self.row(share, &frame.node_column(share.node())), style)
        }));
        lines
    }

    fn row(&self, share: &Share, node: &str) -> String {
        let Share { pid, operations_per_s, share_percent, .. } = share;
        let cpu = self.cpu.get(pid).map_or("-".to_owned(), |cpu| format!("{cpu:.1}"));
        let (state, memory, command) = match self.known.get(pid) {
            Some((told, _)) => {
                let memory = format!("{}M", told.process.memory_bytes >> 20);
                (told.process.state.as_str(), memory, told.process.line())
            }
            None => ("-", "-".to_owned(), String::new()),
        };
        let (rate, rings) = (short(*operations_per_s), share.rings());
        let share = format!("{share_percent:>5.1}%");
        format!("{pid:>8}{node} {rate:>7} {share} {rings} {cpu:>6} {memory:>7} {state} {command}")
    }

    fn last_line(&self) -> Line<'_> {
        match &self.asks {
            Some((pid, name)) => {
                let text = format!("signal for {pid} {name}:  t TERM  9 KILL  any other key: none");
                Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
            }
            None if self.filters => {
                let text = format!("filter: {}_   Enter: keep it  Esc: show all", self.filter);
                Line::styled(text, Style::new().add_modifier(Modifier::REVERSED))
            }
            None if !self.message.is_empty() => Line::raw(self.message.as_str()),
            None if !self.filter.is_empty() => {
                Line::raw(format!("only those with \"{}\": Esc shows all   {KEYS}", self.filter))
            }
            None => Line::raw(KEYS),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use husk_supervisor::show::rates::Kernel;
    use husk_supervisor::show::stat::Holds;
    use ratatui::Terminal;
    use ratatui::backend::TestBackend;

    fn frame(kernels: u32, pids: &[u32]) -> Frame {
        let kernel = |kernel| Kernel {
            kernel,
            threads: 1,
            operations_per_s: 1234.0,
            by_type_per_s: [0.0; 27],
            transactions_per_s: 0.0,
            waits_per_s: 0.0,
            rollbacks_per_s: 0.0,
        };
        let rows = [None].into_iter().chain((0..kernels).map(Some)).map(kernel).collect();
        let share = |&pid| Share {
            pid,
            operations_per_s: f64::from(pid),
            share_percent: 1.0,
            ring_read_bytes_per_s: 1e6,
            ring_written_bytes_per_s: 2e6,
            node: None,
        };
        let processes = pids.iter().map(share).collect();
        let holds = Holds::default();
        Frame { seconds: 1.0, kernels: rows, ring_bytes_per_s: 3e6, holds, processes }
    }

    fn drawn(view: &mut View, width: u16, height: u16) -> String {
        let mut terminal = Terminal::new(TestBackend::new(width, height)).unwrap();
        terminal.draw(|canvas| view.draw(canvas)).unwrap();
        terminal.backend().to_string()
    }

    fn press(view: &mut View, code: KeyCode) -> Next {
        view.key(KeyEvent::new(code, KeyModifiers::NONE))
    }

    fn view(kernels: u32, pids: &[u32]) -> View {
        let mut view = View::new("ci", Duration::from_secs(1));
        drawn(&mut view, 100, 24);
        view.show(frame(kernels, pids));
        view
    }

    #[test]
    fn who_does_most_comes_first_until_a_key_says_otherwise() {
        let mut view = view(2, &[7, 900_000, 42]);
        let order = |view: &View| view.rows().iter().map(|share| share.pid).collect::<Vec<_>>();
        assert_eq!(order(&view), [900_000, 42, 7]);
        press(&mut view, KeyCode::Char('N'));
        assert_eq!(order(&view), [7, 42, 900_000]);
        press(&mut view, KeyCode::Char('I'));
        assert_eq!(order(&view), [900_000, 42, 7]);
        let text = drawn(&mut view, 120, 24);
        assert!(text.contains("husk top: ci") && text.contains("900000"), "{text}");
        assert!(text.contains("RING B/s") && text.contains("    3.0M "), "{text}");
    }

    #[test]
    fn a_filter_leaves_those_whose_command_has_it() {
        let (own, strange) = (std::process::id(), u32::MAX >> 1);
        let mut view = view(1, &[own, strange]);
        let name = Watcher::describe(own).unwrap().process.line();
        let part = name.chars().rev().take(8).collect::<Vec<_>>().into_iter().rev();
        press(&mut view, KeyCode::F(4));
        for one in part {
            press(&mut view, KeyCode::Char(one.to_ascii_uppercase()));
        }
        assert!(drawn(&mut view, 100, 24).contains("Enter: keep it"));
        press(&mut view, KeyCode::Enter);
        let rows = |view: &View| view.rows().iter().map(|share| share.pid).collect::<Vec<_>>();
        assert_eq!(rows(&view), [own]);
        view.show(frame(1, &[own, strange]));
        assert_eq!(rows(&view), [own]);
        assert_eq!(press(&mut view, KeyCode::Esc), Next::GoOn, "it ends the filter alone");
        view.show(frame(1, &[own, strange]));
        assert_eq!(rows(&view).len(), 2);
        assert_eq!(press(&mut view, KeyCode::Esc), Next::End);
    }

    #[test]
    fn who_has_most_memory_comes_first_where_that_is_asked_for() {
        let (own, parent) = (std::process::id(), 1);
        let mut view = view(1, &[parent, own, u32::MAX >> 1]);
        press(&mut view, KeyCode::Char('M'));
        view.show(frame(1, &[parent, own, u32::MAX >> 1]));
        // By what the host said then: the test itself has grown since.
        let memory = |share: &Share| view.known.get(&share.pid).map(|(told, _)| told);
        let memory = |share| memory(share).map(|told| told.process.memory_bytes);
        let rows: Vec<_> = view.rows().iter().map(memory).collect();
        assert!(rows.is_sorted_by(|one, two| one >= two), "{rows:?}");
        assert!(rows[1].is_some() && rows[2].is_none(), "{rows:?}");
        assert!(drawn(&mut view, 100, 24).contains("MEM S COMMAND"));
    }

    #[test]
    fn nobody_is_signalled_unasked() {
        let mut view = view(1, &[7, 8]);
        assert_eq!(press(&mut view, KeyCode::F(9)), Next::GoOn);
        assert!(drawn(&mut view, 80, 24).contains("choose a process first"));
        press(&mut view, KeyCode::Down);
        press(&mut view, KeyCode::Char('k'));
        assert!(drawn(&mut view, 80, 24).contains("signal for 8"), "8 does most");
        assert_eq!(press(&mut view, KeyCode::Char('x')), Next::GoOn);
        assert_eq!(press(&mut view, KeyCode::Char('9')), Next::GoOn, "nobody asks any more");
        press(&mut view, KeyCode::Down);
        press(&mut view, KeyCode::F(9));
        assert_eq!(press(&mut view, KeyCode::Char('t')), Next::Kill(7, Signal::TERM));
        press(&mut view, KeyCode::F(9));
        assert_eq!(press(&mut view, KeyCode::Char('9')), Next::Kill(7, Signal::KILL));
        assert_eq!(press(&mut view, KeyCode::Char('q')), Next::End);
    }

    #[test]
    fn every_size_of_terminal_is_drawn() {
        let pids: Vec<u32> = (1..500).collect();
        for kernels in [1, 64] {
            for (width, height) in [(1, 1), (20, 3), (80, 5), (80, 24), (300, 100)] {
                let mut view = view(kernels, &pids);
                view.show(frame(kernels, &pids));
                press(&mut view, KeyCode::End);
                press(&mut view, KeyCode::Down);
                drawn(&mut view, width, height);
                drawn(&mut view, width, height);
            }
        }
        let mut many = view(64, &pids);
        let text = drawn(&mut many, 120, 24);
        assert!(text.contains("kernels more") && text.contains("COMMAND"), "{text}");
    }

    #[test]
    fn the_chosen_process_is_on_the_screen() {
        let pids: Vec<u32> = (1..100).collect();
        let mut view = view(2, &pids);
        drawn(&mut view, 80, 24);
        for _ in 0..60 {
            press(&mut view, KeyCode::Down);
        }
        let chosen = view.chosen.unwrap();
        assert!(drawn(&mut view, 80, 24).contains(&format!(" {chosen} ")), "{chosen}");
        press(&mut view, KeyCode::Home);
        assert_eq!(view.chosen, Some(99));
    }
}
