//! The answers of `tests/golden/tpu/metadata.json`, good and bad, and their meaning.

#![allow(clippy::unwrap_used, clippy::panic, reason = "a test stops at what it did not expect")]
#![allow(clippy::disallowed_methods, reason = "reads the file of answers")]

use rlaunch_base::time::{Span, WallNs};
use rlaunch_plan::metadata::*;
use serde_json::Value;

fn table() -> Value {
    let path = std::path::Path::new(env!("CARGO_MANIFEST_DIR")).join("../../tests/golden/tpu/metadata.json");
    serde_json::from_str(&std::fs::read_to_string(path).unwrap()).unwrap()
}

/// A row of the table of answers.
struct Row {
    path: String,
    what: String,
    status: Option<u64>,
    headers: Vec<(String, String)>,
    body: Option<String>,
    means: String,
}

fn rows(kind: &str) -> Vec<Row> {
    let text = |value: &Value| value.as_str().unwrap_or_default().to_owned();
    let row = |row: &Value| Row {
        path: text(&row["path"]),
        what: text(&row["what"]),
        status: row["status"].as_u64(),
        headers: row["headers"].as_object().unwrap().iter().map(|(name, value)| (name.clone(), text(value))).collect(),
        body: row["body"].as_str().map(str::to_owned),
        means: text(&row["means"]),
    };
    table()[kind].as_array().unwrap().iter().map(row).collect()
}

/// The bytes of a row's answer.
fn answer_of(row: &Row) -> Vec<u8> {
    let mut text = format!("HTTP/1.1 {} X\r\nETag: 41e5\r\n", row.status.unwrap());
    for (name, value) in &row.headers {
        text += &format!("{name}: {value}\r\n");
    }
    let body = row.body.as_deref().unwrap_or_default();
    text += &format!("Content-Length: {}\r\n\r\n{body}", body.len());
    text.into_bytes()
}

/// The outcome of an answer that is closed after its last byte.
fn outcome(bytes: &[u8]) -> Outcome {
    let mut parser = AnswerParser::default();
    let added = parser.add(bytes).and_then(|answer| if answer.is_none() { parser.add(b"") } else { Ok(answer) });
    match added {
        Ok(answer) => Outcome::Answered(answer.unwrap(), Span::ZERO),
        Err(error) => Outcome::Unusable(error),
    }
}

fn read(key: Key, bytes: &[u8]) -> (Reading, Next) {
    Watch::new(key).on_outcome(outcome(bytes))
}

const AT_ONCE: Next = Next::Ask(Span::ZERO);
const SOON: Next = Next::Ask(Span::from_millis(500));

#[test]
fn good_answers_have_the_meaning_of_their_value() {
    let asked = String::from_utf8(request("h", "x", None)).unwrap();
    for part in ["prefix", "request_header"] {
        assert!(asked.contains(table()[part].as_str().unwrap()), "{part}");
    }
    let start = WallNs(1_767_326_400_000_000_000);
    let mut seen = 0;
    for row in &rows("good") {
        let body = row.body.as_deref().unwrap();
        if let Some(attribute) = Attribute::ALL.into_iter().find(|attribute| attribute.path() == row.path) {
            let Outcome::Answered(answer, _) = outcome(&answer_of(row)) else { panic!("{}", row.path) };
            let text = (row.status == Some(200)).then(|| body.to_string());
            assert_eq!(read_attribute(answer), text, "{attribute:?}");
            continue;
        }
        let key = Key::ALL.into_iter().find(|key| key.path() == row.path).unwrap();
        let expected = match (row.status, body) {
            (Some(404), _) => (Reading::Well, Next::Ask(Span::from_secs(60))),
            (_, "FALSE" | "NONE" | "MIGRATE_ON_HOST_MAINTENANCE") => (Reading::Well, AT_ONCE),
            (_, "TRUE" | "TERMINATE_ON_HOST_MAINTENANCE") => (Reading::Warning, AT_ONCE),
            (_, json) if json.contains("ONGOING") => (Reading::Warning, AT_ONCE),
            (_, json) if json.contains("PENDING") => (Reading::Planned(start), AT_ONCE),
            (_, other) => panic!("{other}"),
        };
        assert_eq!(read(key, &answer_of(row)), expected, "{body}");
        seen += 1;
    }
    assert_eq!(seen, 8);
}

#[test]
fn bad_answers_are_no_warning_and_are_asked_for_again() {
    let rows = rows("bad");
    for row in &rows {
        let means = row.means.as_str();
        let found = match (means, row.status) {
            (_, None) => Watch::new(Key::Preempted).on_outcome(Outcome::Silent),
            ("closed after 64 KiB", _) => {
                let mut long = AnswerParser::default();
                let text = format!("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: {}\r\n\r\n", 1 << 30);
                assert_eq!(long.add(text.as_bytes()), Err(Unusable::TooLong));
                let mut header = AnswerParser::default();
                let line = vec![b'x'; 1 << 15];
                assert_eq!(header.add(b"HTTP/1.1 200 OK\r\nX: "), Ok(None));
                assert_eq!(header.add(&line), Ok(None));
                assert_eq!(header.add(&line), Err(Unusable::TooLong));
                Watch::new(Key::Preempted).on_outcome(Outcome::Unusable(Unusable::TooLong))
            }
            (_, Some(_)) if row.what.contains("midst") => {
                let text = "HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nContent-Length: 4\r\n\r\nTR";
                assert_eq!(outcome(text.as_bytes()), Outcome::Unusable(Unusable::Truncated));
                read(Key::Preempted, text.as_bytes())
            }
            (_, Some(_)) => read(Key::Preempted, &answer_of(row)),
        };
        let expected = match means {
            "warning" => (Reading::Warning, AT_ONCE),
            "not asked again" => (Reading::None, Next::Stop),
            "no warning" => (Reading::None, AT_ONCE),
            _ if means.starts_with("told as a note") => (Reading::Unknown("SOMETHING_NEW".into()), AT_ONCE),
            // The lasting of the warning is the watcher's part: `host_is_marked_for_good`.
            _ if means.starts_with("the warning stays") => (Reading::Well, AT_ONCE),
            "no warning; not the metadata server"
            | "not followed; no warning"
            | "closed after 64 KiB"
            | "asked again" => (Reading::None, SOON),
            "closed after timeout_sec and 10 s, asked again" | "asked again, after 0.5 s, 1 s, 2 s … 30 s at most" => {
                (Reading::None, SOON)
            }
            other => panic!("{other}"),
        };
        assert_eq!(found, expected, "{}", row.what);
    }
    assert_eq!(rows.len(), 11);
}
