//! The watch over this host: one task, which the agent's own wait polls. It holds three long polls.

use crate::edges::part::{Base, Part};
use rlaunch_base::time::{Span, WallNs};
use rlaunch_core::node::NodeEvent;
use rlaunch_plan::metadata::{AnswerParser, Asked, HostWatch, Key, Next, Outcome, Reading, Report, Watch};
use rlaunch_protocol::wire::node_news::NodeNews;
use std::convert::Infallible;
use std::io;
use std::net::SocketAddr;
use std::pin::Pin;
use std::task::{Context, Poll};
use std::time::Instant;
use tokio::io::{AsyncReadExt as _, AsyncWriteExt as _};
use tokio::net::TcpStream;
use tokio::sync::mpsc::{Receiver, Sender, channel};
use tokio::time::{sleep, timeout};

/// Bytes that are read at a time.
const PART: usize = 4096;
/// Reports that may wait for the agent.
const WAITING: usize = 16;
/// The longest sleep: the clock on the wall may be set meanwhile.
const LONGEST_SLEEP: Span = Span::from_secs(600);

/// The watch, where this host has a metadata server.
#[derive(Default)]
pub(in crate::edges) enum Watching {
    /// No rank has been started.
    #[default]
    Awaited,
    /// The host has no metadata server, or the server refuses it.
    Off,
    /// The task, and its reports.
    On { task: Pin<Box<dyn Future<Output = ()>>>, reports: Receiver<Report> },
}

impl Part for Watching {
    type Action = Infallible;

    fn perform(&mut self, _base: &mut Base, action: Infallible) {
        match action {}
    }

    /// Begins the watch once ranks run, and takes in reports.
    fn poll(&mut self, base: &mut Base, cx: &mut Context<'_>) {
        if matches!(self, Self::Awaited) && !base.ranks.is_empty() {
            *self = super::server().map_or(Self::Off, |server| {
                tracing::debug!("watching the metadata server at {server}");
                let (sender, reports) = channel(WAITING);
                Self::On { task: Box::pin(watch_host(server, sender)), reports }
            });
        }
        let Self::On { task, reports } = self else { return };
        let is_over = task.as_mut().poll(cx).is_ready();
        while let Poll::Ready(Some(report)) = reports.poll_recv(cx) {
            tracing::debug!(?report, "the metadata server");
            base.events.push_back(match report {
                Report::Warning(source) => NodeEvent::Warned(source),
                Report::Note(note) => NodeEvent::News(NodeNews::WarningNote(note)),
            });
        }
        if is_over {
            *self = Self::Off;
        }
    }
}

/// Watches all keys. Ends if the server refuses this host.
pub(super) async fn watch_host(server: SocketAddr, reports: Sender<Report>) {
    let (sender, readings) = channel(WAITING);
    let keys = Key::ALL.map(|key| watch_key(server, key, sender.clone()));
    drop(sender);
    let [preempted, event, upcoming] = keys;
    tokio::join!(preempted, event, upcoming, judge(readings, reports));
}

/// Asks for one key, again and again.
async fn watch_key(server: SocketAddr, key: Key, readings: Sender<(Key, Reading)>) {
    let mut watch = Watch::new(key);
    loop {
        let asked = watch.ask(&server.ip().to_string());
        let outcome = ask(server, &asked).await;
        tracing::trace!(?key, ?outcome, "an answer of the metadata server");
        let (reading, next) = watch.on_outcome(outcome);
        if readings.send((key, reading)).await.is_err() {
            return;
        }
        match next {
            Next::Ask(pause) if pause == Span::ZERO => {}
            Next::Ask(pause) => sleep(pause.duration()).await,
            Next::Stop => return,
        }
    }
}

/// Asks once, on a connection of its own.
async fn ask(server: SocketAddr, asked: &Asked) -> Outcome {
    let start = Instant::now();
    match timeout(asked.limit.duration(), exchange(server, &asked.bytes, start)).await {
        Ok(Ok(outcome)) => outcome,
        Ok(Err(error)) => {
            tracing::trace!(%error, "the metadata server cannot be asked");
            Outcome::Silent
        }
        Err(_elapsed) => Outcome::Silent,
    }
}

async fn exchange(server: SocketAddr, request: &[u8], start: Instant) -> io::Result<Outcome> {
    let mut stream = TcpStream::connect(server).await?;
    stream.write_all(request).await?;
    let (mut parser, mut part) = (AnswerParser::default(), vec![0; PART]);
    loop {
        let len = stream.read(&mut part).await?;
        match parser.add(part.get(..len).unwrap_or_default()) {
            Ok(None) => {}
            Ok(Some(answer)) => {
                let took = u64::try_from(start.elapsed().as_nanos()).unwrap_or(u64::MAX);
                return Ok(Outcome::Answered(answer, Span::from_nanos(took)));
            }
            Err(error) => return Ok(Outcome::Unusable(error)),
        }
    }
}

/// Decides what the readings mean for this host.
async fn judge(mut readings: Receiver<(Key, Reading)>, reports: Sender<Report>) {
    let mut host = HostWatch::default();
    loop {
        let due = host.due_in(wall()).map_or(LONGEST_SLEEP, |due| due.min(LONGEST_SLEEP));
        let report = tokio::select! {
            // Cancel-safe: a reading that was not received stays in the channel.
            reading = readings.recv() => match reading {
                Some((key, reading)) => host.on_reading(key, &reading, wall()),
                None => return,
            },
            // Cancel-safe: the next sleep is measured anew.
            () = sleep(due.duration()) => host.on_time(wall()),
        };
        if let Some(report) = report
            && reports.send(report).await.is_err()
        {
            return;
        }
    }
}

fn wall() -> WallNs {
    WallNs(rlaunch_sys::clock::wall())
}
