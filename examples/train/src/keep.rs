//! The state of a training that is kept in memory, so that it can continue with other ranks.
//!
//! All ranks do a step together: no rank is more than one step ahead of another, so the last two steps are enough to find one that all
//! have.

use crate::model::{Descent, Model};
use crate::options::Options;
use crate::ring::Ring;
use crate::rng::Rng;
use anyhow::{Context, Result};

/// The state of a training after a number of steps: on each rank the same, to the bit.
#[derive(Clone)]
pub(crate) struct Progress {
    pub(crate) step: usize,
    pub(crate) model: Model,
    pub(crate) descent: Descent,
    /// The loss of the epoch so far.
    pub(crate) loss: f64,
    /// Held-out images that were right after the last epoch.
    pub(crate) right: f64,
}

/// The last two, the last one first.
#[derive(Default)]
pub(crate) struct Keep(Vec<Progress>);

impl Progress {
    fn new(options: &Options) -> Self {
        let model = Model::new(options.hidden, &mut Rng::new(options.seed, 0));
        let descent = Descent::new(&model, options.rate);
        Self { step: 0, model, descent, loss: 0.0, right: 0.0 }
    }

    /// All that a rank needs which has nothing, in one row.
    fn row(&self) -> Vec<f64> {
        [self.model.params(), self.descent.velocity(), &[self.loss, self.right]].concat()
    }

    fn take(&mut self, step: usize, row: &[f64]) {
        let (params, row) = row.split_at(self.model.len());
        let (velocity, row) = row.split_at(params.len());
        self.model.params_mut().copy_from_slice(params);
        self.descent.velocity_mut().copy_from_slice(velocity);
        (self.step, self.loss, self.right) = (step, row[0], row[1]);
    }
}

impl Keep {
    /// A step is done.
    pub(crate) fn put(&mut self, done: &Progress) {
        self.0.truncate(1);
        self.0.insert(0, done.clone());
    }

    /// The last step that all ranks have; who has none is given it.
    pub(crate) fn agree(&mut self, options: &Options, ring: &mut Ring) -> Result<Progress> {
        // At its index each rank writes the number of its steps plus one, so that zero steps differ from no entry.
        let mut all = vec![0.0; ring.size()];
        all[ring.rank()] = self.0.first().map_or(0.0, |last| last.step as f64 + 1.0);
        ring.sum(&mut all)?;
        let mut progress = Progress::new(options);
        if let Some(step) = all.iter().filter(|steps| **steps > 0.0).map(|steps| whole(*steps) - 1).min() {
            if !self.0.is_empty() {
                let kept = self.0.iter().find(|kept| kept.step == step);
                progress = kept
                    .with_context(|| format!("step {step} is not kept here: another rank is too far behind"))?
                    .clone();
            }
            if all.contains(&0.0) {
                // One rank gives what it has, the others add zeros.
                let giver = all.iter().position(|steps| *steps > 0.0);
                let mut row = progress.row();
                if giver != Some(ring.rank()) {
                    row.fill(0.0);
                }
                ring.sum(&mut row)?;
                progress.take(step, &row);
            }
        }
        self.0 = vec![progress.clone()];
        Ok(progress)
    }
}

/// A number of steps, as it travels among other numbers.
#[expect(
    clippy::cast_possible_truncation,
    clippy::cast_sign_loss,
    reason = "no training has more steps than f64 counts exactly"
)]
fn whole(steps: f64) -> usize {
    steps as usize
}
