//! Policies that follow each other, and which orders of them make sense.
//!
//! As in NVRx the last one listed runs first: `max=64,shift` numbers the ranks anew, then chooses who works. Others orders give two
//! ranks one number, or leave a lost one in: they are refused before anything starts, with the order that works.

use super::group::Group;
use super::tree::Tree;
use alloc::borrow::Cow;
use alloc::boxed::Box;
use alloc::format;
use alloc::string::{String, ToString};
use alloc::vec::Vec;
use core::fmt;
use core::num::NonZeroU32;
use rlaunch_base::error::Hint;

/// A policy.
#[derive(Clone, PartialEq, Eq, Debug)]
pub enum Stage {
    /// `all`
    ActivateAll,
    /// `max=N`; without a number there is no limit.
    MaxActive(Option<u32>),
    /// `divisible=N`
    Divisible(NonZeroU32),
    /// `shift`
    Shift,
    /// `fill`
    Fill,
    /// `group(KEY)==N`
    Group(Group),
    /// A tree of groups, which is a whole policy by itself.
    Tree(Tree),
}

/// The purpose of a stage: all that its order depends on.
#[derive(Clone, Copy, PartialEq, Eq, Debug)]
enum Part {
    /// Says who works.
    Activates,
    /// Sends ranks home, which another one has to take out.
    Marks,
    /// Takes out who is lost.
    Renumbers,
    /// All of it.
    Whole,
}

impl Stage {
    const fn part(&self) -> Part {
        match self {
            Self::ActivateAll | Self::MaxActive(_) | Self::Divisible(_) => Part::Activates,
            Self::Group(_) => Part::Marks,
            Self::Shift | Self::Fill => Part::Renumbers,
            Self::Tree(_) => Part::Whole,
        }
    }
}

impl fmt::Display for Stage {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::ActivateAll => f.write_str("all"),
            Self::MaxActive(None) => f.write_str("max"),
            Self::MaxActive(Some(n)) => write!(f, "max={n}"),
            Self::Divisible(n) => write!(f, "divisible={n}"),
            Self::Shift => f.write_str("shift"),
            Self::Fill => f.write_str("fill"),
            Self::Group(group) => group.fmt(f),
            Self::Tree(Tree { layers, .. }) if layers.len() == 1 => f.write_str("a tree of 1 layer"),
            Self::Tree(Tree { layers, .. }) => write!(f, "a tree of {} layers", layers.len()),
        }
    }
}

/// A policy that assigns ranks.
#[derive(Clone, PartialEq, Eq, Debug, Default)]
pub struct Policy {
    /// The last one runs first.
    pub stages: Vec<Stage>,
    /// Begin with all healthy ranks in each round, and not with as many as worked in the round before. NVRx never does.
    pub regrow: bool,
}

impl fmt::Display for Policy {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&listed(&self.stages))?;
        if self.regrow { f.write_str(if self.stages.is_empty() { "regrow" } else { ",regrow" }) } else { Ok(()) }
    }
}

fn listed<'a>(stages: impl IntoIterator<Item = &'a Stage>) -> String {
    stages.into_iter().map(ToString::to_string).collect::<Vec<_>>().join(",")
}

/// A policy that cannot work.
#[derive(Clone, PartialEq, Eq, Debug, thiserror::Error)]
pub enum IllFormed {
    /// Nothing at all.
    #[error("a policy has no part")]
    Nothing,
    /// Numbers change after it was decided who works.
    #[error(
        "{first} runs before {second} (the last one runs first), which changes the numbers by which {first} has chosen"
    )]
    ChoosesFirst {
        /// Which chooses.
        first: Box<Stage>,
        /// Which renumbers.
        second: Box<Stage>,
        /// The order that works.
        order: String,
    },
    /// A discarded rank stays in.
    #[error("{group} runs after {mover} (the last one runs first): nothing takes out the ranks that it sends home")]
    MarksLast {
        /// Which sends home.
        group: Box<Stage>,
        /// Which would have taken them out.
        mover: Box<Stage>,
        /// The order that works.
        order: String,
    },
    /// Lost ranks stay in.
    #[error("{last} is there, but neither shift nor fill: nothing takes out ranks that are lost")]
    NoMover {
        /// The policy that runs last.
        last: Box<Stage>,
        /// The chain with one.
        order: String,
    },
    /// `all` and a limit.
    #[error("all has every rank work, and {other} does not: they cannot be combined")]
    AllAndLimit {
        /// The limit.
        other: Box<Stage>,
        /// The chain without `all`.
        order: String,
    },
    /// A tree and another policy.
    #[error("{tree} numbers and chooses ranks by itself, and cannot be combined with {other}")]
    TreeAndOther {
        /// The tree.
        tree: Box<Stage>,
        /// The other stage.
        other: Box<Stage>,
    },
    /// A tree without layers.
    #[error("a tree has no layer")]
    NoLayer,
}

impl Hint for IllFormed {
    fn hint(&self) -> Option<Cow<'static, str>> {
        match self {
            Self::Nothing => Some("all,shift".into()),
            Self::ChoosesFirst { order, .. }
            | Self::MarksLast { order, .. }
            | Self::NoMover { order, .. }
            | Self::AllAndLimit { order, .. } => Some(order.clone().into()),
            Self::TreeAndOther { other, .. } => Some(match other.part() {
                Part::Activates => format!("max_ranks or filter of the tree, instead of {other}").into(),
                Part::Marks => format!("min_ranks of a layer, instead of {other}").into(),
                Part::Renumbers => format!("the tree without {other}").into(),
                Part::Whole => "one tree".into(),
            }),
            Self::NoLayer => Some("[[assign.tree.layer]], the root's first".into()),
        }
    }
}

impl Policy {
    /// A chain, as NVRx's Compose takes it: the last one runs first.
    #[must_use]
    pub const fn chain(stages: Vec<Stage>) -> Self {
        Self { stages, regrow: false }
    }

    /// Whether it numbers and chooses ranks as it says in every round.
    ///
    /// # Errors
    /// It does not, and which order would.
    pub fn check(&self) -> Result<(), IllFormed> {
        let stages = &self.stages;
        let of = |part| stages.iter().position(move |stage| stage.part() == part);
        let last = stages.first().ok_or(IllFormed::Nothing)?;
        if let Some(at) = of(Part::Whole) {
            return check_tree(stages, at);
        }
        if stages.contains(&Stage::ActivateAll)
            && let Some(other) =
                stages.iter().find(|stage| stage.part() == Part::Activates && **stage != Stage::ActivateAll)
        {
            let without = stages.iter().filter(|stage| **stage != Stage::ActivateAll).cloned().collect();
            return Err(IllFormed::AllAndLimit { other: Box::new(other.clone()), order: Self::in_order(without) });
        }
        let order = || Self::in_order(stages.clone());
        let Some(mover) = of(Part::Renumbers).and_then(|at| stages.get(at)) else {
            return Err(IllFormed::NoMover { last: Box::new(last.clone()), order: order() });
        };
        // A stage that is listed after another runs before it.
        let mut seen: Option<&Stage> = None;
        for stage in stages {
            match (stage.part(), seen) {
                (Part::Renumbers, _) => seen = Some(stage),
                (Part::Marks, None) => {
                    return Err(IllFormed::MarksLast {
                        group: Box::new(stage.clone()),
                        mover: Box::new(mover.clone()),
                        order: order(),
                    });
                }
                (Part::Activates, Some(mover)) => {
                    return Err(IllFormed::ChoosesFirst {
                        first: Box::new(stage.clone()),
                        second: Box::new(mover.clone()),
                        order: order(),
                    });
                }
                (Part::Activates, None) | (Part::Marks, Some(_)) | (Part::Whole, _) => {}
            }
        }
        Ok(())
    }

    /// The same policies in an order that works: the stage that chooses runs last, and before it a stage takes out ranks that are gone.
    fn in_order(stages: Vec<Stage>) -> String {
        let (mut order, mut rest): (Vec<_>, Vec<_>) =
            stages.into_iter().partition(|stage| stage.part() == Part::Activates);
        let mover = rest.iter().position(|stage| stage.part() == Part::Renumbers);
        order.push(mover.map_or(Stage::Shift, |at| rest.remove(at)));
        order.extend(rest);
        listed(&order)
    }
}

fn check_tree(stages: &[Stage], at: usize) -> Result<(), IllFormed> {
    let others = || stages.iter().enumerate().filter(|(i, _)| *i != at).map(|(_, stage)| stage);
    match (stages.get(at), others().next()) {
        (Some(tree), Some(other)) => {
            Err(IllFormed::TreeAndOther { tree: Box::new(tree.clone()), other: Box::new(other.clone()) })
        }
        (Some(Stage::Tree(tree)), None) if tree.layers.is_empty() => Err(IllFormed::NoLayer),
        (Some(_) | None, _) => Ok(()),
    }
}
