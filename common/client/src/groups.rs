//! A worker of a group in Rust: a controller in Python calls it as it calls a worker in Python.
//!
//! Values are JSON: the controller's group has `serializer="json"`.

use crate::calls::record::Record;
use crate::calls::{Calls, Event, Head, Sent};
use crate::{BoxError, Error, Store, World};
use rlaunch_protocol::wire::frozen::calls::{Description, Kind, Place};
use std::io;

/// The encoding of values, as both ends number it.
const JSON: u8 = 1;
/// The call that makes a worker's object: here there is none.
const MAKE: &[u8] = b"__init__";

/// A call of a method.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Call<'a> {
    /// The name of the method.
    pub method: &'a str,
    /// Its keyword arguments: an object in JSON.
    pub arguments: &'a [u8],
}

/// Serves these methods as a worker of the group in `RLAUNCH_GROUP`, one call after another, until the controller ends it or is gone.
/// The handler returns a value in JSON.
///
/// # Errors
/// This process is in no group, or the store cannot be reached.
pub fn serve(methods: &[&str], handler: impl FnMut(Call<'_>) -> Result<Vec<u8>, BoxError>) -> Result<(), Error> {
    let group = std::env::var("RLAUNCH_GROUP").map_err(|_| Error::NoGroup)?;
    let world = World::from_env()?;
    let number = |name: &str| std::env::var(name).ok().and_then(|text| text.parse().ok());
    let in_world = number("RLAUNCH_WORLD");
    let identity = Record {
        rank: number("RANK").unwrap_or(world.rank),
        size: number("WORLD_SIZE").unwrap_or(world.world_size),
        pid: std::process::id(),
        host: std::env::var("RLAUNCH_HOST").unwrap_or_default(),
        world: in_world.unwrap_or_default(),
        ..Record::default()
    };
    let calls = Calls::new()?;
    // The hosts of a group are not all of the job's: the controller may be on another one.
    calls.serve(&Store::of_job()?, &group, identity, world.hosts > 1 || in_world.is_some())?;
    answer(&calls, methods, handler)
}

fn answer(
    calls: &Calls,
    methods: &[&str],
    mut handler: impl FnMut(Call<'_>) -> Result<Vec<u8>, BoxError>,
) -> Result<(), Error> {
    loop {
        let (peer, frame) = match calls.next(None)? {
            Some(Event::Frame(peer, frame)) => (peer, frame),
            Some(Event::Closed(..)) => return Ok(()),
            Some(Event::Opened(_)) | None => continue,
        };
        let header = frame.header;
        let description = Description::parse(&frame.description, header.body).unwrap_or_default();
        let method = description.texts.first().copied().unwrap_or_default();
        let head = |kind, texts| Head { kind, codec: JSON, count: 0, call: header.call, texts };
        match header.kind {
            Kind::End => return Ok(()),
            // Values in shared memory are pickled: these come through the socket.
            Kind::Arena => calls.send(&[peer], head(Kind::Mapped, &[]), &[])?,
            Kind::Call if method == MAKE => {
                calls.send(&[peer], head(Kind::Return, &[]), &[Sent::Bytes(&listed(methods))])?;
            }
            Kind::Call => match called(methods, method, header.codec, &frame.body, &description, &mut handler) {
                Ok(value) => calls.send(&[peer], head(Kind::Return, &[]), &[Sent::Bytes(&value)])?,
                Err(error) => {
                    let text = error.to_string();
                    calls.send(&[peer], head(Kind::Raise, &[b"Error", text.as_bytes(), b""]), &[])?;
                }
            },
            // A call ends before the next frame is looked at.
            Kind::Cancel | Kind::Credit => {}
            Kind::Return | Kind::Raise | Kind::Item | Kind::Stop | Kind::Free | Kind::Mapped | Kind::Unknown(_) => {
                let text = format!("frames of kind {} are not known here", header.kind.raw());
                calls.send(&[peer], head(Kind::Raise, &[b"Error", text.as_bytes(), b""]), &[])?;
            }
        }
    }
}

fn called(
    methods: &[&str],
    method: &[u8],
    codec: u8,
    body: &[u8],
    description: &Description<'_>,
    handler: &mut impl FnMut(Call<'_>) -> Result<Vec<u8>, BoxError>,
) -> Result<Vec<u8>, BoxError> {
    let refused = |text: String| Err(io::Error::new(io::ErrorKind::InvalidInput, text).into());
    let Some(name) = methods.iter().find(|known| known.as_bytes() == method) else {
        let name = String::from_utf8_lossy(method);
        return refused(format!("there is no method '{name}': there are {}", methods.join(", ")));
    };
    if codec != JSON {
        return refused("this worker takes JSON: make its group with serializer=\"json\"".into());
    }
    let first = description.parts.first().filter(|part| part.place == Place::Body);
    let range = first.and_then(|part| {
        let begin = usize::try_from(part.offset).ok()?;
        Some(begin..begin.checked_add(usize::try_from(part.len).ok()?)?)
    });
    let arguments = range.and_then(|range| body.get(range)).unwrap_or(b"{}");
    handler(Call { method: name, arguments })
}

/// The methods, as the controller wants to know them.
fn listed(methods: &[&str]) -> Vec<u8> {
    let named: Vec<String> = methods.iter().map(|name| format!("{name:?}: \"plain\"")).collect();
    format!("{{{}}}", named.join(", ")).into_bytes()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::own_store;
    use std::time::Duration;

    const SOON: Option<Duration> = Some(Duration::from_secs(20));

    #[test]
    fn worker_in_rust_answers_in_json() {
        let _turn = crate::session::tests::turn();
        let own = own_store::open();
        let store = Store::own(&own);
        let worker = Calls::new().unwrap();
        let identity = Record { size: 1, pid: std::process::id(), ..Record::default() };
        worker.serve(&store, "rust", identity, false).unwrap();
        let handler = |call: Call<'_>| match call.method {
            "echo" => Ok(call.arguments.to_vec()),
            _ => Err("no luck".into()),
        };
        let served = std::thread::Builder::new().spawn(move || answer(&worker, &["echo", "fail"], handler)).unwrap();
        let controller = Calls::new().unwrap();
        let peer = controller.attach(&store, "rust", 0, SOON).unwrap().peer;
        let call = |number, method: &[u8], codec| {
            let head = Head { kind: Kind::Call, codec, count: 0, call: number, texts: &[method] };
            controller.send(&[peer], head, &[Sent::Bytes(b"{\"x\": 1}")]).unwrap();
            let Some(Event::Frame(_, frame)) = controller.next(SOON).unwrap() else { panic!("no answer") };
            let description = Description::parse(&frame.description, frame.header.body).unwrap();
            let texts: Vec<String> =
                description.texts.iter().map(|text| String::from_utf8_lossy(text).into_owned()).collect();
            (frame.header.kind, String::from_utf8_lossy(&frame.body).into_owned(), texts)
        };
        assert_eq!(call(1, b"__init__", JSON).1, "{\"echo\": \"plain\", \"fail\": \"plain\"}");
        assert_eq!(call(2, b"echo", JSON).1, "{\"x\": 1}");
        assert_eq!(call(3, b"fail", JSON).2[1], "no luck");
        assert_eq!(call(4, b"none", JSON).2[1], "there is no method 'none': there are echo, fail");
        assert!(call(5, b"echo", 0).2[1].contains("serializer=\"json\""));
        controller.close(peer);
        served.join().unwrap().unwrap();
    }
}
