//! Sentences that rlaunch says while a job runs. One line each, except the closing report.

use super::phrases;
use super::{Tone, host_messages, limit, path_search, report, round_messages};
use rlaunch_core::events::Cause;
use rlaunch_core::id::{Rank, Std};
use rlaunch_core::os_bytes::{OsBytes, Visible};
use rlaunch_core::report::{Fewer, Sentence};
use rlaunch_core::signal::Signal;
use rlaunch_core::status::Status;
use rlaunch_core::time::Span;
use rlaunch_core::travel::Lowered;

/// The sender of a signal that rlaunch got.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(crate) enum By {
    /// A key of our terminal.
    Key,
    /// Any process that may send us one.
    Sender,
}

/// The text of a sentence, with its newline; `None`: this tone leaves it out. `terminal`: stderr is one. `by`: whose the
/// last signal was.
pub(crate) fn say(sentence: &Sentence, tone: Tone, terminal: bool, by: By) -> Option<String> {
    if let Sentence::Report(report) = sentence {
        let around = path_search::look(report);
        return report::is_shown(report, tone, terminal).then(|| phrases::short_lines(report::render(report, &around)));
    }
    if tone < round_messages::least(sentence) {
        return None;
    }
    let text = || phrases::short_lines(format!("rlaunch: {}\n", line(sentence, tone, by)));
    (tone > Tone::Quiet || !is_note(sentence)).then(text)
}

/// Notes explain how a job runs; everything else says that something went wrong, or answers the user.
const fn is_note(sentence: &Sentence) -> bool {
    match sentence {
        Sentence::PortUnreserved { .. }
        | Sentence::Tier { .. }
        | Sentence::Lowered { .. }
        | Sentence::OneMachine { .. }
        | Sentence::Detour { .. }
        | Sentence::StoreLeft { .. }
        | Sentence::StoreUnused { .. }
        | Sentence::StoreForeign { .. }
        | Sentence::LinesBroken(_) => true,
        Sentence::LeftOut(_)
        | Sentence::StoreLimit { .. }
        | Sentence::GoesOn { .. }
        | Sentence::Spared { .. }
        | Sentence::Restarts { .. }
        | Sentence::NoProgress { .. }
        | Sentence::NotClear
        | Sentence::Round { .. }
        | Sentence::GivenUp { .. }
        | Sentence::Unrestarted { .. }
        | Sentence::Unable { .. }
        | Sentence::Sent { .. }
        | Sentence::Unstarted { .. }
        | Sentence::Waiting { .. }
        | Sentence::Ending { .. }
        | Sentence::Unwritten { .. }
        | Sentence::Awaited { .. }
        | Sentence::Silent { .. }
        | Sentence::Killing { .. }
        | Sentence::Leaving { .. }
        | Sentence::ReaderClosed(_)
        | Sentence::HungUp(_)
        | Sentence::InputFailed { .. }
        | Sentence::InputUndelivered { .. }
        | Sentence::SinkFailed { .. }
        | Sentence::OutputLost(_)
        | Sentence::FileFailed { .. }
        | Sentence::FilesLost(_)
        | Sentence::Report(_) => false,
    }
}

/// The last words of an ssh that ended before the job did.
pub(crate) fn ssh_said(host: &str, words: &[u8]) -> String {
    let lines = words.split(|b| *b == b'\n');
    lines.map(|line| format!("rlaunch: ssh to {host}: {}\n", Visible(line))).collect()
}

/// The message about bytes of a host among the messages of its agent.
pub(crate) fn no_message(host: &str, bytes: &[u8]) -> String {
    let text =
        bytes.split(|b| b.is_ascii_control() && !b.is_ascii_whitespace()).next().unwrap_or_default().trim_ascii();
    // Of a frame that came too early, say, there is nothing to read.
    let shown = if text.is_empty() { bytes.get(..16).unwrap_or(bytes) } else { text };
    format!(
        "rlaunch: something on {host} writes among its agent's messages: '{}'; let the shell's start-up files, and what they \
         start, print nothing where no terminal is\n",
        Visible(shown)
    )
}

/// The event log cannot be written.
pub(crate) fn log_failed(errno: i32) -> String {
    format!("rlaunch: cannot write the event log: {}; the job continues without it\n", phrases::errno(errno))
}

fn store_left(addr: &OsBytes) -> String {
    format!("{addr} is no address of the host of rank 0 itself: the TCPStore is left to rank 0")
}

fn store_foreign(from: &OsBytes) -> String {
    format!(
        "{from} asked the store and was refused: no host of the job has that address; if they are translated between hosts (NAT): \
         --master-store rank0, or, where nobody else can reach that port, --store-guard off"
    )
}

fn store_unused(at: &OsBytes) -> String {
    format!("nobody uses the store at {at}; if the program sets its own port: --master-store rank0")
}

/// To one who wants to end what ends.
const ENDING: &str = "the job is ending already";

fn spared(rank: Rank, status: Status, end_in: Span) -> String {
    let wait = phrases::wait(end_in);
    format!("rank {rank} was killed by the {status} that rlaunch passed on; the others have {wait} to finish")
}

/// The other ranks, after a failure that does not end them.
const CONTINUE: &str = "the others continue (--on-failure continue)";

fn hung_up(std: Std) -> String {
    format!("the terminal of {} has hung up; the job continues without it", phrases::std(std))
}

fn line(sentence: &Sentence, tone: Tone, by: By) -> String {
    let (key, verb) = (|sig: &Signal| key(*sig, by), |sig: &Signal| verb(*sig, by));
    match sentence {
        Sentence::PortUnreserved { port } => {
            format!("MASTER_PORT {port} is not reserved against other jobs: all names for ports are taken on this host")
        }
        Sentence::Tier { tier, note } => format!("containment {}: {note}", phrases::tier(*tier)),
        Sentence::Lowered { lowered, hosts } => less(*lowered, hosts),
        Sentence::OneMachine { hosts, more } => one_machine(hosts, *more),
        Sentence::Detour { addr, instead_of, to, hosts } => detour(addr, instead_of, to, hosts),
        Sentence::StoreLeft { addr } => store_left(addr),
        Sentence::StoreUnused { at } => store_unused(at),
        Sentence::StoreForeign { from } => store_foreign(from),
        Sentence::StoreLimit { host, met } => limit::met(host, met),
        Sentence::LeftOut(report) => host_messages::left_out(report),
        Sentence::GoesOn { rank, status } => format!("rank {rank} failed: {status}; {CONTINUE}"),
        Sentence::Spared { rank, status, end_in } => spared(*rank, *status, *end_in),
        Sentence::Restarts { .. } | Sentence::NoProgress { .. } | Sentence::NotClear => again(sentence),
        Sentence::Round { .. } | Sentence::GivenUp { .. } | Sentence::Unable { .. } => {
            round_messages::line(sentence, tone)
        }
        Sentence::Unrestarted { sig } => format!("{}nothing runs, and nothing is started again", key(sig)),
        Sentence::Sent { sig, kill_in } if kill_in.nanos() == 0 => format!("{}sent {sig}, then SIGKILL", key(sig)),
        Sentence::Sent { sig, kill_in } => {
            format!("{}sent {sig}, SIGKILL in {}; {} again to kill now", key(sig), phrases::wait(*kill_in), verb(sig))
        }
        Sentence::Unstarted { sig, awaited } => format!("{}{}", key(sig), unstarted(awaited)),
        Sentence::Waiting { cause, kill_in } => {
            format!("{}; sent SIGTERM, SIGKILL in {}", waiting(cause), phrases::wait(*kill_in))
        }
        Sentence::Ending { sig, kill_in: Some(kill_in) } => {
            let wait = phrases::wait(*kill_in);
            format!("{}{ENDING}, SIGKILL in {wait}; {} again to kill now", key(sig), verb(sig))
        }
        Sentence::Ending { sig, kill_in: None } => format!("{}{ENDING}, SIGKILL was sent", key(sig)),
        Sentence::Unwritten { sig, patience } => {
            let wait = phrases::wait(*patience);
            format!("{}all ranks have ended; output that nobody takes within {wait} is dropped", key(sig))
        }
        Sentence::Awaited { host, within } => {
            let within = phrases::wait(*within);
            format!("{host} cannot be asked any more: its lease ends its ranks, within {within} at the latest")
        }
        Sentence::Silent { hosts, within } => silent(hosts, *within),
        Sentence::Killing { sig } => format!("{}sent SIGKILL; {} again to leave at once", key(sig), verb(sig)),
        Sentence::Leaving { sig } => format!("{}leaving now; the guardian ends what is left", key(sig)),
        Sentence::ReaderClosed(std) => format!("the reader of {} has closed it; the job ends", phrases::std(*std)),
        Sentence::HungUp(std) => hung_up(*std),
        Sentence::InputFailed { errno } => no_input("read on", *errno),
        Sentence::InputUndelivered { errno } => no_input("passed on", *errno),
        Sentence::SinkFailed { std, errno } => sink_failed(*std, *errno),
        Sentence::LinesBroken(lines) => {
            format!("{} broken because another rank waited", phrases::count_was(*lines, "line"))
        }
        Sentence::OutputLost(lost) => format!("{} of output could not be written", phrases::bytes(*lost)),
        Sentence::FileFailed { host, errno, path } => file_failed(path, host, *errno),
        Sentence::FilesLost(lost) => format!("{} could not be written to log files", phrases::bytes(*lost)),
        Sentence::Report(_) => String::new(),
    }
}

/// The consequence of the failure of a rank where all may be started again.
fn again(sentence: &Sentence) -> String {
    match sentence {
        Sentence::Restarts { rank, status, fewer, restart, most, delay } => {
            let when = if delay.nanos() == 0 { "now".to_owned() } else { format!("in {}", phrases::wait(*delay)) };
            let (what, who) = match fewer.as_deref() {
                None => (format!("rank {rank} failed: {status}"), "all ranks are".to_owned()),
                Some(Fewer { by, without, ranks }) => {
                    let are = if *ranks == 1 { "is" } else { "are" };
                    let who = format!("without {without} {} {are}", phrases::count((*ranks).into(), "rank"));
                    let failed = || format!("rank {rank} failed: {status}");
                    (if by.is_empty() { failed() } else { format!("{by} is lost") }, who)
                }
            };
            format!("{what}; {who} started again {when} (restart {restart} of {most})")
        }
        Sentence::NoProgress { rank, alike } => {
            format!(
                "rank {rank} failed at once {alike} times in a row, each time in the same way: no restart will help"
            )
        }
        _ => "what is left of the ranks cannot be ended, so they are not started again".to_owned(),
    }
}

fn unstarted(awaited: &OsBytes) -> String {
    format!("nothing was started; still waited for: {}", host_messages::beginning(awaited.to_string()))
}

fn sink_failed(std: rlaunch_core::id::Std, errno: i32) -> String {
    format!("cannot write to {}: {}; the job continues without it", phrases::std(std), phrases::errno(errno))
}

fn file_failed(path: &OsBytes, host: &OsBytes, errno: i32) -> String {
    format!("cannot write {path} on {host}: {}; the job continues without what is lost there", phrases::errno(errno))
}

fn less(Lowered { on, to }: Lowered, hosts: &OsBytes) -> String {
    let most = phrases::limit(on, to);
    format!("limit {} is {most} on {hosts}, and not what it is here: more is not allowed there", on.name())
}

fn silent(hosts: &OsBytes, within: Span) -> String {
    let (hosts, within) = (host_messages::beginning(hosts.to_string()), phrases::wait(within));
    format!("waiting for {hosts}: nothing is heard from there, and leases end the ranks within {within} at the latest")
}

/// Whether that was meant, only the user knows.
fn one_machine(hosts: &OsBytes, more: usize) -> String {
    let more = match more {
        0 => String::new(),
        more => format!(", and so it is with {}", phrases::count(more as u64, "other machine")),
    };
    format!("{hosts} are one machine: under each name its ranks begin with LOCAL_RANK 0{more}")
}

fn detour(addr: &OsBytes, instead_of: &OsBytes, to: &OsBytes, hosts: &OsBytes) -> String {
    let hosts = host_messages::beginning(hosts.to_string());
    format!(
        "MASTER_ADDR is {addr}: {instead_of} of {to} is not reached from {hosts}; --interface NAME saves the time to find out"
    )
}

fn no_input(what: &str, errno: i32) -> String {
    format!("standard input cannot be {what} ({}); rank 0 gets end of file here", phrases::errno(errno))
}

/// Why ranks are being ended; the closing report tells it all.
fn waiting(cause: &Cause) -> String {
    match cause {
        Cause::Rank { rank, status } => format!("rank {rank} failed ({status}), waiting for the others to end"),
        Cause::Timeout(limit) => format!("--timeout {} ran out, waiting for ranks to end", phrases::wait(*limit)),
        Cause::Success
        | Cause::Spawn { .. }
        | Cause::Refused { .. }
        | Cause::Unreachable { .. }
        | Cause::Signal(_)
        | Cause::ReaderClosed(_)
        | Cause::Lost { .. } => "waiting for ranks to end".into(),
    }
}

/// The user's action, where it is known.
fn key(sig: Signal, by: By) -> String {
    match (sig, by) {
        (Signal::INT, By::Key) => "Ctrl-C: ".into(),
        (Signal::QUIT, By::Key) => "Ctrl-\\: ".into(),
        (sig, By::Key | By::Sender) => format!("got {sig}: "),
    }
}

/// How it is done again.
const fn verb(sig: Signal, by: By) -> &'static str {
    match (sig, by) {
        (Signal::INT | Signal::QUIT, By::Key) => "press",
        _ => "send it",
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use rlaunch_core::id::Std;
    use rlaunch_core::spec::Tier;

    #[test]
    fn a_signal_that_was_passed_on_is_reported_as_such() {
        let said = spared(Rank::new(2), Status::Signaled { sig: Signal::USR1, core: false }, Span::from_secs(4));
        assert_eq!(said, "rank 2 was killed by the SIGUSR1 that rlaunch passed on; the others have 4s to finish");
    }

    #[test]
    fn sentences() {
        let said: String = [
            Sentence::Sent { sig: Signal::INT, kill_in: Span::from_secs(5) },
            Sentence::Sent { sig: Signal::TERM, kill_in: Span::from_millis(1500) },
            Sentence::Unstarted { sig: Signal::INT, awaited: "node3".into() },
            Sentence::Ending { sig: Signal::INT, kill_in: Some(Span::from_millis(3900)) },
            Sentence::Killing { sig: Signal::INT },
            Sentence::Awaited { host: "node2".into(), within: Span::from_secs(36) },
            Sentence::Silent { hosts: "node[1-3]".into(), within: Span::from_millis(30_300) },
            Sentence::Waiting { cause: Cause::Timeout(Span::from_secs(60)), kill_in: Span::from_secs(4) },
            Sentence::Waiting {
                cause: Cause::Rank { rank: Rank::new(2), status: Status::Exited(3) },
                kill_in: Span::from_secs(4),
            },
            Sentence::Leaving { sig: Signal::INT },
            Sentence::Unwritten { sig: Signal::HUP, patience: Span::from_secs(2) },
            Sentence::ReaderClosed(Std::Out),
            Sentence::HungUp(Std::Out),
            Sentence::InputFailed { errno: 21 },
            Sentence::InputUndelivered { errno: 28 },
            Sentence::SinkFailed { std: Std::Out, errno: 28 },
            Sentence::LinesBroken(1),
            Sentence::OutputLost(2048),
            Sentence::GoesOn { rank: Rank::new(2), status: Status::Exited(3) },
            Sentence::Tier { tier: Tier::T3, note: OsBytes::from("no right to unshare") },
            Sentence::OneMachine { hosts: "a and b".into(), more: 0 },
            Sentence::OneMachine { hosts: "a, b and 3 more".into(), more: 2 },
        ]
        .iter()
        .filter_map(|sentence| say(sentence, Tone::Normal, false, By::Key))
        .collect();
        assert_eq!(
            said,
            "rlaunch: Ctrl-C: sent SIGINT, SIGKILL in 5s; press again to kill now\n\
             rlaunch: got SIGTERM: sent SIGTERM, SIGKILL in 1.5s; send it again to kill now\n\
             rlaunch: Ctrl-C: nothing was started; still waited for: node3\n\
             rlaunch: Ctrl-C: the job is ending already, SIGKILL in 3.9s; press again to kill now\n\
             rlaunch: Ctrl-C: sent SIGKILL; press again to leave at once\n\
             rlaunch: node2 cannot be asked any more: its lease ends its ranks, within 36s at the latest\n\
             rlaunch: waiting for node[1-3]: nothing is heard from there, and leases end the ranks within 30.3s at the latest\n\
             rlaunch: --timeout 60s ran out, waiting for ranks to end; sent SIGTERM, SIGKILL in 4s\n\
             rlaunch: rank 2 failed (exit 3), waiting for the others to end; sent SIGTERM, SIGKILL in 4s\n\
             rlaunch: Ctrl-C: leaving now; the guardian ends what is left\n\
             rlaunch: got SIGHUP: all ranks have ended; output that nobody takes within 2s is dropped\n\
             rlaunch: the reader of stdout has closed it; the job ends\n\
             rlaunch: the terminal of stdout has hung up; the job continues without it\n\
             rlaunch: standard input cannot be read on (is a directory); rank 0 gets end of file here\n\
             rlaunch: standard input cannot be passed on (no space left on device); rank 0 gets end of file here\n\
             rlaunch: cannot write to stdout: no space left on device; the job continues without it\n\
             rlaunch: 1 line was broken because another rank waited\n\
             rlaunch: 2 KiB of output could not be written\n\
             rlaunch: rank 2 failed: exit 3; the others continue (--on-failure continue)\n\
             rlaunch: containment t3: no right to unshare\n\
             rlaunch: a and b are one machine: under each name its ranks begin with LOCAL_RANK 0\n\
             rlaunch: a, b and 3 more are one machine: under each name its ranks begin with LOCAL_RANK 0, and so it is \
             with 2 other machines\n"
        );
    }

    #[test]
    fn malformed_message_is_quoted() {
        for (bytes, quoted) in [
            (&b"tick 1\ntick 2\n"[..], "'tick 1\\ntick 2'"),
            (&b"tick\n\x10\0\0\0\x05\0"[..], "'tick'"),
            (&b"\0\x01\xff"[..], "'\\u{0}\\u{1}\\xff'"),
        ] {
            let said = no_message("node1", bytes);
            assert!(said.contains(&format!("on node1 writes among its agent's messages: {quoted}; let")), "{said}");
        }
    }

    #[test]
    fn quiet_leaves_notes_out() {
        assert_eq!(say(&Sentence::LinesBroken(1), Tone::Quiet, true, By::Key), None);
        assert!(say(&Sentence::ReaderClosed(Std::Err), Tone::Quiet, true, By::Key).is_some());
    }

    #[test]
    fn a_signal_that_no_key_made_is_named() {
        let said: String = [
            Sentence::Sent { sig: Signal::INT, kill_in: Span::from_secs(5) },
            Sentence::Killing { sig: Signal::QUIT },
            Sentence::Leaving { sig: Signal::INT },
        ]
        .iter()
        .filter_map(|sentence| say(sentence, Tone::Normal, false, By::Sender))
        .collect();
        assert_eq!(
            said,
            "rlaunch: got SIGINT: sent SIGINT, SIGKILL in 5s; send it again to kill now\n\
             rlaunch: got SIGQUIT: sent SIGKILL; send it again to leave at once\n\
             rlaunch: got SIGINT: leaving now; the guardian ends what is left\n"
        );
    }
}
