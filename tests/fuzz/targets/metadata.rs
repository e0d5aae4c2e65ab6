//! Answers of a metadata server, in parts as they arrive, and the facts of a TPU host in their texts: no answer is longer than the limit,
//! the parts do not matter, and no fact is too long to be sent.
#![no_main]

use libfuzzer_sys::fuzz_target;
use rlaunch_plan::metadata::{Answer, AnswerParser, read_attribute};
use rlaunch_plan::tpu::{Attributes, Bounds, TpuFacts};

/// A name of DNS has fewer bytes.
const LONGEST: usize = 255;

fn parsed(parts: &[&[u8]]) -> Option<Answer> {
    let mut parser = AnswerParser::default();
    for part in parts {
        match parser.add(part) {
            Ok(Some(answer)) => return Some(answer),
            Ok(None) => {}
            Err(error) => {
                assert!(!error.to_string().chars().any(char::is_control));
                return None;
            }
        }
    }
    None
}

fuzz_target!(|data: &[u8]| {
    let Some((at, bytes)) = data.split_first() else { return };
    let whole = parsed(&[bytes]);
    let (first, second) = bytes.split_at(usize::from(*at).min(bytes.len()));
    if let (Some(one), Some(two)) = (&whole, parsed(&[first, second])) {
        assert_eq!((one.status, &one.etag), (two.status, &two.etag), "the parts matter");
    }
    let text = whole.and_then(read_attribute);
    if let Some(bounds) = text.as_deref().and_then(Bounds::parse) {
        assert_eq!(Bounds::parse(&bounds.to_text()), Some(bounds));
    }
    for text in [text, Some(String::from_utf8_lossy(bytes).into_owned())].into_iter().flatten() {
        let attributes = Attributes {
            worker_number: Some(text.chars().take(3).collect()),
            endpoints: Some(text.clone()),
            instance_id: Some(text.clone()),
            accelerator_type: None,
            tpu_env: Some(text),
        };
        let Some(facts) = TpuFacts::of_attributes(&attributes) else { continue };
        assert!(facts.slice.len() <= LONGEST && facts.accelerator_type.len() <= LONGEST);
        assert!(facts.peers.iter().all(|peer| peer.len() <= LONGEST));
    }
});
