//! Attributes of this host, read once and before there is a runtime. A launch waits for them for a second at most.

use rlaunch_plan::metadata::{ATTRIBUTE_LIMIT, Answer, AnswerParser, Attribute, read_attribute, request};
use std::collections::BTreeMap;
use std::io::{self, ErrorKind, Read as _, Write as _};
use std::net::{SocketAddr, TcpStream};
use std::time::{Duration, Instant};

/// Bytes that are read at a time.
const PART: usize = 4096;

/// The texts of these attributes, as far as the server has them and answers within a second in all.
#[must_use]
pub fn read_attributes(server: SocketAddr, attributes: &[Attribute]) -> BTreeMap<Attribute, String> {
    let limit = Instant::now() + ATTRIBUTE_LIMIT.duration();
    let mut texts = BTreeMap::new();
    for attribute in attributes {
        match read(server, attribute.path(), limit) {
            Ok(answer) => texts.extend(read_attribute(answer).map(|text| (*attribute, text))),
            Err(error) => {
                // Others would fail as well, and take their time.
                tracing::debug!(%error, "cannot read {} from the metadata server at {server}", attribute.path());
                break;
            }
        }
    }
    texts
}

fn read(server: SocketAddr, path: &str, limit: Instant) -> io::Result<Answer> {
    let mut stream = TcpStream::connect_timeout(&server, left(limit)?)?;
    stream.set_write_timeout(Some(left(limit)?))?;
    stream.write_all(&request(&server.ip().to_string(), path, None))?;
    let (mut parser, mut part) = (AnswerParser::default(), vec![0; PART]);
    loop {
        stream.set_read_timeout(Some(left(limit)?))?;
        let len = stream.read(&mut part)?;
        let added = parser.add(part.get(..len).unwrap_or_default());
        if let Some(answer) = added.map_err(|error| io::Error::new(ErrorKind::InvalidData, error.to_string()))? {
            return Ok(answer);
        }
    }
}

/// The time that is left.
fn left(limit: Instant) -> io::Result<Duration> {
    let left = limit.saturating_duration_since(Instant::now());
    if left.is_zero() { Err(ErrorKind::TimedOut.into()) } else { Ok(left) }
}
