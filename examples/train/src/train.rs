//! The training loop. Ranks differ only in the images of a batch that they look at.

use crate::data::{Digit, Digits};
use crate::keep::{Keep, Progress};
use crate::model::Model;
use crate::options::Options;
use crate::ring::Ring;
use crate::rng::Rng;
use crate::shard::shard;
use anyhow::{Context, Result};
use std::io::Write;

/// Trains for all epochs, from where `keep` is; rank 0 writes one line for each to `out`. Before each step `pause` is asked whether to continue.
pub(crate) fn train(
    options: &Options,
    mut ring: Ring,
    digits: &Digits,
    keep: &mut Keep,
    pause: &mut dyn FnMut() -> Result<()>,
    out: &mut impl Write,
) -> Result<()> {
    let mut now = keep.agree(options, &mut ring).context("agreeing where to go on")?;
    let batches = digits.training.len().div_ceil(options.batch);
    if now.step == 0 {
        say(&ring, out, &title(options, &ring, digits, now.model.len()))?;
    } else {
        let (epoch, batch) = (now.step / batches + 1, now.step % batches + 1);
        let ranks = if ring.size() == 1 { "1 rank goes".to_owned() } else { format!("{} ranks go", ring.size()) };
        say(&ring, out, &format!("{ranks} on with epoch {epoch}, batch {batch}"))?;
    }
    let mut order: (usize, Vec<&Digit>) = (0, Vec::new());
    while now.step < options.epochs as usize * batches {
        pause()?;
        let (epoch, index) = (now.step / batches + 1, now.step % batches);
        if order.0 != epoch {
            order = (epoch, digits.training.iter().collect());
            Rng::new(options.seed, epoch as u64).shuffle(&mut order.1);
        }
        let from = index * options.batch;
        let batch = &order.1[from..order.1.len().min(from + options.batch)];
        let mut next = now.clone();
        learn(&mut next, &mut ring, batch).with_context(|| format!("epoch {epoch}, batch {}", index + 1))?;
        if index + 1 == batches {
            next.right = judge(&next.model, &mut ring, &digits.held_out)
                .with_context(|| format!("epoch {epoch}, held-out images"))?;
            let (loss, accuracy) =
                (next.loss / digits.training.len() as f64, percent(next.right, digits.held_out.len()));
            say(&ring, out, &format!("epoch {epoch:3}  loss {loss:.4}  held-out accuracy {accuracy:.2} %"))?;
            next.loss = 0.0;
        }
        keep.put(&next);
        now = next;
    }
    let (right, held_out) = (now.right, digits.held_out.len());
    say(&ring, out, &format!("final held-out accuracy {:.2} % ({right} of {held_out})", percent(right, held_out)))
}

fn title(options: &Options, ring: &Ring, digits: &Digits, parameters: usize) -> String {
    format!(
        "{}, {} images to learn, {} held out, batches of {}, {parameters} parameters",
        if ring.size() == 1 { "1 rank".to_owned() } else { format!("{} ranks", ring.size()) },
        digits.training.len(),
        digits.held_out.len(),
        options.batch,
    )
}

/// Takes one step on a batch, of which this rank looks at its share.
fn learn(next: &mut Progress, ring: &mut Ring, batch: &[&Digit]) -> Result<()> {
    // The loss travels as one more element after the gradient. Sums, not means, are added: shares may differ in size.
    let len = next.model.len();
    let mut sums = vec![0.0; len + 1];
    let (gradient, loss) = sums.split_at_mut(len);
    for digit in &batch[shard(batch.len(), ring.rank(), ring.size())] {
        loss[0] += next.model.add_gradient(digit, gradient);
    }
    ring.sum(&mut sums)?;
    next.descent.step(&mut next.model, &sums[..len], batch.len());
    next.loss += sums[len];
    next.step += 1;
    Ok(())
}

/// Counts the held-out images that the network gets right; each rank looks at its share of them.
fn judge(model: &Model, ring: &mut Ring, held_out: &[Digit]) -> Result<f64> {
    let share = &held_out[shard(held_out.len(), ring.rank(), ring.size())];
    let mut right = [share.iter().filter(|digit| model.guess(digit) == digit.label).count() as f64];
    ring.sum(&mut right)?;
    Ok(right[0])
}

fn percent(part: f64, whole: usize) -> f64 {
    100.0 * part / whole as f64
}

/// Writes a line if this is rank 0, at once: a user who watches the job sees the epoch when it ends.
fn say(ring: &Ring, out: &mut impl Write, line: &str) -> Result<()> {
    if ring.rank() == 0 {
        writeln!(out, "{line}").and_then(|()| out.flush()).context("writing the curve to standard output")?;
    }
    Ok(())
}
