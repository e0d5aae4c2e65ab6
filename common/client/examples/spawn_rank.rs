//! A rank that starts another program as a world of its job, for tests.
//!
//! `spawn_rank [group=NAME] [share=NAME] [host=NAME] [n=N] [tolerant] [bound] [end] -- PROGRAM ARGS...`: prints the new world and its hosts,
//! or why there is none. With `end` it waits for the key `ready`, ends the world, and prints how its rank 0 has ended. With `hold` it then
//! waits for the key `go`.

use rlaunch_client::{Program, Request, Store, end_world, spawn};
use std::io::{self, Write as _};
use std::time::Duration;

fn say(text: &str) -> io::Result<()> {
    io::stdout().write_all(format!("{text}\n").as_bytes())
}

fn text(bytes: &[u8]) -> String {
    String::from_utf8_lossy(bytes).into_owned()
}

fn main() -> Result<(), Box<dyn std::error::Error>> {
    let words: Vec<String> = std::env::args().skip(1).collect();
    let at = words.iter().position(|word| word == "--").ok_or("usage: spawn_rank [OPTION...] -- PROGRAM [ARG...]")?;
    let (options, argv) = words.split_at(at);
    let value = |name: &str| options.iter().find_map(|word| word.strip_prefix(name)?.strip_prefix('='));
    let has = |name: &str| options.iter().any(|word| word == name);
    let bytes = |name: &str| value(name).unwrap_or_default().as_bytes().to_vec();
    let program = Program {
        argv: argv.iter().skip(1).map(|word| word.as_bytes().to_vec()).collect(),
        ranks: value("n").map_or(Ok(1), str::parse)?,
        env: vec![(b"GIVEN".to_vec(), b"by the order".to_vec())],
        hosts: value("host").map(|host| host.as_bytes().to_vec()).into_iter().collect(),
        ..Program::default()
    };
    let request = Request {
        programs: vec![program],
        group: bytes("group"),
        share: bytes("share"),
        tied: value("tied").map_or(Ok(0), str::parse)?,
        tolerant: has("tolerant"),
        bound: has("bound"),
    };
    let world = match spawn(&request) {
        Ok(world) => world,
        Err(error) => return Ok(say(&format!("refused: {error}"))?),
    };
    let hosts: Vec<String> = world.hosts.iter().map(|host| text(host)).collect();
    say(&format!("world {} {} on {}", world.number, text(&world.group), hosts.join(" ")))?;
    let store = Store::from_env()?;
    let minute = Some(Duration::from_secs(60));
    if has("end") {
        store.wait(&[b"ready"], minute)?;
        end_world(world.number, Some(Duration::from_millis(200)))?;
        let key = format!("rlaunch/ended/{}/0", text(&world.group));
        store.wait(&[key.as_bytes()], minute)?;
        let ended = store.get(key.as_bytes())?.unwrap_or_default();
        say(&text(&ended).lines().take(5).collect::<Vec<_>>().join(" "))?;
        let again = end_world(world.number, None).err().map(|error| error.to_string());
        say(&again.unwrap_or_default())?;
    }
    if has("hold") {
        store.wait(&[b"go"], minute)?;
    }
    Ok(())
}
