//! `rlaunch report`: a job after its end, from its event log.

use super::errors::CliError;
use super::scan::{self, Given};
use super::table::{Id, REPORT, options};
use super::{Answer, Command, help};
use rlaunch_base::os_bytes::OsBytes;

pub(super) const USAGE: &str = "\
Usage: rlaunch report [OPTIONS] EVENTS

Prints the course of a job from its event log (rlaunch --events EVENTS ...):
launch, restarts, lost hosts and end, a line each.

";

options! {
    Report;
    Timeline ["timeline"] One("FILE"): "draw the job: FILE.svg, or FILE.json for Perfetto";
    Help -b'h' ["help"] Nothing: "print this";
}

/// Form of a picture.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum Picture {
    /// For browsers and documents.
    Svg,
    /// Trace format of Chrome.
    Json,
}

/// The request.
#[derive(PartialEq, Eq, Debug)]
pub(crate) struct ReportRequest {
    /// The event log.
    pub(crate) events: OsBytes,
    /// File of the picture.
    pub(crate) timeline: Option<(OsBytes, Picture)>,
}

/// Reads the words after `report`.
pub(super) fn parse(words: Vec<OsBytes>) -> Result<Command, CliError> {
    let words = scan::mixed(words.into_iter(), &REPORT)?;
    let mut timeline = None;
    for Given { row, spelled, value, .. } in words.given {
        let Id::Report(opt) = row.id else { continue };
        match opt {
            Opt::Timeline => timeline = Some(picture(spelled, value)?),
            Opt::Help => return Ok(Command::text(help::command_named("report"))),
        }
    }
    let of = OsBytes::from("rlaunch report");
    let mut words = words.argv.into_iter();
    let events = words.next().ok_or_else(|| CliError::missing(&of, "EVENTS, the event log of a job", &REPORT))?;
    if let Some(more) = words.next() {
        let hint = Some("rlaunch report for each log".into());
        return Err(CliError::Value { option: of, takes: "one event log".into(), got: more, hint });
    }
    Ok(Command::Answer(Answer::Report(Box::new(ReportRequest { events, timeline }))))
}

fn picture(option: OsBytes, file: OsBytes) -> Result<(OsBytes, Picture), CliError> {
    let is = |ending: &str| file.to_ascii_lowercase().ends_with(ending.as_bytes());
    match (is(".svg"), is(".json")) {
        (true, _) => Ok((file, Picture::Svg)),
        (_, true) => Ok((file, Picture::Json)),
        (false, false) => {
            let hint = Some(format!("{option} timeline.svg").into());
            Err(CliError::Value { option, takes: "a file that ends in .svg or .json".into(), got: file, hint })
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn asked(line: &str) -> Result<ReportRequest, String> {
        match parse(line.split(' ').map(OsBytes::from).collect()).map_err(|error| error.render())? {
            Command::Answer(Answer::Report(request)) => Ok(*request),
            other => Err(format!("{other:?}")),
        }
    }

    #[test]
    fn form_of_picture_follows_from_the_name_of_the_file() {
        let picture = |line| asked(line).map(|request| request.timeline);
        assert_eq!(picture("events"), Ok(None));
        assert_eq!(picture("--timeline a.svg events"), Ok(Some(("a.svg".into(), Picture::Svg))));
        assert_eq!(picture("events --timeline=A.JSON"), Ok(Some(("A.JSON".into(), Picture::Json))));
        let wrong = picture("events --timeline a.png").unwrap_err();
        assert!(wrong.contains("'a.png'") && wrong.contains("try     --timeline timeline.svg"), "{wrong}");
    }

    #[test]
    fn report_takes_one_log() {
        assert!(asked("--timeline a.svg").unwrap_err().contains("EVENTS"));
        assert!(asked("a b").unwrap_err().contains("'b'"));
    }
}
