//! `--group`, `--share`, `--tied` and `--lead`: programs whose ranks are a world of their own.

use super::errors::CliError;
use super::place::Own as Place;
use super::{Program, Run, Site};
use rlaunch_base::id::{AppIndex, WorldId};
use rlaunch_base::os_bytes::OsBytes;
use rlaunch_plan::place::{Placement, World, Worlds};
use rlaunch_protocol::settings::OnFailure;

/// An option of a program, as it was spelled, with its value.
type Spelled<T> = Option<(OsBytes, T)>;

/// The options of a program.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub(crate) struct Own {
    /// `--group`.
    pub(super) group: Spelled<OsBytes>,
    /// `--share`.
    pub(super) share: Spelled<OsBytes>,
    /// `--tied`.
    pub(super) tied: Spelled<u32>,
    /// `--lead`.
    pub(super) lead: Option<OsBytes>,
}

/// Options of the whole job that no job with groups can have.
pub(super) struct Whole<'a> {
    pub(super) on_failure: OnFailure,
    pub(super) restarts: bool,
    pub(super) min_hosts: bool,
    pub(super) round_option: Option<&'a OsBytes>,
}

impl Own {
    /// The name of the group.
    fn name(&self) -> Option<&OsBytes> {
        self.group.as_ref().map(|(_, name)| name)
    }

    /// The options that need `--group`.
    fn dependent(&self) -> Option<&OsBytes> {
        self.share.as_ref().map(|(option, _)| option).or(self.tied.as_ref().map(|(option, _)| option))
    }
}

/// Checks the options of all programs.
///
/// # Errors
/// They contradict each other, or what is asked for the whole job.
pub(super) fn check(programs: &[Program], whole: &Whole<'_>) -> Result<(), CliError> {
    for (program, at) in programs.iter().zip(0_usize..) {
        check_program(program, programs.get(..at).unwrap_or_default())?;
    }
    let mut leads = programs.iter().filter_map(|program| program.world.lead.as_ref());
    let first = leads.next();
    if let Some(second) = leads.next() {
        return Err(contradiction(second, "one program leads a job, and another has this option too"));
    }
    if let Some(lead) = first.filter(|_| whole.on_failure == OnFailure::Continue) {
        let what = "the job ends with its program, and --on-failure continue does not let it";
        return Err(contradiction(lead, what));
    }
    let group = programs.iter().find_map(|program| program.world.group.as_ref()).map(|(option, _)| option);
    let Some(option) = group.or(first) else { return Ok(()) };
    if whole.restarts {
        return Err(contradiction(option, "such a job is not started again: leave --max-restarts and the like out"));
    }
    if whole.min_hosts {
        return Err(contradiction(option, "such a job needs all its hosts: leave --min-hosts out"));
    }
    match (group, whole.round_option) {
        (Some(group), Some(other)) => {
            let what = format!("a function is not restarted within the processes of such a job: leave {other} out");
            Err(contradiction(group, &what))
        }
        _ => Ok(()),
    }
}

fn check_program(program: &Program, before: &[Program]) -> Result<(), CliError> {
    let Own { group, share, .. } = &program.world;
    let is_named = |name: &OsBytes| before.iter().any(|other| other.world.name() == Some(name));
    if let Some((option, name)) = group.as_ref().filter(|(_, name)| is_named(name)) {
        return Err(CliError::Value {
            option: option.clone(),
            takes: "a name that no other program has".into(),
            got: name.clone(),
            hint: None,
        });
    }
    if let Some((option, name)) = share.as_ref().filter(|(_, name)| !is_named(name)) {
        let known: Vec<String> =
            before.iter().filter_map(|other| Some(format!("{option} {}", other.world.name()?))).collect();
        return Err(CliError::Value {
            option: option.clone(),
            takes: "the name of a group before it".into(),
            got: name.clone(),
            hint: (!known.is_empty()).then(|| known.join(", or ").into()),
        });
    }
    if let Some(option) = program.world.dependent().filter(|_| group.is_none()) {
        return Err(contradiction(option, "the program has no group: --group NAME gives it one"));
    }
    if let Some((option, _)) = share.as_ref().filter(|_| has_place(&program.place)) {
        return Err(contradiction(option, "the group has the hosts of another: leave -H, --hostfile and --ppn out"));
    }
    Ok(())
}

fn has_place(place: &Place) -> bool {
    place.names_hosts() || place.ppn.is_some()
}

fn contradiction(option: &OsBytes, what: &str) -> CliError {
    CliError::Assign { at: option.to_string(), what: what.into(), hint: None }
}

impl Run {
    /// The program on whose slots another runs.
    pub(super) fn shares(&self, program: &Program) -> Option<AppIndex> {
        let (_, name) = program.world.share.as_ref()?;
        let at = self.programs.iter().position(|other| other.world.name() == Some(name))?;
        u32::try_from(at).ok().map(AppIndex::new)
    }

    /// The program with which the job ends.
    pub(super) fn lead(&self) -> Option<AppIndex> {
        let at = self.programs.iter().position(|program| program.world.lead.is_some())?;
        u32::try_from(at).ok().map(AppIndex::new)
    }

    /// The world of each program.
    ///
    /// # Errors
    /// Ranks that are tied do not fill their program.
    pub(super) fn worlds(&self, placement: &Placement) -> Result<Worlds, CliError> {
        let mut worlds = Worlds::default();
        if self.programs.iter().all(|program| program.world.group.is_none()) {
            return Ok(worlds);
        }
        for (program, app) in self.programs.iter().zip((0..).map(AppIndex::new)) {
            let ranks = placement.procs(app);
            if let Some((option, tied)) = program.world.tied.as_ref().filter(|(_, tied)| !ranks.is_multiple_of(*tied)) {
                return Err(CliError::Value {
                    option: option.clone(),
                    takes: format!("a number that divides the {ranks} ranks of its program").into(),
                    got: tied.to_string().into(),
                    hint: None,
                });
            }
            let tied = program.world.tied.as_ref().map_or(0, |(_, tied)| *tied);
            worlds.add_program(World { tied, ..World::named(program.world.name().cloned().unwrap_or_default()) });
        }
        Ok(worlds)
    }

    /// Finds the holder of the store of each world besides the first one.
    ///
    /// # Errors
    /// As for the first one.
    pub(super) fn hold_stores(
        &self,
        placement: &mut Placement,
        caller: &[&[u8]],
        site: &Site<'_>,
    ) -> Result<(), CliError> {
        for (program, app) in self.programs.iter().zip((0..).map(AppIndex::new)) {
            let world = placement.worlds.of_app(app);
            if world > WorldId::new(0) {
                let ranks = placement.only(world).world_size();
                let holder = self.holder_of(program, ranks, placement, caller, site)?;
                placement.worlds.hold_store(world, holder.is_agent());
            }
        }
        Ok(())
    }
}
