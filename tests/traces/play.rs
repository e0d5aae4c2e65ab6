//! A job of a trace: the machine, and as much of its hosts as a script would otherwise have to repeat in every line.

use crate::words;
use rlaunch_base::capped::Capped;
use rlaunch_base::duration;
use rlaunch_base::id::{NodeId, ProcId, Rank, Round};
use rlaunch_base::machine::Machine;
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, Span};
use rlaunch_plan::rank_assign::parse;
use rlaunch_protocol::rank_fault::Fault;
use rlaunch_protocol::rounds::Limits;
use rlaunch_protocol::wire::round::{Enrolled, RoundDown};
use rlaunch_restart::{Restart, RestartAction, RestartEvent, Setup, Site, terms};
use std::collections::{BTreeMap, BTreeSet};

/// A job.
pub(crate) struct Play {
    machine: Restart,
    now: Mono,
    /// By initial rank.
    node: Vec<NodeId>,
    proc: Vec<u32>,
    /// Whose processes take part, as far as their hosts know.
    live: BTreeSet<u32>,
    /// Calls that are done, as far as hosts know; and before the last round.
    calls: (u32, u32),
    next: u32,
}

fn span(word: &str) -> Result<Span, String> {
    duration::parse(word.as_bytes()).ok_or_else(|| format!("'{word}' is no time"))
}

fn setup(words: &[&str]) -> Result<Setup, String> {
    let pairs = words.iter().map(|word| word.split_once('=').ok_or_else(|| format!("'{word}' is no NAME=value")));
    let pairs: BTreeMap<&str, &str> = pairs.collect::<Result<_, _>>()?;
    let number = |name: &str| pairs.get(name).map(|value| value.parse::<u32>().map_err(|_| format!("{name}={value}")));
    let (hosts, per) = (number("hosts").ok_or("hosts= is missing")??, number("per").ok_or("per= is missing")??);
    let site = |n| Site { name: format!("host{n}"), addr: OsBytes::from(format!("host{n}")) };
    let limits = Limits {
        max_rounds: number("max-rounds").transpose()?,
        min_world: number("min-world").transpose()?,
        min_active: number("min-active").transpose()?,
        max_rank_faults: number("max-rank-faults").transpose()?,
    };
    Ok(Setup {
        ranks: (0..hosts * per).map(|rank| NodeId::new(rank / per)).collect(),
        nodes: (0..hosts).map(|n| (NodeId::new(n), site(n))).collect(),
        rendezvous: (NodeId::new(0), 7000),
        agent_store: !pairs.contains_key("own-store"),
        in_slurm: pairs.contains_key("slurm"),
        namespace: 1,
        policy: pairs.get("policy").map(|text| parse::policy(text).map_err(|error| error.to_string())).transpose()?,
        read_policy: |text| parse::policy(text).map_err(|error| error.to_string()),
        known: Vec::new(),
        limits,
        fault_window: pairs.get("window").map_or(Ok(Span::ZERO), |word| span(word))?,
        yield_within: Span::from_secs(30),
        give_up_after: pairs.get("give-up-after").map_or(Ok(Span::ZERO), |word| span(word))?,
        respawn: pairs.contains_key("respawn"),
        respawn_timeout: Span::from_secs(300),
    })
}

impl Play {
    /// A line of the script, and its output. The first one sets the job up.
    pub(crate) fn step(play: &mut Option<Self>, step: &str) -> Result<Vec<String>, String> {
        let words: Vec<&str> = step.split_whitespace().collect();
        match (words.split_first(), &mut *play) {
            (Some((&"setup", rest)), None) => {
                let setup = setup(rest)?;
                let ranks = u32::try_from(setup.ranks.len()).map_err(|error| error.to_string())?;
                let node = setup.ranks.clone();
                let machine = Restart::new(setup);
                let now = Mono::from_nanos(1_000_000_000);
                let live = (0..ranks).collect();
                *play = Some(Self { machine, now, node, proc: (0..ranks).collect(), live, calls: (0, 0), next: ranks });
                Ok(Vec::new())
            }
            (Some((word, rest)), Some(play)) => {
                play.act(word, rest)?;
                Ok(play.answers())
            }
            (Some(_), None) => Err("the first step is: setup hosts=N per=N".into()),
            (None, _) => Err("a step is empty".into()),
        }
    }

    fn act(&mut self, word: &str, rest: &[&str]) -> Result<(), String> {
        let round = self.round_of(rest)?;
        let rest: Vec<&str> = rest.iter().copied().filter(|word| !word.starts_with("@r")).collect();
        let first = rest.first().copied();
        if let Some(kind) = words::kind(word) {
            let initial = words::rank(first)?;
            let text = OsBytes::from(rest.get(1..).unwrap_or_default().join(" "));
            if kind.is_loss() {
                self.live.remove(&initial.get());
            }
            let fault = Fault { initial, kind, text };
            self.handle(RestartEvent::Fault { round, fault, at: self.now });
            return Ok(());
        }
        let event = match word {
            "wait" => {
                self.now = self.now + span(first.unwrap_or_default())?;
                self.machine.handle_timeout(self.now);
                return Ok(());
            }
            "register" => return self.register(&rest),
            "come" => self.come(&rest)?,
            "starts" => {
                let initial = words::rank(first)?;
                RestartEvent::Started { initial, proc: ProcId::new(self.next) }
            }
            // A process that was to come.
            "dies" => {
                let (initial, proc) = (words::rank(first)?, ProcId::new(self.next));
                self.next += 1;
                let status = words::status(rest.get(1).copied())?;
                RestartEvent::Ended { initial, proc, status, at: self.now }
            }
            "end" => {
                let initial = words::rank(first)?;
                let status = words::status(rest.get(1).copied())?;
                self.live.remove(&initial.get());
                RestartEvent::Ended { initial, proc: self.proc(initial), status, at: self.now }
            }
            "ready" => self.is_ready(&rest, round)?,
            "return" => RestartEvent::Returned { node: words::node(first.unwrap_or_default())?, round },
            // `alone n1 3`: the function has returned on rank 3 of this host, and on all others there.
            "alone" => RestartEvent::Alone {
                node: words::node(first.unwrap_or_default())?,
                round,
                initial: words::rank(rest.get(1).copied())?,
            },
            // We stop hearing of it.
            "miss" => RestartEvent::HostSuspected { node: self.without(first)?, at: self.now },
            "lose" => RestartEvent::HostLost { node: self.without(first)? },
            "warn" => RestartEvent::Warned {
                ranks: rest.iter().map(|word| words::rank(Some(word))).collect::<Result<_, _>>()?,
            },
            // It has ended, and its host has not said so yet.
            "unheard" => {
                self.live.remove(&words::rank(first)?.get());
                return Ok(());
            }
            "off" => RestartEvent::Off,
            word => return Err(format!("there is no step '{word}'")),
        };
        self.handle(event);
        Ok(())
    }

    /// Removes the ranks of a host that sends no messages any more.
    fn without(&mut self, word: Option<&str>) -> Result<NodeId, String> {
        let node = words::node(word.unwrap_or_default())?;
        let crew: Vec<u32> = self.of(node).iter().map(|one| one.initial.get()).collect();
        self.live.retain(|rank| !crew.contains(rank));
        Ok(node)
    }

    /// A word that a message is of another round than the one that runs.
    fn round_of(&self, rest: &[&str]) -> Result<Round, String> {
        match rest.iter().find_map(|word| word.strip_prefix("@r")) {
            Some(number) => Ok(Round::new(number.parse().map_err(|_| format!("'{number}' is no round"))?)),
            None => Ok(self.machine.round().unwrap_or(Round::new(0))),
        }
    }

    fn is_ready(&self, rest: &[&str], round: Round) -> Result<RestartEvent, String> {
        let node = words::node(rest.first().copied().unwrap_or_default())?;
        let port = 7001 + u16::try_from(node.get()).unwrap_or_default() * 100;
        let (ranks, pinged) = (self.of(node), rest.contains(&"ping"));
        Ok(RestartEvent::Ready { node, round, ranks, last: !rest.contains(&"part"), port, pinged })
    }

    fn handle(&mut self, event: RestartEvent) {
        self.machine.handle(self.now, event);
        assert_eq!(self.machine.check(), Ok(()));
        self.machine.handle_timeout(self.now);
    }

    fn proc(&self, initial: Rank) -> ProcId {
        ProcId::new(self.proc.get(initial.index()).copied().unwrap_or(u32::MAX))
    }

    fn of(&self, node: NodeId) -> Vec<Enrolled> {
        let here = |rank: &&u32| self.node.get(**rank as usize) == Some(&node);
        let one = |rank: &u32| self.enrolled(Rank::new(*rank));
        self.live.iter().filter(here).map(one).collect()
    }

    fn enrolled(&self, initial: Rank) -> Enrolled {
        Enrolled { initial, proc: self.proc(initial), keys: Capped::default() }
    }

    /// `register`, or `register n0 soft_timeout=10s`: the ranks of these nodes, of all if none is named.
    fn register(&mut self, rest: &[&str]) -> Result<(), String> {
        let (terms, nodes): (Vec<&str>, Vec<&str>) = rest.iter().partition(|word| word.contains('='));
        let pair = |word: &&str| word.split_once('=').map(|(name, value)| (OsBytes::from(name), OsBytes::from(value)));
        let pairs: Vec<_> = terms.iter().filter_map(pair).collect();
        let mut nodes = nodes.into_iter().map(words::node).collect::<Result<Vec<_>, _>>()?;
        if nodes.is_empty() {
            nodes = self.node.iter().copied().collect::<BTreeSet<_>>().into_iter().collect();
        }
        for node in nodes {
            let ranks = self.of(node);
            self.handle(RestartEvent::Joined { call: self.calls.0, node, ranks, terms: terms::lines(&pairs) });
        }
        Ok(())
    }

    /// `come 3`, or `come 3 n2`: another process of a rank.
    fn come(&mut self, rest: &[&str]) -> Result<RestartEvent, String> {
        let initial = words::rank(rest.first().copied())?;
        let index = initial.index();
        if let Some(word) = rest.get(1) {
            *self.node.get_mut(index).ok_or("no such rank")? = words::node(word)?;
        }
        *self.proc.get_mut(index).ok_or("no such rank")? = self.next;
        self.next += 1;
        self.live.insert(initial.get());
        let node = *self.node.get(index).ok_or("no such rank")?;
        Ok(RestartEvent::Joined {
            call: self.calls.1,
            node,
            ranks: vec![self.enrolled(initial)],
            terms: OsBytes::default(),
        })
    }

    /// The actions of the machine: a line each, equal messages to several nodes in one.
    fn answers(&mut self) -> Vec<String> {
        let mut lines: Vec<String> = Vec::new();
        while let Some(action) = self.machine.poll_action() {
            self.note_sent(&action);
            let line = words::action(&action);
            let (to, what) = line.split_once(" < ").unwrap_or(("", &line));
            match lines.last_mut() {
                Some(last) if !to.is_empty() && last.split_once(" < ").is_some_and(|(_, before)| before == what) => {
                    let all = last.split_once(" < ").map_or("", |(nodes, _)| nodes);
                    *last = format!("{all} {to} < {what}");
                }
                Some(_) | None => lines.push(line),
            }
        }
        if let Some(at) = self.machine.poll_timeout() {
            lines.push(format!("timer in {}", at.since(self.now)));
        }
        lines
    }

    /// Notes the ranks that a sent message removes from the round.
    fn note_sent(&mut self, action: &RestartAction) {
        if let RestartAction::Send { msg: RoundDown::Finish { call, .. }, .. } = action {
            self.calls.0 = call + 1;
        }
        let RestartAction::Send { msg: RoundDown::Begin { members, .. }, .. } = action else { return };
        self.calls.1 = self.calls.0;
        for member in members.iter().filter(|member| member.rank.is_none()) {
            self.live.remove(&member.initial.get());
        }
    }
}
