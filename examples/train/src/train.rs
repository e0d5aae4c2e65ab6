//! The training loop. What differs between ranks is only which images of a batch they look at.

use crate::data::{Digit, Digits};
use crate::model::{Descent, Model};
use crate::options::Options;
use crate::ring::Ring;
use crate::rng::Rng;
use crate::shard::shard;
use anyhow::{Context, Result};
use std::io::Write;

/// Trains for all epochs; rank 0 writes one line for each to `out`.
pub(crate) fn train(options: &Options, mut ring: Ring, digits: &Digits, out: &mut impl Write) -> Result<()> {
    let mut model = Model::new(options.hidden, &mut Rng::new(options.seed, 0));
    let mut descent = Descent::new(&model, options.rate);
    let (training, held_out) = (digits.training.len(), digits.held_out.len());
    let title = format!(
        "{}, {training} images to learn, {held_out} held out, batches of {}, {} parameters",
        if ring.size() == 1 { "1 rank".to_owned() } else { format!("{} ranks", ring.size()) },
        options.batch,
        model.len(),
    );
    say(&ring, out, &title)?;

    let mut right = 0.0;
    for epoch in 1..=options.epochs {
        let mut order: Vec<&Digit> = digits.training.iter().collect();
        Rng::new(options.seed, u64::from(epoch)).shuffle(&mut order);
        let mut loss = 0.0;
        for (index, batch) in order.chunks(options.batch).enumerate() {
            loss += learn(&mut model, &mut descent, &mut ring, batch)
                .with_context(|| format!("epoch {epoch}, batch {}", index + 1))?;
        }
        right =
            judge(&model, &mut ring, &digits.held_out).with_context(|| format!("epoch {epoch}, held-out images"))?;
        let (loss, accuracy) = (loss / training as f64, percent(right, held_out));
        say(&ring, out, &format!("epoch {epoch:3}  loss {loss:.4}  held-out accuracy {accuracy:.2} %"))?;
    }
    let accuracy = percent(right, held_out);
    say(&ring, out, &format!("final held-out accuracy {accuracy:.2} % ({right} of {held_out})"))
}

/// Takes one step on a batch, of which this rank looks at its share, and returns the whole batch's loss.
fn learn(model: &mut Model, descent: &mut Descent, ring: &mut Ring, batch: &[&Digit]) -> Result<f64> {
    // The loss travels as one more element behind the gradient. Sums, not means, are added: shares may differ in size.
    let mut sums = vec![0.0; model.len() + 1];
    let (gradient, loss) = sums.split_at_mut(model.len());
    for digit in &batch[shard(batch.len(), ring.rank(), ring.size())] {
        loss[0] += model.add_gradient(digit, gradient);
    }
    ring.sum(&mut sums)?;
    descent.step(model, &sums[..model.len()], batch.len());
    Ok(sums[model.len()])
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

/// Writes a line if this is rank 0, at once: whoever watches the job sees the epoch when it ends.
fn say(ring: &Ring, out: &mut impl Write, line: &str) -> Result<()> {
    if ring.rank() == 0 {
        writeln!(out, "{line}").and_then(|()| out.flush()).context("writing the curve to standard output")?;
    }
    Ok(())
}
