//! The client against servers on loopback, good and bad.

use super::*;
use rlaunch_base::warnings::WarningSource;
use rlaunch_plan::metadata::{Attribute, Report};
use std::io::{BufRead as _, BufReader, Write as _};
use std::net::TcpListener;
use std::time::{Duration, Instant};

/// Serves one connection after the other, each by a thread of its own. Returns the address.
fn serve(answer: fn(&str) -> Option<String>) -> SocketAddr {
    let listener = TcpListener::bind("127.0.0.1:0").unwrap();
    let address = listener.local_addr().unwrap();
    std::thread::Builder::new()
        .spawn(move || {
            let mut kept = Vec::new();
            for stream in listener.incoming() {
                let mut stream = stream.unwrap();
                let mut lines = BufReader::new(stream.try_clone().unwrap()).lines();
                let first = lines.next().unwrap().unwrap();
                let is_ours = lines.map_while(Result::ok).take_while(|line| !line.is_empty());
                assert!(is_ours.collect::<Vec<_>>().contains(&"Metadata-Flavor: Google".to_owned()));
                match answer(&first) {
                    Some(text) => stream.write_all(text.as_bytes()).unwrap(),
                    None => kept.push(stream),
                }
            }
        })
        .unwrap();
    address
}

fn good(body: &str) -> String {
    let len = body.len();
    format!("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: e{len}\r\nContent-Length: {len}\r\n\r\n{body}")
}

#[test]
fn address_is_numeric_or_none() {
    let cases = [
        ("127.0.0.1", Some("127.0.0.1:80")),
        ("127.0.0.1:8080", Some("127.0.0.1:8080")),
        ("[::1]:81", Some("[::1]:81")),
        ("::1", Some("[::1]:80")),
        ("metadata.google.internal", None),
        ("localhost:80", None),
        ("", None),
    ];
    for (text, expected) in cases {
        assert_eq!(parse_address(text), expected.map(|at| at.parse().unwrap()), "{text}");
    }
}

#[test]
fn attributes_are_read_as_far_as_the_server_has_them() {
    let server = serve(|line| match line {
        line if line.contains("agent-worker-number") => Some(good("1")),
        line if line.contains("tpu-env") => {
            Some("HTTP/1.1 404 Not Found\r\nMetadata-Flavor: Google\r\nContent-Length: 2\r\n\r\nno".into())
        }
        _ => Some(good("text")),
    });
    let texts = read_attributes(server, &Attribute::ALL);
    assert_eq!(texts.get(&Attribute::AgentWorkerNumber).map(String::as_str), Some("1"));
    assert_eq!((texts.len(), texts.get(&Attribute::TpuEnv)), (4, None));
}

#[test]
fn silent_server_costs_a_second_and_no_more() {
    let server = serve(|_| None);
    let start = Instant::now();
    assert!(read_attributes(server, &Attribute::ALL).is_empty());
    assert!((1..5).contains(&start.elapsed().as_secs()), "{:?}", start.elapsed());
}

#[test]
fn preemption_is_reported_once_a_long_poll_returns_it() {
    let server = serve(|line| match line {
        line if line.contains("preempted?wait_for_change=true&last_etag=e5") => Some(good("TRUE")),
        line if line.contains("preempted ") => Some(good("FALSE")),
        // The other keys hold their requests.
        _ => None,
    });
    let runtime = tokio::runtime::Builder::new_current_thread().enable_io().enable_time().build().unwrap();
    runtime.block_on(async {
        let (sender, mut reports) = tokio::sync::mpsc::channel(4);
        let first = tokio::select! {
            () = watching::watch_host(server, sender) => None,
            report = reports.recv() => report,
            () = tokio::time::sleep(Duration::from_secs(30)) => None,
        };
        assert_eq!(first, Some(Report::Warning(WarningSource::Preempted)));
    });
}
