//! The course of a job in lines.

use super::super::phrases::short_lines;
use super::words;
use rlaunch_base::os_bytes::Visible;
use rlaunch_core::timeline::Timeline;

/// A line for each thing that happened to the job, with its time.
pub(crate) fn text(timeline: &Timeline) -> String {
    let mut text = String::new();
    let mut line = |key: &str, words: &str| {
        text.push_str(&format!("{key:<9} {}\n", Visible(words.as_bytes())));
    };
    line("job", &format!("{}: {}", words::size(timeline), words::command(timeline)));
    for (at, words) in words::course(timeline) {
        line(&words::time(at), &words);
    }
    let at = timeline.end.as_ref().map_or(timeline.last, |end| end.at);
    line(&words::time(at), &words::end(timeline));
    words::gaps(timeline).iter().for_each(|gap| line("note", gap));
    short_lines(text)
}
