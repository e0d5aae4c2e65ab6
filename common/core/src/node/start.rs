//! Bring-up: the first message, the sandbox the ranks will stand on, and the programs they run.
//!
//! The launcher sends everything at once and waits for no answer, so ranks arrive before the node is ready for them. Its messages are
//! still checked: a launcher that breaks their order, or sends too much, is refused.

use super::device_steps::DeviceSteps;
use super::gpu_check::Gpus;
use super::probing::Probing;
use super::{Cx, NodeAction, Notice, Sandbox, binding};
use alloc::boxed::Box;
use alloc::collections::{BTreeMap, BTreeSet};
use alloc::sync::Arc;
use alloc::vec::Vec;
use rlaunch_base::id::{AppIndex, NodeId};
use rlaunch_base::os_strings::OsStrings;
use rlaunch_base::time::Mono;
use rlaunch_plan::tpu::{self, SliceError, SliceHost, TpuHost};
use rlaunch_protocol::guard::devices::DeviceStep;
use rlaunch_protocol::spec::AppBase;
use rlaunch_protocol::wire::codec;
use rlaunch_protocol::wire::to_node::{APP_PART, Delta, Rendezvous, Start};
use rlaunch_protocol::wire::to_root::{NodeRefusal, SpawnError, ToRoot};

/// Most bytes of all programs of a job together: far above what a kernel lets a process start with, far below what hurts.
const MAX_APPS: usize = 16 << 20;

#[derive(Default)]
pub(super) struct BringUp {
    step: Step,
    /// How rank 0's host is found.
    pub(super) probing: Probing,
    /// Programs that are not complete; `None`: complete.
    apps: BTreeMap<AppIndex, Option<Vec<u8>>>,
    received: usize,
    refused: bool,
    /// Programs to be checked before the ready message, or before the only host ends holders of devices. `None`: they are not checked.
    check: Option<Check>,
    /// The programs of the only host, which are checked if devices are held there.
    unchecked: Vec<(AppIndex, Arc<AppBase>)>,
    /// The launcher has said, or will not say, where the ranks find each other.
    met: bool,
    /// The environment of the login by which this host was reached, as far as it holds for this host only.
    login: OsStrings,
    gpus: Gpus,
    /// The devices before ranks are started.
    pub(super) devices: DeviceSteps,
    /// The first message.
    start: Option<Arc<Start>>,
}

#[derive(Clone, Copy)]
struct Check {
    /// Programs that were not looked at.
    open: u32,
}

#[derive(Default)]
enum Step {
    /// No message has come.
    #[default]
    Idle,
    /// The sandbox is being set up.
    SettingUp,
    /// The set-up is done, or has failed.
    Ended,
}

impl BringUp {
    pub(super) fn of_login(login: OsStrings) -> Self {
        Self { login, ..Self::default() }
    }

    pub(super) fn on_start(&mut self, cx: &mut Cx<'_>, start: Start) {
        match self.step {
            Step::Idle => {
                let start = Arc::new(start);
                self.gpus.on_start(&start);
                self.met = start.rendezvous.is_some();
                self.probing.on_begun(&start);
                self.check = (!start.sole).then_some(Check { open: start.apps });
                self.step = Step::SettingUp;
                self.devices.begin(cx, &start);
                self.start = Some(Arc::clone(&start));
                cx.notify(Notice::Begun(Arc::clone(&start)));
                cx.act(NodeAction::SetUpSandbox(start));
            }
            Step::SettingUp | Step::Ended => self.refuse(cx, NodeRefusal::Protocol),
        }
    }

    pub(super) fn on_part(&mut self, cx: &mut Cx<'_>, app: AppIndex, last: bool, part: &[u8]) {
        self.received = self.received.saturating_add(part.len());
        let known = self.apps.entry(app).or_insert_with(|| Some(Vec::new()));
        let fits = part.len() <= APP_PART && self.received <= MAX_APPS;
        let Some(bytes) = known.as_mut().filter(|_| fits && !matches!(self.step, Step::Idle)) else {
            return self.refuse(cx, NodeRefusal::Protocol);
        };
        bytes.extend_from_slice(part);
        if last {
            if self.met {
                // Programs that come while ranks run are counted one by one: their number has no limit.
                self.received = self.received.saturating_sub(bytes.len());
            }
            let base = codec::decode::<AppBase>(bytes);
            *known = None;
            match base {
                Ok(base) => {
                    let base = match self.start.as_ref().and_then(|start| start.travel.as_ref()) {
                        Some(travel) => travel.resolve(base, &self.login),
                        None => base,
                    };
                    let base = Arc::new(base);
                    if self.check.is_some() {
                        cx.act(NodeAction::Check { app, base: Arc::clone(&base) });
                    } else if self.devices.is_busy() {
                        self.unchecked.push((app, Arc::clone(&base)));
                    }
                    if let Some(refusal) = self.gpus.on_program(&base) {
                        self.refuse(cx, refusal);
                    }
                    cx.notify(Notice::Program(app, base));
                }
                Err(_) => self.refuse(cx, NodeRefusal::Protocol),
            }
        }
    }

    /// The number of programs that are known.
    #[cfg(test)]
    pub(super) fn known(&self) -> usize {
        self.apps.len()
    }

    /// Programs of a world that has ended are dropped.
    pub(super) fn forget_programs(&mut self, programs: &BTreeSet<AppIndex>) {
        self.apps.retain(|app, _| !programs.contains(app));
    }

    pub(super) fn on_spawn(&mut self, cx: &mut Cx<'_>, procs: Vec<Delta>, last: bool) {
        match self.step {
            Step::Idle => self.refuse(cx, NodeRefusal::Protocol),
            Step::SettingUp | Step::Ended if self.met => cx.notify(Notice::Queue(procs, last)),
            Step::SettingUp | Step::Ended => self.refuse(cx, NodeRefusal::Protocol),
        }
    }

    pub(super) fn on_rendezvous(&mut self, cx: &mut Cx<'_>, rendezvous: Rendezvous) {
        if matches!(self.step, Step::Idle) || core::mem::replace(&mut self.met, true) {
            return self.refuse(cx, NodeRefusal::Protocol);
        }
        // The listener for other agents makes room for the store.
        let by = self.probing.on_met(cx, &rendezvous);
        cx.notify(Notice::Met(rendezvous, by));
    }

    /// The ranks know where they meet: before that there are none.
    pub(super) const fn is_met(&self) -> bool {
        self.met && !matches!(self.step, Step::Idle)
    }

    pub(super) fn on_finish(&mut self, cx: &mut Cx<'_>) {
        match self.step {
            Step::Idle => self.refuse(cx, NodeRefusal::Protocol),
            Step::SettingUp | Step::Ended => cx.notify(Notice::Finish),
        }
    }

    pub(super) fn on_checked(&mut self, cx: &mut Cx<'_>, app: AppIndex, error: Option<SpawnError>) {
        let Some(check) = &mut self.check else { return };
        check.open = check.open.saturating_sub(1);
        match error {
            Some(error) => self.refuse(cx, NodeRefusal::Program { app, error }),
            None => self.report_if_ready(cx),
        }
    }

    /// The launcher orders a step of the preparation of devices.
    pub(super) fn on_device_order(&mut self, cx: &mut Cx<'_>, step: DeviceStep) {
        if !self.devices.on_order(cx, step) {
            self.refuse(cx, NodeRefusal::Protocol);
        }
    }

    /// A step of the preparation of devices has ended. `held`: there are holders that have to be ended.
    pub(super) fn on_devices_done(&mut self, cx: &mut Cx<'_>, held: bool) {
        let is_ordered = self.devices.on_done(cx, held);
        let unchecked = core::mem::take(&mut self.unchecked);
        if let Some(start) = self.alone().filter(|_| held && !is_ordered) {
            // No process is ended for a program that is missing.
            self.check = Some(Check { open: start.apps });
            unchecked.into_iter().for_each(|(app, base)| cx.act(NodeAction::Check { app, base }));
        }
        self.report_if_ready(cx);
    }

    pub(super) fn on_timeout(&mut self, cx: &mut Cx<'_>) {
        if let Some(refusal) = self.devices.on_timeout(cx.now) {
            self.refuse(cx, refusal);
        }
    }

    pub(super) fn deadline(&self) -> Option<Mono> {
        self.devices.deadline().filter(|_| !self.refused)
    }

    /// The host could start its ranks. If it is the only one, holders of its devices are ended now.
    fn report_if_ready(&mut self, cx: &mut Cx<'_>) {
        let is_checked = self.check.is_some_and(|check| check.open == 0);
        if !is_checked || self.devices.is_busy() || self.refused || !matches!(self.step, Step::Ended) {
            return;
        }
        self.check = None;
        if self.alone().is_some() {
            return self.devices.free(cx);
        }
        if self.devices.is_held() {
            cx.act(NodeAction::ToRoot(ToRoot::Devices { held: true }));
        }
        cx.act(NodeAction::ToRoot(ToRoot::Ready));
    }

    pub(super) fn on_sandbox_ready(&mut self, cx: &mut Cx<'_>, mut sandbox: Sandbox) {
        match self.step {
            Step::SettingUp => {
                self.step = Step::Ended;
                cx.act(NodeAction::ToRoot(ToRoot::Hello(sandbox.hello.clone())));
                if let Some(refusal) = self.gpus.on_devices(sandbox.gpus) {
                    self.refuse(cx, refusal);
                }
                match self.slices_alone(&sandbox) {
                    Ok(host) => sandbox.tpu_alone = host,
                    Err(error) => self.refuse(cx, NodeRefusal::Slices(error)),
                }
                let bound = self.start.as_ref().map_or(Ok(()), |start| binding::check(cx, start, &sandbox));
                if let Err(error) = bound {
                    self.refuse(cx, NodeRefusal::Bind(error));
                }
                cx.notify(Notice::Ready(Box::new(sandbox)));
                self.report_if_ready(cx);
            }
            Step::Idle | Step::Ended => {}
        }
    }

    /// The first message, where this is the only host of the job.
    fn alone(&self) -> Option<&Start> {
        self.start.as_deref().filter(|start| start.sole)
    }

    /// The part of the only host of a job in the slices.
    fn slices_alone(&self, sandbox: &Sandbox) -> Result<Option<Box<TpuHost>>, SliceError> {
        let (Some(start), Some(facts)) = (self.alone(), &sandbox.hello.tpu) else { return Ok(None) };
        let host = SliceHost { node: NodeId::new(0), facts, ranks: start.local_size };
        Ok(tpu::plan(&[host], start.settings.devices.allow_partial)?.pop().map(|(_, host)| Box::new(host)))
    }

    pub(super) fn on_refused(&mut self, cx: &mut Cx<'_>, refusal: NodeRefusal) {
        match self.step {
            Step::SettingUp => {
                self.step = Step::Ended;
                cx.notify(Notice::Unready);
                self.refuse(cx, refusal);
            }
            // The end has begun while the sandbox was set up anew for the next generation. It waits for this no longer.
            Step::Ended => cx.notify(Notice::Unready),
            Step::Idle => {}
        }
    }

    /// Says why, once, and takes back what was begun.
    pub(super) fn refuse(&mut self, cx: &mut Cx<'_>, refusal: NodeRefusal) {
        if !self.refused {
            self.refused = true;
            cx.act(NodeAction::ToRoot(ToRoot::Refused(refusal)));
            cx.notify(Notice::Destroy);
        }
    }
}
