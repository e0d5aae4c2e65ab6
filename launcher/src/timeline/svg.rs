//! The picture as SVG, 800 pixels wide: time goes to the right, ranks are rows. Its colours follow the reader's light or
//! dark theme.

use super::lanes::{Lane, lanes};
use crate::view::timeline::words;
use rlaunch_base::os_bytes::Visible;
use rlaunch_core::timeline::{Bar, Fault, Finish, HostFact, Mark, Phase, Stretch, Timeline};
use std::collections::BTreeSet;
use std::fmt::Write as _;

const WIDTH: f64 = 800.0;
/// Begin and end of the time axis.
const LEFT: f64 = 130.0;
const RIGHT: f64 = 784.0;
/// Top of the job's own row.
const TOP: f64 = 72.0;
/// Most lines about what happened.
const LINES: usize = 12;
/// Most characters in a line.
const LINE: usize = 112;
/// Least width of a stretch.
const THIN: f64 = 1.5;
/// Most ranks of a row that have a line of their own in it.
const PARTS: usize = 16;

/// Rules of the style sheet: class, property, colour in light, colour in dark.
const COLOURS: [(&str, &str, &str, &str); 13] = [
    (".bg", "fill", "#ffffff", "#0d1117"),
    ("text", "fill", "#1f2328", "#e6edf3"),
    (".dim", "fill", "#59636e", "#9198a1"),
    (".grid", "stroke", "#d1d9e0", "#30363d"),
    (".run", "fill", "#54aeff", "#1f6feb"),
    (".spare", "fill", "#d1d9e0", "#3d444d"),
    (".launch", "fill", "#8c959f", "#656c76"),
    (".again", "fill", "#d4a72c", "#bb8009"),
    (".ending", "fill", "#8c959f", "#656c76"),
    (".ok", "fill", "#1a7f37", "#3fb950"),
    (".bad", "fill", "#cf222e", "#f85149"),
    (".cross", "stroke", "#cf222e", "#ff7b72"),
    (".flaw", "fill", "#bc4c00", "#ffa657"),
];

/// The text of the file.
pub(crate) fn text(timeline: &Timeline) -> String {
    let lanes = lanes(timeline);
    let mut drawing = Drawing::new(timeline, &lanes);
    drawing.head();
    drawing.axis();
    drawing.job();
    let mut top = TOP + 26.0;
    for lane in &lanes {
        top = drawing.lane(lane, top);
    }
    drawing.bands(top);
    drawing.foot();
    drawing.finish()
}

struct Drawing<'a> {
    timeline: &'a Timeline,
    /// Height of a rank's row.
    row: f64,
    /// Bottom of the last row.
    bottom: f64,
    /// Length of the axis in nanoseconds.
    span: f64,
    out: String,
    /// Height of the picture.
    height: f64,
}

impl<'a> Drawing<'a> {
    fn new(timeline: &'a Timeline, lanes: &[Lane<'_>]) -> Self {
        let row = match lanes.len() {
            0..=16 => 18.0,
            17..=40 => 13.0,
            _ => 10.0,
        };
        let span = timeline.end.as_ref().map_or(timeline.last, |end| end.at).max(timeline.last).max(1) as f64;
        let bottom = TOP + 26.0 + lanes.iter().map(|lane| height(lane, row)).sum::<f64>();
        Self { timeline, row, bottom, span, out: String::new(), height: bottom }
    }

    fn x(&self, at: u64) -> f64 {
        LEFT + (RIGHT - LEFT) * (at as f64 / self.span).min(1.0)
    }

    fn put(&mut self, args: std::fmt::Arguments<'_>) {
        // Writing to a String cannot fail.
        self.out.write_fmt(args).unwrap_or_default();
    }

    fn word(&mut self, (x, y): (f64, f64), size: f64, class: &str, text: &str) {
        self.put(format_args!(
            "<text x=\"{x:.1}\" y=\"{y:.1}\" font-size=\"{size}\" class=\"{class}\">{}</text>\n",
            escaped(text)
        ));
    }

    fn head(&mut self) {
        let command = words::command(self.timeline);
        self.word((16.0, 26.0), 15.0, "b", &cut(&command, 80));
        let size = words::size(self.timeline);
        let end = self.timeline.end.as_ref().map_or(self.timeline.last, |end| end.at);
        let line = format!("{size} \u{b7} {} \u{b7} {}", words::time(end), words::end(self.timeline));
        self.word((16.0, 45.0), 12.0, "dim", &cut(&line, LINE));
    }

    /// Vertical lines at round times, with their times below.
    fn axis(&mut self) {
        let (bottom, step) = (self.bottom, step(self.span));
        let mut at = 0.0;
        while at <= self.span {
            let x = LEFT + (RIGHT - LEFT) * at / self.span;
            self.put(format_args!("<path class=\"grid\" d=\"M{x:.1} {TOP}V{bottom:.1}\"/>\n"));
            let anchor = if x > RIGHT - 24.0 { "end" } else { "middle" };
            self.put(format_args!(
                "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10\" text-anchor=\"{anchor}\" class=\"dim\">{}</text>\n",
                bottom + 14.0,
                tick(at, step)
            ));
            at += step;
        }
    }

    /// The job's own row: its phases, with names where there is room.
    fn job(&mut self) {
        self.word((16.0, TOP + 13.0), 11.0, "b", "job");
        let end = self.timeline.end.as_ref().map_or(self.timeline.last, |end| end.at);
        let title = words::end(self.timeline);
        self.rect((0, end), (TOP + 2.0, 14.0), "run", &title);
        let timeline = self.timeline;
        let mut free = 0.0;
        for stretch in &timeline.phases {
            self.rect(
                (stretch.from, stretch.to),
                (TOP + 2.0, 14.0),
                class(&stretch.what),
                &words::phase(timeline, stretch),
            );
            // Letters are about six pixels wide.
            let wide = |name: &str| 6.0 * name.chars().count() as f64;
            let names = [words::name(stretch), words::number(stretch)];
            let places = names.iter().map(|name| (self.x(stretch.from).min(RIGHT - wide(name)), name));
            if let Some((x, name)) = places.into_iter().find(|(x, name)| *x >= free && !name.is_empty()) {
                self.word((x, TOP - 4.0), 10.0, "", name);
                free = x + wide(name) + 8.0;
            }
        }
        if let Some(end) = &timeline.end {
            let class = if end.exit == 0 { "ok" } else { "bad" };
            self.cap(end.at, (TOP + 2.0, 14.0), class);
        }
    }

    /// Restarts across all rows, above them so that they are seen.
    fn bands(&mut self, bottom: f64) {
        let timeline = self.timeline;
        let is_restart = |of: &&Stretch<Phase>| matches!(of.what, Phase::Round { .. } | Phase::Generation { .. });
        let (top, mut free) = (TOP + 18.0, 0.0);
        for stretch in timeline.phases.iter().filter(is_restart) {
            let (x, wide) = self.stretch(stretch.from, stretch.to);
            let (from, to) = (x.max(free), x + wide);
            if to - from < 0.5 {
                continue;
            }
            free = to;
            self.put(format_args!(
                "<rect class=\"again band\" x=\"{from:.1}\" y=\"{top:.1}\" width=\"{:.1}\" height=\"{:.1}\"/>\n",
                to - from,
                bottom - top
            ));
        }
    }

    /// Draws a row; returns its bottom.
    fn lane(&mut self, lane: &Lane<'_>, top: f64) -> f64 {
        let tall = height(lane, self.row);
        let size = if lane.is_header { 11.0 } else { (self.row - 2.0).min(11.0) };
        let indent = if lane.is_header { 16.0 } else { 28.0 };
        let class = if lane.is_header { "b" } else { "" };
        self.word((indent, top + tall - self.row * 0.25), size, class, &cut(&lane.label, 19));
        self.hosts(lane, top, tall);
        if lane.is_header {
            return top + tall;
        }
        let (parts, ranks) = (lane.ranks.len().min(PARTS), lane.ranks.len().max(1));
        let part = (self.row - 3.0) / parts.max(1) as f64;
        let mut drawn = BTreeSet::new();
        for (index, ((node, rank), row)) in lane.ranks.iter().enumerate() {
            let y = top + 1.5 + part * (index * parts / ranks) as f64;
            for bar in &row.bars {
                let name = format!("rank {rank} on {}", words::host(self.timeline, *node));
                self.bar(bar, &name, (y, part), &mut drawn);
            }
        }
        for ((_, rank), row) in &lane.ranks {
            row.marks.iter().for_each(|mark| self.mark(mark, *rank, top, &mut drawn));
        }
        top + tall
    }

    /// Facts about the hosts of a row.
    fn hosts(&mut self, lane: &Lane<'_>, top: f64, tall: f64) {
        let timeline = self.timeline;
        let is_own = lane.is_header || lane.nodes.0 != lane.nodes.1 || timeline.hosts.len() > 1 && lane.ranks.len() > 1;
        let own = timeline.host_marks.iter().filter(|of| (lane.nodes.0..=lane.nodes.1).contains(&of.node));
        for of in own.filter(|_| is_own) {
            let what = format!("{} {}", words::host(timeline, of.node), words::host_fact(&of.what));
            let class = if matches!(of.what, HostFact::Warned(_)) { "flaw" } else { "bad" };
            let x = self.x(of.at);
            self.put(format_args!(
                "<rect class=\"{class}\" x=\"{:.1}\" y=\"{top:.1}\" width=\"3\" height=\"{tall:.1}\"><title>{}</title></rect>\n",
                x - 1.5,
                escaped(&what)
            ));
            if lane.is_header {
                let text = words::host_fact(&of.what);
                let text = text.split(':').next().unwrap_or_default();
                let (x, anchor) = if x > 560.0 { (x - 6.0, "end") } else { (x + 6.0, "start") };
                self.put(format_args!(
                    "<text x=\"{x:.1}\" y=\"{:.1}\" font-size=\"10\" text-anchor=\"{anchor}\" class=\"{class}\">{}</text>\n",
                    top + tall - self.row * 0.25,
                    escaped(&cut(text, 40))
                ));
            }
        }
    }

    fn bar(&mut self, bar: &Stretch<Bar>, name: &str, (y, tall): (f64, f64), drawn: &mut BTreeSet<String>) {
        let Bar { pid, is_spare, finish } = &bar.what;
        let class = if *is_spare { "spare" } else { "run" };
        let (x, wide) = self.stretch(bar.from, bar.to);
        if !drawn.insert(format!("{class} {x:.0} {wide:.0} {y:.1}")) {
            return;
        }
        let spare = if *is_spare { ", spare" } else { "" };
        let more = if bar.count > 1 { format!(" ({} processes)", bar.count) } else { String::new() };
        let title = format!("{name}, pid {pid}{spare}{more}: {}", words::finish(finish));
        self.rect((bar.from, bar.to), (y, tall), class, &title);
        match finish {
            Finish::Success => self.cap(bar.to, (y, tall), "ok"),
            Finish::HostLost => self.cap(bar.to, (y, tall), "bad"),
            Finish::Continued | Finish::Failed(_) | Finish::Stopped(_) | Finish::Unknown => {}
        }
    }

    fn mark(&mut self, mark: &Mark, rank: u32, top: f64, drawn: &mut BTreeSet<String>) {
        let (x, y) = (self.x(mark.at), top + self.row / 2.0);
        let which = if matches!(mark.what, Fault::InRound { .. }) { "f" } else { "x" };
        if !drawn.insert(format!("{which} {x:.0}")) {
            return;
        }
        let more = if mark.count > 1 { format!(" and {} more", mark.count - 1) } else { String::new() };
        let title = escaped(&format!("rank {rank} {}{more}", words::mark(&mark.what)));
        let scale = (self.row / 18.0).max(0.65);
        self.put(format_args!(
            "<use href=\"#{which}\" xlink:href=\"#{which}\" transform=\"translate({x:.1} {y:.1}) scale({scale:.2})\"><title>{title}</title></use>\n"
        ));
    }

    /// Left edge and width.
    fn stretch(&self, from: u64, to: u64) -> (f64, f64) {
        let (x, end) = (self.x(from), self.x(to));
        (x, (end - x).max(THIN))
    }

    fn rect(&mut self, (from, to): (u64, u64), (y, tall): (f64, f64), class: &str, title: &str) {
        let (x, wide) = self.stretch(from, to);
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{x:.1}\" y=\"{y:.2}\" width=\"{wide:.1}\" height=\"{tall:.2}\"><title>{}</title></rect>\n",
            escaped(title)
        ));
    }

    /// The end of a bar.
    fn cap(&mut self, at: u64, (y, tall): (f64, f64), class: &str) {
        let x = self.x(at);
        self.put(format_args!(
            "<rect class=\"{class}\" x=\"{:.1}\" y=\"{y:.2}\" width=\"3\" height=\"{tall:.2}\"/>\n",
            x - 1.5
        ));
    }

    /// The legend, and what happened in words.
    fn foot(&mut self) {
        let mut y = self.legend(self.bottom + 34.0);
        let course = words::course(self.timeline);
        let shown = course.len().min(LINES);
        let more = course.len() - shown;
        let rest = (more > 0).then(|| format!("and {more} more"));
        y += 10.0;
        for (at, what) in course.iter().take(shown) {
            y += 16.0;
            self.put(format_args!(
                "<text x=\"72\" y=\"{y:.1}\" font-size=\"11\" text-anchor=\"end\" class=\"dim\">{}</text>\n",
                words::time(*at)
            ));
            self.word((82.0, y), 11.0, "", &cut(what, LINE));
        }
        for line in rest.into_iter().chain(words::gaps(self.timeline)) {
            y += 16.0;
            self.word((82.0, y), 11.0, "dim", &line);
        }
        self.height = y + 16.0;
    }

    /// Returns its bottom.
    fn legend(&mut self, y: f64) -> f64 {
        let rows = || self.timeline.rows.values();
        let bars = || rows().flat_map(|row| &row.bars);
        let marks = || rows().flat_map(|row| &row.marks);
        let is_in_round = |mark: &Mark| matches!(mark.what, Fault::InRound { .. });
        let has_restart = |of: &Stretch<Phase>| matches!(of.what, Phase::Round { .. } | Phase::Generation { .. });
        let entries = [
            ("run", "runs", true),
            ("spare", "spare", bars().any(|bar| bar.what.is_spare)),
            ("again", "restart", self.timeline.phases.iter().any(has_restart)),
            ("launch", "launch, ending", true),
            ("ok", "exit code 0", bars().any(|bar| bar.what.finish == Finish::Success)),
            ("#x", "failed", marks().any(|mark| !is_in_round(mark))),
            ("#f", "fault, process continues", marks().any(is_in_round)),
            ("bad", "host lost", !self.timeline.host_marks.is_empty()),
        ];
        let mut x = 16.0;
        let mut y = y;
        for (what, text, _) in entries.into_iter().filter(|(.., is_there)| *is_there) {
            let wide = 15.0 + 5.6 * text.chars().count() as f64 + 14.0;
            if x + wide > WIDTH {
                (x, y) = (16.0, y + 15.0);
            }
            let middle = y - 4.0;
            match what.strip_prefix('#') {
                Some(id) => self.put(format_args!(
                    "<use href=\"#{id}\" xlink:href=\"#{id}\" transform=\"translate({:.1} {middle:.1}) scale(0.8)\"/>\n",
                    x + 5.0
                )),
                None => self.put(format_args!(
                    "<rect class=\"{what}\" x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\"/>\n",
                    y - 9.0
                )),
            }
            self.word((x + 15.0, y), 10.0, "dim", text);
            x += wide;
        }
        y
    }

    fn finish(self) -> String {
        let (height, body) = (self.height, self.out);
        format!(
            "<svg xmlns=\"http://www.w3.org/2000/svg\" xmlns:xlink=\"http://www.w3.org/1999/xlink\" viewBox=\"0 0 {WIDTH} {height:.0}\" \
             width=\"{WIDTH}\" height=\"{height:.0}\" font-family=\"system-ui, -apple-system, 'Segoe UI', 'DejaVu Sans', sans-serif\">\n\
             {}<defs>\
             <path id=\"x\" class=\"cross\" stroke-width=\"2.4\" d=\"M-5-5L5 5M5-5L-5 5\"/>\
             <path id=\"f\" class=\"flaw\" d=\"M0-6L6 0L0 6L-6 0Z\"/></defs>\n\
             <rect class=\"bg\" width=\"{WIDTH}\" height=\"{height:.0}\"/>\n{body}</svg>\n",
            style()
        )
    }
}

/// The style sheet: light, and dark for readers with a dark theme.
fn style() -> String {
    let rules = |dark: bool| {
        let rule = |(class, property, light, night): (&str, &str, &str, &str)| {
            format!("{class}{{{property}:{}}}", if dark { night } else { light })
        };
        COLOURS.into_iter().map(rule).collect::<String>()
    };
    format!(
        "<style>{}.b{{font-weight:600}}.band{{opacity:.45}}.grid{{fill:none}}\n@media (prefers-color-scheme:dark){{{}}}</style>\n",
        rules(false),
        rules(true)
    )
}

const fn class(phase: &Phase) -> &'static str {
    match phase {
        Phase::Launch => "launch",
        Phase::Generation { .. } | Phase::Round { .. } => "again",
        Phase::Ending { .. } => "ending",
    }
}

fn height(lane: &Lane<'_>, row: f64) -> f64 {
    if lane.is_header { row + 4.0 } else { row }
}

/// Distance of the lines of the axis in nanoseconds: round, and not more than eight of them.
fn step(span: f64) -> f64 {
    const SECOND: f64 = 1e9;
    let rough = span / 8.0;
    let round = [60.0, 120.0, 300.0, 600.0, 1_200.0, 3_600.0, 7_200.0, 14_400.0, 28_800.0, 86_400.0];
    if rough > 30.0 * SECOND {
        let step = round.iter().map(|step| step * SECOND).find(|step| *step >= rough);
        return step.unwrap_or_else(|| (rough / (86_400.0 * SECOND)).ceil() * 86_400.0 * SECOND);
    }
    let mut unit = 1_000.0;
    while unit * 10.0 < rough {
        unit *= 10.0;
    }
    [1.0, 2.0, 5.0, 10.0].iter().map(|n| n * unit).find(|step| *step >= rough).unwrap_or(rough)
}

/// A time at the axis.
fn tick(at: f64, step: f64) -> String {
    let (unit, name) = match step {
        step if step >= 3.6e12 => (3.6e12, "h"),
        step if step >= 6e10 => (6e10, "min"),
        step if step >= 1e8 => (1e9, "s"),
        _ => (1e6, "ms"),
    };
    let (value, exact) = (at / unit, (step / unit).fract() == 0.0);
    if at == 0.0 {
        "0".into()
    } else if exact {
        format!("{value:.0} {name}")
    } else {
        format!("{value:.1} {name}")
    }
}

/// The beginning of a text.
fn cut(text: &str, most: usize) -> String {
    match text.char_indices().nth(most) {
        Some((end, _)) => format!("{}\u{2026}", text.get(..end).unwrap_or(text)),
        None => text.to_owned(),
    }
}

/// A text for XML, which has no control characters.
fn escaped(text: &str) -> String {
    let text = Visible(text.as_bytes()).to_string();
    let mut out = String::with_capacity(text.len());
    for c in text.chars() {
        match c {
            '&' => out.push_str("&amp;"),
            '<' => out.push_str("&lt;"),
            '>' => out.push_str("&gt;"),
            '"' => out.push_str("&quot;"),
            '\u{fffe}' | '\u{ffff}' => out.push('\u{fffd}'),
            c if c.is_control() => out.push('\u{fffd}'),
            c => out.push(c),
        }
    }
    out
}
