//! Questions and answers: pauses, entity tags, and bytes that are cut anywhere.

use super::*;
use alloc::boxed::Box;

/// The outcome of an answer that is closed after its last byte.
fn outcome(bytes: &[u8]) -> Outcome {
    let mut parser = AnswerParser::default();
    let added = parser.add(bytes).and_then(|answer| if answer.is_none() { parser.add(b"") } else { Ok(answer) });
    match added {
        Ok(answer) => Outcome::Answered(answer.unwrap(), Span::ZERO),
        Err(error) => Outcome::Unusable(error),
    }
}

const AT_ONCE: Next = Next::Ask(Span::ZERO);

#[test]
fn first_question_asks_for_the_value_and_the_next_for_its_change() {
    let mut watch = Watch::new(Key::Preempted);
    let asked = watch.ask("169.254.169.254");
    let text = "GET /computeMetadata/v1/instance/preempted HTTP/1.1\r\nHost: 169.254.169.254\r\n\
                Metadata-Flavor: Google\r\nConnection: close\r\n\r\n";
    assert_eq!((core::str::from_utf8(&asked.bytes).unwrap(), asked.limit), (text, PATIENCE));
    let answer = |etag: &str, body: &str| Answer { status: 200, etag: Some(etag.into()), body: body.into() };
    let (_, next) = watch.on_outcome(Outcome::Answered(answer("a1", "FALSE"), Span::ZERO));
    assert_eq!(next, AT_ONCE);
    let asked = watch.ask("h");
    let text = core::str::from_utf8(&asked.bytes).unwrap();
    assert!(text.contains("preempted?wait_for_change=true&last_etag=a1&timeout_sec=300 HTTP/1.1"), "{text}");
    assert_eq!(asked.limit, LONG_POLL + PATIENCE);
    let (_, next) = watch.on_outcome(Outcome::Answered(answer("a1", "FALSE"), LONG_POLL));
    assert_eq!(next, AT_ONCE, "the time of the question has expired");
    let (_, next) = watch.on_outcome(Outcome::Answered(answer("a2", "TRUE"), Span::ZERO));
    assert_eq!(next, AT_ONCE, "the value has changed");
}

#[test]
fn pauses_double_up_to_30_seconds_also_where_a_server_does_not_wait() {
    let pauses = |mut outcome: Box<dyn FnMut() -> Outcome>| {
        let mut watch = Watch::new(Key::MaintenanceEvent);
        let nexts = (0..20).map(|_| match watch.on_outcome(outcome()).1 {
            Next::Ask(pause) => pause.millis(),
            Next::Stop => panic!("not asked again"),
        });
        nexts.filter(|pause| *pause > 0).take(8).collect::<Vec<_>>()
    };
    let doubled = [500, 1000, 2000, 4000, 8000, 16_000, 30_000, 30_000];
    assert_eq!(pauses(Box::new(|| Outcome::Silent)), doubled);
    let at_once = |etag: Option<&'static str>| {
        let answer = Answer { status: 200, etag: etag.map(String::from), body: b"NONE".to_vec() };
        move || Outcome::Answered(answer.clone(), Span::ZERO)
    };
    assert_eq!(pauses(Box::new(at_once(Some("a")))), doubled);
    assert_eq!(pauses(Box::new(at_once(None))), doubled);
    let mut count = 0;
    let new_tag = move || {
        count += 1;
        let etag = Some(alloc::format!("a{count}"));
        Outcome::Answered(Answer { status: 200, etag, body: b"NONE".to_vec() }, Span::ZERO)
    };
    assert_eq!(pauses(Box::new(new_tag)), doubled, "the tag is another one each time, and the value is the same");
}

#[test]
fn answer_is_the_same_however_its_bytes_are_cut() {
    let plain: &[u8] = b"HTTP/1.1 200 OK\r\nmetadata-flavor: google\r\nETag: x-1\r\nContent-Length: 5\r\n\r\nFALSE";
    let chunks: &[u8] =
        b"HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: x-1\r\nTransfer-Encoding: chunked\r\n\r\n2\r\nFA\r\n3\r\nLSE\r\n0\r\n\r\n";
    let closed: &[u8] = b"HTTP/1.0 200 OK\r\nMetadata-Flavor: Google\r\nETag: x-1\r\n\r\nFALSE";
    let expected = Answer { status: 200, etag: Some("x-1".into()), body: b"FALSE".to_vec() };
    for bytes in [plain, chunks, closed] {
        for cut in 1..bytes.len() {
            let mut parser = AnswerParser::default();
            let (first, second) = bytes.split_at(cut);
            let mut answer = parser.add(first).unwrap();
            for part in [second, b""] {
                answer = answer.or_else(|| parser.add(part).unwrap());
            }
            assert_eq!(answer.as_ref(), Some(&expected), "{cut}");
        }
    }
}

#[test]
fn tag_that_could_forge_a_request_is_not_sent_back() {
    let tags = [("a b", false), ("a&b=1", false), ("", false), ("\"quoted\"", false), ("0f-A_.9", true)];
    for (tag, is_used) in tags {
        let text = format!("HTTP/1.1 200 OK\r\nMetadata-Flavor: Google\r\nETag: {tag}\r\nContent-Length: 0\r\n\r\n");
        let Outcome::Answered(answer, _) = outcome(text.as_bytes()) else { panic!("{tag}") };
        assert_eq!(answer.etag.is_some(), is_used, "{tag}");
    }
}

#[test]
fn only_machines_of_google_have_its_product_name() {
    assert!(is_google(b"Google Compute Engine\n") && is_google(b"Google\n"));
    assert!(!is_google(b"KVM\n") && !is_google(b""));
}
