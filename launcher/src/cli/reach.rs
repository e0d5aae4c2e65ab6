//! Options about other hosts: how they are reached, and how long they live without word from us.

use super::errors::CliError;
use super::scan::Given;
use super::table::{Group, Id, Row, Takes};
use super::values;
use rlaunch_core::os_bytes::OsBytes;
use rlaunch_core::time::Span;

/// How long a host may take to be ready, if nothing else is said.
pub(super) const CONNECT: Span = Span::from_secs(60);
const LEASE: Span = Span::from_secs(30);
/// A shorter one would end jobs for what any network does now and then.
const SHORTEST: Span = Span::from_secs(2);

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
pub(super) enum Opt {
    Lease,
    Connect,
    Prompt,
    Fast,
    AgentPath,
}

pub(super) const GROUP: Group = Group {
    title: "Other hosts",
    rows: &[
        Row {
            id: Id::Reach(Opt::Lease),
            short: None,
            names: &["lease"],
            takes: Takes::One("TIME"),
            brief: "a host unheard of for so long is lost (default: 30s)",
            more: &["It ends its ranks by itself before that. 2s at least."],
        },
        Row {
            id: Id::Reach(Opt::Connect),
            short: None,
            names: &["connect-timeout"],
            takes: Takes::One("T"),
            brief: "how long a host may take to be ready (default: 60s)",
            more: &[],
        },
        Row {
            id: Id::Reach(Opt::Prompt),
            short: None,
            names: &["ssh-prompt"],
            takes: Takes::Nothing,
            brief: "let ssh ask for passwords, one host at a time",
            more: &[],
        },
        Row {
            id: Id::Reach(Opt::Fast),
            short: None,
            names: &["ssh-fast"],
            takes: Takes::Nothing,
            brief: "a cheaper key exchange, where both ends have it",
            more: &["Not safe against recordings that a later quantum", "computer may read."],
        },
        Row {
            id: Id::Reach(Opt::AgentPath),
            short: None,
            names: &["agent-path"],
            takes: Takes::One("PATH"),
            brief: "rlaunch on the hosts, where ours cannot run",
            more: &[],
        },
    ],
};

/// How other hosts are reached.
#[derive(Clone, PartialEq, Eq, Debug)]
pub(crate) struct Reach {
    /// `--ssh-prompt`.
    pub(crate) prompt: bool,
    /// `--ssh-fast`.
    pub(crate) fast: bool,
    /// `--agent-path`.
    pub(crate) agent_path: Option<OsBytes>,
    /// `--connect-timeout`.
    pub(crate) limit: Span,
}

#[derive(Debug)]
pub(super) struct Args {
    lease: Span,
    reach: Reach,
}

impl Default for Args {
    fn default() -> Self {
        Self { lease: LEASE, reach: Reach { prompt: false, fast: false, agent_path: None, limit: CONNECT } }
    }
}

impl Args {
    pub(super) fn take(&mut self, opt: Opt, given: Given) -> Result<(), CliError> {
        let (option, value) = (&given.spelled, &given.value);
        match opt {
            Opt::Lease => self.lease = values::span_from(option, value, SHORTEST)?,
            Opt::Connect => self.reach.limit = values::span_from(option, value, Span::from_secs(1))?,
            Opt::Prompt => self.reach.prompt = true,
            Opt::Fast => self.reach.fast = true,
            Opt::AgentPath => self.reach.agent_path = Some(given.value),
        }
        Ok(())
    }

    pub(super) const fn lease(&self) -> Span {
        self.lease
    }

    pub(super) fn reach(self) -> Reach {
        self.reach
    }
}
