//! The event log of a job: stamps records and hands them to the driver. The last one has figures that are folded from the others.

use super::clock::Clock;
use super::{Cx, JobAction, Setting};
use crate::events::{AppLine, Cause, JobStart, Record, What};
use crate::report::Report;
use alloc::boxed::Box;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, NodeId, Round};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_base::time::{Mono, WallNs};
use rlaunch_plan::place::Placement;
use rlaunch_protocol::spec::{AppBase, AppSpec, JobSpec};

/// The log.
#[derive(Debug)]
pub(super) struct Log {
    clock: Clock,
    report: Report,
    /// The round that runs.
    round: Option<Round>,
}

impl Log {
    pub(super) fn new(start: Mono, wall: WallNs) -> Self {
        let clock = Clock { start, wall };
        Self { clock, report: Report::default(), round: None }
    }

    /// Sets the round for the next records.
    pub(super) const fn in_round(&mut self, round: Option<Round>) {
        self.round = round;
    }

    pub(super) const fn clock(&self) -> Clock {
        self.clock
    }

    pub(super) fn start(&mut self, cx: &mut Cx<'_>, spec: &JobSpec, setting: &Setting) {
        let known = spec.placement.nodes.iter().filter(|node| !node.is_unknown());
        let start = JobStart {
            version: setting.version.clone(),
            job: spec.job,
            host: setting.host.clone(),
            world_size: spec.world_size(),
            hosts: known.map(|node| OsBytes::from(alloc::format!("{}", node.host))).collect(),
            apps: spec.apps.iter().map(app_line).collect(),
            contain: spec.settings.ending.contain,
            on_failure: spec.settings.ending.on_failure,
            grace: spec.settings.ending.grace,
            timeout: spec.settings.ending.timeout,
            restarts: spec.settings.restarts,
            min_hosts: spec.min_hosts,
            master_store: spec.settings.store.holder,
        };
        self.write(cx, What::JobStart(Box::new(start)));
    }

    /// The job does without these hosts. `is_known`: they were lost, and that was reported with the restart.
    pub(super) fn left_out(&mut self, cx: &mut Cx<'_>, nodes: Vec<NodeId>, placement: &Placement, is_known: bool) {
        let apps = self.report.start.as_ref().map_or(0, |start| start.apps.len());
        let procs = (0..).map(AppIndex::new).take(apps).map(|app| placement.procs(app)).collect();
        let world_size = u32::try_from(placement.ranks.len()).unwrap_or(u32::MAX);
        self.write(cx, What::LeftOut { nodes, world_size, procs, is_known });
    }

    pub(super) fn write(&mut self, cx: &mut Cx<'_>, what: What) {
        let t = self.clock.since(cx.now);
        let wall = WallNs(self.clock.wall.0.saturating_add(t.nanos()));
        let record = Record { t, wall, generation: cx.facts.generation(), round: self.round, what };
        // Nothing that is computed here needs the last words of ranks.
        if !matches!(record.what, What::RankFacts { .. }) {
            self.report.add(&record);
        }
        cx.act(JobAction::Emit(record));
    }

    /// The last record, and the end of rlaunch. `unwritten`: some output could not be written.
    pub(super) fn close(&mut self, cx: &mut Cx<'_>, cause: Cause, left: Option<u32>, unwritten: bool) {
        let exit = cause.exit(unwritten);
        let launch = self.report.launch();
        let never_started = self.report.never_started(&cause);
        self.write(cx, What::JobEnd { cause, exit, left, launch, never_started });
        cx.act(JobAction::Finish(exit));
    }
}

pub(super) fn app_line(app: &AppSpec) -> AppLine {
    // The kernel counts each string with its NUL.
    let AppBase { argv, env, wdir, role, .. } = &app.base;
    let longest = argv.iter().chain(env).map(|text| text.len() as u64 + 1).max();
    AppLine {
        procs: app.procs,
        group: role.world.group.clone(),
        argv: argv.clone(),
        wdir: wdir.clone(),
        bytes: (argv.as_bytes().len() + env.as_bytes().len()) as u64,
        longest: longest.unwrap_or(0),
    }
}
