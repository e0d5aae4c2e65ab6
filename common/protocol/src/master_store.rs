//! The holder of torch's `TCPStore` at MASTER_PORT: the agent of rank 0's host, or rank 0 itself.
//!
//! torchrun's agent holds it, so that its workers are all clients (`TORCHELASTIC_USE_AGENT_STORE=True`). Under mpirun rank 0 opens it. A
//! program that binds MASTER_PORT itself needs the port free. A script that sets another port of its own would find no server there if
//! all of its ranks believed that an agent holds the store: it would wait for half an hour. So what will happen is read off the program
//! before it is started.

use crate::framework::imports;
use alloc::vec::Vec;
use rlaunch_base::interpreter::{self, Interpreter, Source};
use rlaunch_base::os_strings::OsStrings;
use serde::{Deserialize, Serialize};

/// How much of a script is looked at, in bytes.
pub const MOST: usize = 1 << 20;

/// `--master-store`.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub enum Asked {
    /// The holder that suits the program.
    #[default]
    Auto,
    /// The agent.
    Agent,
    /// Rank 0.
    Rank0,
}

/// `--store-guard`: whom an agent that holds the store serves.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default, Serialize, Deserialize)]
pub enum Guard {
    /// Processes of the job.
    #[default]
    Job,
    /// Every process that connects from an address of a host of the job.
    Hosts,
    /// Everybody.
    Off,
}

/// The `TCPStore` at MASTER_PORT.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub struct StorePlan {
    /// Its holder.
    pub holder: Holder,
    /// Whom an agent that holds it serves (`--store-guard`).
    pub guard: Guard,
}

impl Default for StorePlan {
    fn default() -> Self {
        Self { holder: Holder::Rank0(ForRank0::NotPython), guard: Guard::Job }
    }
}

/// The holder of the store, and the reason.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Holder {
    /// The agent of rank 0's host listens on MASTER_PORT.
    Agent(ForAgent),
    /// No process of ours holds it.
    Rank0(ForRank0),
}

/// Why the agent holds it.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ForAgent {
    /// The user asked for it.
    Asked,
    /// The program of rank 0 is one of Python, and may use torch.
    Python,
    /// The program of rank 0 is one of Python. Its script names nothing that uses torch; what it imports may.
    WithoutTorch,
    /// The user asked for torchrun's behaviour, where the agent holds it.
    Torchrun,
}

/// The reason why rank 0 holds it, if any process does.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum ForRank0 {
    /// The user asked for it.
    Asked,
    /// There is no other rank to talk to.
    Alone,
    /// The user chose MASTER_PORT, and with it the server there.
    Pinned,
    /// The same of MASTER_ADDR.
    Located,
    /// The program of rank 0 is none of Python.
    NotPython,
    /// The script brings a port of its own.
    Script(Sign),
    /// The program uses JAX, which has a service of its own for this.
    Jax,
}

/// Signs in a script that it meets at a port of its own.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Serialize, Deserialize)]
pub enum Sign {
    /// The script assigns MASTER_PORT.
    Assigns,
    /// The script starts processes that meet by themselves: `mp.spawn`.
    Spawns,
    /// The script names an address: `tcp://`.
    Names,
    /// The script opens a store by itself, as master: torch's server would find the port taken.
    Opens,
    /// Its arguments name an address (`--dist-url tcp://host:1`) or a port (`--master_port 1`).
    Argument,
}

impl Holder {
    /// Whether the agent holds it.
    #[must_use]
    pub const fn is_agent(self) -> bool {
        matches!(self, Self::Agent(_))
    }

    /// Whether the agent holds it although the user did not ask for that.
    #[must_use]
    pub const fn is_by_itself(self) -> bool {
        matches!(self, Self::Agent(ForAgent::Python | ForAgent::WithoutTorch | ForAgent::Torchrun))
    }

    /// In a word, as `--master-store` takes it.
    #[must_use]
    pub const fn word(self) -> &'static str {
        match self {
            Self::Agent(_) => "agent",
            Self::Rank0(_) => "rank0",
        }
    }

    /// Why, for programs that read it.
    #[must_use]
    pub const fn code(self) -> &'static str {
        match self {
            Self::Agent(ForAgent::Asked) | Self::Rank0(ForRank0::Asked) => "asked",
            Self::Agent(ForAgent::Python | ForAgent::WithoutTorch) => "python",
            Self::Agent(ForAgent::Torchrun) => "torchrun",
            Self::Rank0(ForRank0::Alone) => "alone",
            Self::Rank0(ForRank0::Pinned) => "port_given",
            Self::Rank0(ForRank0::Located) => "addr_given",
            Self::Rank0(ForRank0::NotPython) => "not_python",
            Self::Rank0(ForRank0::Jax) => "jax",
            Self::Rank0(ForRank0::Script(Sign::Assigns)) => "script_sets_port",
            Self::Rank0(ForRank0::Script(Sign::Spawns)) => "script_spawns",
            Self::Rank0(ForRank0::Script(Sign::Names)) => "script_names_address",
            Self::Rank0(ForRank0::Script(Sign::Opens)) => "script_opens_store",
            Self::Rank0(ForRank0::Script(Sign::Argument)) => "arguments_name_address",
        }
    }

    /// Why, in words.
    #[must_use]
    pub const fn reason(self) -> &'static str {
        match self {
            Self::Agent(ForAgent::Asked) | Self::Rank0(ForRank0::Asked) => "asked for",
            Self::Agent(ForAgent::Python | ForAgent::WithoutTorch) => "rank 0 runs Python",
            Self::Agent(ForAgent::Torchrun) => "torchrun's options are used",
            Self::Rank0(ForRank0::Alone) => "there is one rank",
            Self::Rank0(ForRank0::Pinned) => "MASTER_PORT is yours",
            Self::Rank0(ForRank0::Located) => "MASTER_ADDR is yours",
            Self::Rank0(ForRank0::NotPython) => "it does not run Python",
            Self::Rank0(ForRank0::Jax) => "the script is one of JAX",
            Self::Rank0(ForRank0::Script(Sign::Assigns)) => "the script sets MASTER_PORT",
            Self::Rank0(ForRank0::Script(Sign::Spawns)) => "the script uses mp.spawn",
            Self::Rank0(ForRank0::Script(Sign::Names)) => "the script names a tcp:// address",
            Self::Rank0(ForRank0::Script(Sign::Opens)) => "the script opens a TCPStore",
            Self::Rank0(ForRank0::Script(Sign::Argument)) => "its arguments name an address or a port",
        }
    }
}

/// The program of a command line, as far as it matters here.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub enum Program<'a> {
    /// A file of Python.
    Script(&'a [u8]),
    /// Python on the command line itself: `-c`.
    Code(&'a [u8]),
    /// A module: `-m`. Where its file is only Python knows.
    Module(&'a [u8]),
    /// Something else, or Python that reads its program from stdin.
    Other,
}

/// Finds the program in the words of a command.
#[must_use]
pub fn program(argv: &OsStrings) -> Program<'_> {
    if let Some(script) = argv.iter().next().filter(|first| first.ends_with(b".py")) {
        return Program::Script(script);
    }
    let Some((Interpreter::Python, source)) = interpreter::parse(argv) else { return Program::Other };
    match source {
        Source::Script(path) => Program::Script(path),
        Source::Command(code) => Program::Code(code),
        Source::Module(name) => Program::Module(name),
        Source::StandardInput { .. } => Program::Other,
    }
}

/// Whether a command runs Python.
#[must_use]
pub fn is_python(argv: &OsStrings) -> bool {
    !matches!(program(argv), Program::Other)
}

/// Whether last words of a rank, or its error file, show that it could not connect to torch's store.
#[must_use]
pub fn is_missed(words: &[u8]) -> bool {
    let has = |what: &[u8]| memchr::memmem::find(words, what).is_some();
    let [store, socket] = [&b"TCPStore"[..], b"client socket has"].map(has);
    let late = [&b"timed out"[..], b"Timed out", b"failed to connect", b"Connection refused", b"wait timeout"];
    (store || socket || has(b"DistNetworkError") || has(b"DistStoreError")) && late.iter().any(|what| has(what))
}

/// Whether the arguments of a script name where its ranks meet.
#[must_use]
pub fn sign_of_arguments(argv: &OsStrings) -> Option<Sign> {
    const PORTS: [&[u8]; 4] = [b"master-port", b"main-process-port", b"dist-port", b"init-port"];
    let is_port = |word: &[u8]| {
        let name = word.split(|b| *b == b'=').next().unwrap_or_default();
        let name = name.strip_prefix(b"--").or_else(|| name.strip_prefix(b"-")).unwrap_or_default();
        let same = |own: &&[u8]| {
            own.len() == name.len() && own.iter().zip(name).all(|(a, b)| a == b || (*a == b'-' && *b == b'_'))
        };
        PORTS.iter().any(same)
    };
    let names = |word: &[u8]| memchr::memmem::find(word, b"tcp://").is_some() || is_port(word);
    argv.iter().skip(1).any(names).then_some(Sign::Argument)
}

/// The port in the arguments of a script, by the first of them that names one: `tcp://host:PORT`, or the value of an option like `--port`,
/// `--master-port` and `--dist_port`. `--port` is enough here and not for [`sign_of_arguments`]: this is for a message, and not for a
/// decision.
#[must_use]
pub fn port_of_arguments(argv: &OsStrings) -> Option<u16> {
    const SCHEME: &[u8] = b"tcp://";
    let number = |digits: &[u8]| {
        let end = digits.iter().position(|b| !b.is_ascii_digit()).unwrap_or(digits.len());
        core::str::from_utf8(digits.get(..end)?).ok()?.parse::<u16>().ok().filter(|port| *port > 0)
    };
    let in_url = |word: &[u8]| {
        let at = memchr::memmem::find(word, SCHEME)?;
        let place = word.get(at + SCHEME.len()..)?;
        number(place.get(place.iter().rposition(|b| *b == b':')? + 1..)?)
    };
    let is_port = |name: &[u8]| {
        let Some(start) = name.iter().position(|b| *b != b'-').filter(|start| *start > 0) else { return false };
        let name = name.get(start..).unwrap_or_default().to_ascii_lowercase();
        let of = name.strip_suffix(b"port").map(|of| of.strip_suffix(b"-").or(of.strip_suffix(b"_")).unwrap_or(of));
        of.is_some_and(|of| [&b""[..], b"master", b"main", b"dist", b"rdzv", b"ddp", b"init", b"store"].contains(&of))
    };
    let words = argv.iter().skip(1);
    words.clone().zip(words.skip(1).map(Some).chain([None])).find_map(|(word, next)| {
        let (name, value) = match word.iter().position(|b| *b == b'=') {
            Some(at) => (word.get(..at)?, word.get(at + 1..)),
            None => (word, next),
        };
        in_url(word).or_else(|| value.filter(|_| is_port(name)).and_then(number))
    })
}

/// Whether a script meets at a port of its own, by the first line that shows it.
#[must_use]
pub fn sign(script: &[u8]) -> Option<Sign> {
    script.split(|b| *b == b'\n').find_map(sign_of).or_else(|| opens_store(script).then_some(Sign::Opens))
}

/// Whether a script may open a store at MASTER_PORT as its master: torch 1.13 would find the port taken. A client opens none, and neither
/// does a store at another port.
fn opens_store(script: &[u8]) -> bool {
    const CALL: &[u8] = b"TCPStore(";
    let is_master_at = |at: usize| {
        let line = script.get(..at).unwrap_or_default().rsplit(|b| *b == b'\n').next().unwrap_or_default();
        !line.trim_ascii_start().starts_with(b"#") && is_master(script.get(at + CALL.len()..).unwrap_or_default())
    };
    memchr::memmem::find(script, b"MASTER_PORT").is_some() && memchr::memmem::find_iter(script, CALL).any(is_master_at)
}

/// Whether the arguments of a call make its process the master: the fourth, or `is_master`.
fn is_master(call: &[u8]) -> bool {
    let (mut depth, mut arguments) = (0_u32, Vec::from([Vec::new()]));
    for &b in call.iter().filter(|b| !b.is_ascii_whitespace()) {
        match b {
            b'(' | b'[' | b'{' => depth += 1,
            b')' | b']' | b'}' if depth == 0 => break,
            b')' | b']' | b'}' => depth -= 1,
            b',' if depth == 0 => {
                arguments.push(Vec::new());
                continue;
            }
            _ => {}
        }
        arguments.last_mut().into_iter().for_each(|argument| argument.push(b));
    }
    let named = arguments.iter().find_map(|argument| argument.strip_prefix(b"is_master="));
    let is_keyword = |argument: &[u8]| {
        [&b"timeout="[..], b"wait_", b"multi_", b"use_"].iter().any(|name| argument.starts_with(name))
    };
    let fourth = arguments.get(3).map(Vec::as_slice).filter(|argument| !is_keyword(argument));
    named.or(fourth).is_some_and(|master| !master.is_empty() && master != b"False")
}

fn sign_of(line: &[u8]) -> Option<Sign> {
    let line = line.trim_ascii_start();
    if line.starts_with(b"#") {
        return None;
    }
    let has = |what: &[u8]| memchr::memmem::find(line, what).is_some();
    let imports_spawn = || line.starts_with(b"from torch.multiprocessing import ") && has(b"spawn");
    if has(b"mp.spawn(") || has(b"multiprocessing.spawn(") || imports_spawn() {
        return Some(Sign::Spawns);
    }
    if has(b"tcp://") {
        return Some(Sign::Names);
    }
    assigns(line).then_some(Sign::Assigns)
}

/// `os.environ["MASTER_PORT"] = …`, `MASTER_PORT=…`, `"MASTER_PORT": …`, `setdefault("MASTER_PORT", …)`, `putenv("MASTER_PORT", …)`.
fn assigns(line: &[u8]) -> bool {
    const NAME: &[u8] = b"MASTER_PORT";
    memchr::memmem::find_iter(line, NAME).any(|at| {
        let before = line.get(..at).unwrap_or_default().trim_ascii_end();
        let before =
            before.strip_suffix(b"\"").or_else(|| before.strip_suffix(b"'")).unwrap_or(before).trim_ascii_end();
        let after: Vec<u8> = line
            .get(at + NAME.len()..)
            .unwrap_or_default()
            .iter()
            .copied()
            .filter(|b| !b.is_ascii_whitespace() && !b"\"'".contains(b))
            .take(3)
            .collect();
        let sets = match after.as_slice() {
            [b'=', next, ..] | [b']', b'=', next] => *next != b'=',
            [b':', ..] | [b']', b':', ..] => true,
            _ => false,
        };
        sets || before.ends_with(b"setdefault(") || before.ends_with(b"putenv(")
    })
}

/// Whether a script names torch, a library that brings it, or the variables by which its processes meet.
fn names_torch(script: &[u8]) -> bool {
    let names: [&[u8]; 6] = [b"torch", b"lightning", b"accelerate", b"deepspeed", b"transformers", b"MASTER_"];
    names.iter().any(|name| memchr::memmem::find(script, name).is_some())
}

/// The user's choice of the rendezvous, for the program of rank 0.
#[derive(Clone, Copy, PartialEq, Eq, Debug, Default)]
pub struct Given {
    /// MASTER_PORT.
    pub port: bool,
    /// MASTER_ADDR.
    pub addr: bool,
}

impl Given {
    /// Either of them.
    #[must_use]
    pub const fn any(self) -> bool {
        self.port || self.addr
    }
}

/// The facts about a job before it begins.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub struct Facts<'a> {
    /// All ranks.
    pub world_size: u32,
    /// The user's choice of the rendezvous.
    pub given: Given,
    /// Whether the program uses JAX.
    pub jax: bool,
    /// torchrun's options are used.
    pub torchrun: bool,
    /// The program of rank 0.
    pub program: Program<'a>,
    /// Its text, where it can be read: of a script, its first [`MOST`] bytes.
    pub text: Option<&'a [u8]>,
    /// Sign in its arguments, or in a module beside the script that it imports.
    pub elsewhere: Option<Sign>,
}

/// Chooses the holder of the store.
#[must_use]
pub fn choose(asked: Asked, facts: &Facts<'_>) -> Holder {
    match asked {
        Asked::Agent => Holder::Agent(ForAgent::Asked),
        Asked::Rank0 => Holder::Rank0(ForRank0::Asked),
        Asked::Auto if facts.world_size < 2 && !facts.torchrun => Holder::Rank0(ForRank0::Alone),
        Asked::Auto if facts.given.port => Holder::Rank0(ForRank0::Pinned),
        Asked::Auto if facts.given.addr => Holder::Rank0(ForRank0::Located),
        Asked::Auto => match facts.program {
            Program::Other if !facts.torchrun => Holder::Rank0(ForRank0::NotPython),
            Program::Other | Program::Script(_) | Program::Code(_) | Program::Module(_) => {
                match facts.text.and_then(sign).or(facts.elsewhere) {
                    Some(sign) => Holder::Rank0(ForRank0::Script(sign)),
                    None if facts.torchrun => Holder::Agent(ForAgent::Torchrun),
                    None if facts.jax && !facts.text.is_some_and(|text| imports(text, b"torch")) => {
                        Holder::Rank0(ForRank0::Jax)
                    }
                    None if facts.text.is_some_and(|text| !names_torch(text)) => Holder::Agent(ForAgent::WithoutTorch),
                    None => Holder::Agent(ForAgent::Python),
                }
            }
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use alloc::format;

    fn words(line: &str) -> OsStrings {
        line.split_whitespace().collect()
    }

    #[test]
    fn script_is_found_behind_interpreter_options() {
        for line in [
            "python train.py",
            "/opt/v/bin/python3.12 -u -O train.py x.py",
            "python3 -Wd -X dev train.py --lr 1",
            "pypy3 -bb train.py",
            "pypy3 --jit off train.py",
            "python3.13t -- train.py",
        ] {
            assert_eq!(program(&words(line)), Program::Script(b"train.py"), "{line}");
        }
        assert_eq!(
            program(&words("python -W ignore --check-hash-based-pycs never train.py")),
            Program::Script(b"train.py")
        );
        assert_eq!(program(&words("./train.py -m x")), Program::Script(b"./train.py"));
        assert_eq!(program(&words("python -uc pass x")), Program::Code(b"pass"));
        assert_eq!(program(&words("python -cpass")), Program::Code(b"pass"));
        // The workers of a group have a store at the agent.
        assert!(is_python(&words("python3 -c pass pkg.Gen")) && !is_python(&words("nsys profile python3 -c pass")));
        for (line, name) in [
            ("python -m pkg.train a.py", "pkg.train"),
            ("python -um pkg", "pkg"),
            ("python3 -mpkg", "pkg"),
            ("python -m", ""),
        ] {
            assert_eq!(program(&words(line)), Program::Module(name.as_bytes()), "{line}");
        }
        for line in [
            "./train",
            "python",
            "python -",
            "python -c",
            "python -V train.py",
            "pythonic train.py",
            "python-config x.py",
            "bash train.py",
            "",
        ] {
            assert_eq!(program(&words(line)), Program::Other, "{line}");
        }
    }

    #[test]
    fn a_script_that_meets_at_its_own_port_is_known() {
        for text in [
            "os.environ['MASTER_PORT'] = '29500'",
            "import os\n    os.environ[\"MASTER_PORT\"]=str(p)\n",
            "os.environ.setdefault('MASTER_PORT', '1')",
            "os.putenv(\"MASTER_PORT\", p)",
            "os.environ.update(MASTER_PORT='1')",
            "env = {'MASTER_PORT': '1'}",
            "MASTER_PORT = 29500",
        ] {
            assert_eq!(sign(text.as_bytes()), Some(Sign::Assigns), "{text}");
        }
        assert_eq!(sign(b"  mp.spawn(run, args=(2,), nprocs=2)"), Some(Sign::Spawns));
        assert_eq!(sign(b"torch.multiprocessing.spawn(run)"), Some(Sign::Spawns));
        assert_eq!(sign(b"from torch.multiprocessing import Queue, spawn"), Some(Sign::Spawns));
        assert_eq!(sign(b"os.environ['MASTER_PORT']: str = '1'"), Some(Sign::Assigns));
        assert_eq!(sign(b"dist.init_process_group('gloo', init_method='tcp://localhost:1')"), Some(Sign::Names));
        let read = "port = int(os.environ['MASTER_PORT'])\n";
        for call in [
            "s = dist.TCPStore(host, port, 2, r == 0)",
            "TCPStore(\n  os.environ['MASTER_ADDR'],\n  port,\n  len(hosts), is_master=(r == 0),\n)",
            "TCPStore(h, port, timeout=T(9), is_master=True",
        ] {
            assert_eq!(sign(format!("{read}{call}").as_bytes()), Some(Sign::Opens), "{call}");
            assert_eq!(sign(call.as_bytes()), None, "a store at another port");
        }
        for call in [
            "s = dist.TCPStore(host, port, 2, False, timeout)",
            "s = dist.TCPStore(host, port, timeout=T(9), is_master=False)",
            "TCPStore(h, port, 2, timeout=T(9))",
            "# TCPStore(h, port, 2, True)",
            "class TCPStore(StoreMixin):",
            "TCPStore(",
        ] {
            assert_eq!(sign(format!("{read}{call}").as_bytes()), None, "{call}");
        }
        for text in [
            "port = int(os.environ['MASTER_PORT'])",
            "if os.environ['MASTER_PORT'] == '1': pass",
            "os.environ.get('MASTER_PORT', '29500')",
            "# os.environ['MASTER_PORT'] = '1'",
            "print(f\"{os.environ['MASTER_PORT']}\")",
            "dist.init_process_group('gloo')",
            "",
        ] {
            assert_eq!(sign(text.as_bytes()), None, "{text}");
        }
    }

    #[test]
    fn words_of_a_rank_that_found_no_store_are_known() {
        for words in [
            "torch.distributed.DistNetworkError: The client socket has timed out after 60000ms while trying to connect to (h, 1).",
            "torch.distributed.DistStoreError: Timed out after 61 seconds waiting for clients. 1/2 clients joined.",
            "[c10d] The client socket has failed to connect to [h]:1 (errno: 111 - Connection refused).",
        ] {
            assert!(is_missed(words.as_bytes()), "{words}");
        }
        for words in
            ["TimeoutError: timed out", "ConnectionRefusedError: [Errno 111] Connection refused", "TCPStore(h, 1)", ""]
        {
            assert!(!is_missed(words.as_bytes()), "{words}");
        }
    }

    #[test]
    fn arguments_that_name_a_place_to_meet_are_known() {
        for line in [
            "python3 t.py --dist-url tcp://127.0.0.1:23456",
            "python3 -u t.py --init-method=tcp://h:1",
            "./t.py --master_port 29501",
            "python t.py --main-process-port=1",
        ] {
            assert_eq!(sign_of_arguments(&words(line)), Some(Sign::Argument), "{line}");
        }
        for line in ["python3 t.py --lr 1", "t.py --port 80", "python t.py --init-method env://", "tcp://x"] {
            assert_eq!(sign_of_arguments(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn port_is_found_in_arguments_of_a_script() {
        for line in [
            "python3 t.py --dist-url tcp://127.0.0.1:23456",
            "python3 t.py --init-method=tcp://[::1]:23456/x --port 1",
            "./t.py --lr 1 --master_port 23456",
            "./t.py --report 10 --tensorboard-port 6006 --dist-port 23456",
            "./t.py -v --port=23456",
        ] {
            assert_eq!(port_of_arguments(&words(line)), Some(23456), "{line}");
        }
        for line in ["", "t.py", "t.py --port", "t.py --port x", "t.py --port 99999", "t.py tcp://h", "t.py support 7"]
        {
            assert_eq!(port_of_arguments(&words(line)), None, "{line}");
        }
    }

    #[test]
    fn the_program_decides_where_the_user_does_not() {
        let python = Facts {
            world_size: 2,
            given: Given::default(),
            jax: false,
            torchrun: false,
            program: Program::Script(b"x.py"),
            text: Some(b"import torch"),
            elsewhere: None,
        };
        let chosen = |facts: Facts<'_>| choose(Asked::Auto, &facts);
        assert_eq!(chosen(python), Holder::Agent(ForAgent::Python));
        assert_eq!(chosen(Facts { text: None, ..python }), Holder::Agent(ForAgent::Python));
        for (text, why) in [
            ("import json", ForAgent::WithoutTorch),
            ("import lightning as L", ForAgent::Python),
            ("os.environ['MASTER_PORT']", ForAgent::Python),
        ] {
            assert_eq!(chosen(Facts { text: Some(text.as_bytes()), ..python }), Holder::Agent(why), "{text}");
        }
        let elsewhere = Facts { elsewhere: Some(Sign::Argument), ..python };
        assert_eq!(chosen(elsewhere), Holder::Rank0(ForRank0::Script(Sign::Argument)));
        assert_eq!(chosen(Facts { torchrun: true, ..elsewhere }), Holder::Rank0(ForRank0::Script(Sign::Argument)));
        assert_eq!(chosen(Facts { jax: true, ..python }), Holder::Agent(ForAgent::Python), "it uses both");
        assert_eq!(
            chosen(Facts { text: None, program: Program::Module(b"pkg"), ..python }),
            Holder::Agent(ForAgent::Python)
        );
        let by_rank_0 = [
            (Facts { world_size: 1, ..python }, ForRank0::Alone),
            (Facts { given: Given { port: true, addr: true }, ..python }, ForRank0::Pinned),
            (Facts { given: Given { port: false, addr: true }, ..python }, ForRank0::Located),
            (Facts { program: Program::Other, ..python }, ForRank0::NotPython),
            (Facts { jax: true, text: Some(b"import jax"), ..python }, ForRank0::Jax),
            (Facts { text: Some(b"mp.spawn(f)"), ..python }, ForRank0::Script(Sign::Spawns)),
        ];
        for (facts, why) in by_rank_0 {
            assert_eq!(chosen(facts), Holder::Rank0(why));
            assert_eq!(choose(Asked::Agent, &facts), Holder::Agent(ForAgent::Asked));
        }
        assert_eq!(choose(Asked::Rank0, &python), Holder::Rank0(ForRank0::Asked));
        let torchrun = Facts { torchrun: true, ..python };
        for facts in
            [torchrun, Facts { world_size: 1, ..torchrun }, Facts { program: Program::Other, text: None, ..torchrun }]
        {
            assert_eq!(chosen(facts), Holder::Agent(ForAgent::Torchrun), "{facts:?}");
        }
        assert_eq!(
            chosen(Facts { given: Given { port: true, addr: false }, ..torchrun }),
            Holder::Rank0(ForRank0::Pinned)
        );
        let own = Facts { text: Some(b"mp.spawn(f)"), ..torchrun };
        assert_eq!(chosen(own), Holder::Rank0(ForRank0::Script(Sign::Spawns)), "under torchrun it would wait for ever");
    }
}
