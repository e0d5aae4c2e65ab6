//! A network of one hidden layer, written out: 64 pixels, a tanh layer, 10 scores, softmax. Small enough that what is being trained stays plain.
//!
//! Numbers are f64 although f32 would learn as well: a sum depends on the order of its terms, and the ranks change that order. With f64 the difference
//! stays below every printed digit.

use crate::data::{CLASSES, Digit, PIXELS};
use crate::rng::Rng;

/// All parameters in one row (so that one all-reduce serves them all): hidden weights, hidden biases, score weights, score biases.
#[derive(Clone)]
pub(crate) struct Model {
    hidden: usize,
    params: Vec<f64>,
}

/// The parameters, or their gradient, by layer.
struct Layers<T> {
    hidden_weights: T,
    hidden_biases: T,
    score_weights: T,
    score_biases: T,
}

fn layers(row: &[f64], hidden: usize) -> Layers<&[f64]> {
    let (hidden_weights, row) = row.split_at(hidden * PIXELS);
    let (hidden_biases, row) = row.split_at(hidden);
    let (score_weights, score_biases) = row.split_at(CLASSES * hidden);
    Layers { hidden_weights, hidden_biases, score_weights, score_biases }
}

fn layers_mut(row: &mut [f64], hidden: usize) -> Layers<&mut [f64]> {
    let (hidden_weights, row) = row.split_at_mut(hidden * PIXELS);
    let (hidden_biases, row) = row.split_at_mut(hidden);
    let (score_weights, score_biases) = row.split_at_mut(CLASSES * hidden);
    Layers { hidden_weights, hidden_biases, score_weights, score_biases }
}

fn dot(a: &[f64], b: &[f64]) -> f64 {
    a.iter().zip(b).map(|(x, y)| x * y).sum()
}

fn add_scaled(sum: &mut [f64], factor: f64, terms: &[f64]) {
    for (s, t) in sum.iter_mut().zip(terms) {
        *s += factor * t;
    }
}

impl Model {
    /// A network with random weights (uniform, after Glorot and Bengio 2010) and biases of zero.
    pub(crate) fn new(hidden: usize, rng: &mut Rng) -> Self {
        let mut params = vec![0.0; hidden * (PIXELS + 1 + CLASSES) + CLASSES];
        let layers = layers_mut(&mut params, hidden);
        let limit = |ins: usize, outs: usize| (6.0 / (ins + outs) as f64).sqrt();
        layers.hidden_weights.fill_with(|| rng.symmetric(limit(PIXELS, hidden)));
        layers.score_weights.fill_with(|| rng.symmetric(limit(hidden, CLASSES)));
        Self { hidden, params }
    }

    /// All parameters, in one row.
    pub(crate) fn params(&self) -> &[f64] {
        &self.params
    }

    /// The same, to be replaced.
    pub(crate) fn params_mut(&mut self) -> &mut [f64] {
        &mut self.params
    }

    /// The number of parameters.
    pub(crate) fn len(&self) -> usize {
        self.params.len()
    }

    /// The output of the hidden layer and the scores of the ten digits.
    fn forward(&self, digit: &Digit) -> (Vec<f64>, [f64; CLASSES]) {
        let layers = layers(&self.params, self.hidden);
        let answers: Vec<f64> = layers
            .hidden_weights
            .chunks_exact(PIXELS)
            .zip(layers.hidden_biases)
            .map(|(weights, bias)| (dot(weights, &digit.pixels) + bias).tanh())
            .collect();
        let mut scores = [0.0; CLASSES];
        let rows = layers.score_weights.chunks_exact(self.hidden).zip(layers.score_biases);
        for (score, (weights, bias)) in scores.iter_mut().zip(rows) {
            *score = dot(weights, &answers) + bias;
        }
        (answers, scores)
    }

    /// The digit with the highest score.
    pub(crate) fn guess(&self, digit: &Digit) -> usize {
        let (_, scores) = self.forward(digit);
        (1..CLASSES).fold(0, |best, class| if scores[class] > scores[best] { class } else { best })
    }

    /// Adds the gradient of one image's loss (cross-entropy) to `gradient` and returns the loss.
    pub(crate) fn add_gradient(&self, digit: &Digit, gradient: &mut [f64]) -> f64 {
        let (answers, scores) = self.forward(digit);
        // Scores are taken relative to the highest, so that no exponential overflows.
        let highest = scores.iter().copied().fold(f64::NEG_INFINITY, f64::max);
        let log_sum = scores.iter().map(|s| (s - highest).exp()).sum::<f64>().ln() + highest;

        let weights = layers(&self.params, self.hidden).score_weights;
        let slopes = layers_mut(gradient, self.hidden);
        let mut blame = vec![0.0; self.hidden];
        for (class, score) in scores.iter().enumerate() {
            let slope = (score - log_sum).exp() - f64::from(u8::from(class == digit.label));
            let row = class * self.hidden..(class + 1) * self.hidden;
            add_scaled(&mut slopes.score_weights[row.clone()], slope, &answers);
            slopes.score_biases[class] += slope;
            add_scaled(&mut blame, slope, &weights[row]);
        }
        for (unit, (blame, answer)) in blame.iter().zip(&answers).enumerate() {
            let slope = blame * (1.0 - answer * answer);
            add_scaled(&mut slopes.hidden_weights[unit * PIXELS..(unit + 1) * PIXELS], slope, &digit.pixels);
            slopes.hidden_biases[unit] += slope;
        }
        log_sum - scores[digit.label]
    }
}

/// Stochastic gradient descent with momentum. Every rank keeps its own copy: equal gradients keep the copies equal.
#[derive(Clone)]
pub(crate) struct Descent {
    rate: f64,
    velocity: Vec<f64>,
}

impl Descent {
    const MOMENTUM: f64 = 0.9;

    /// The velocity that is kept from the steps before.
    pub(crate) fn velocity(&self) -> &[f64] {
        &self.velocity
    }

    /// The same, to be replaced.
    pub(crate) fn velocity_mut(&mut self) -> &mut [f64] {
        &mut self.velocity
    }

    pub(crate) fn new(model: &Model, rate: f64) -> Self {
        Self { rate, velocity: vec![0.0; model.len()] }
    }

    /// A step against the mean gradient of `count` images, of which `sum` is the sum.
    pub(crate) fn step(&mut self, model: &mut Model, sum: &[f64], count: usize) {
        for ((param, velocity), slope) in model.params.iter_mut().zip(&mut self.velocity).zip(sum) {
            *velocity = Self::MOMENTUM * *velocity + slope / count as f64;
            *param -= self.rate * *velocity;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::{Descent, Model};
    use crate::data;
    use crate::rng::Rng;

    #[test]
    fn the_gradient_agrees_with_finite_differences() {
        let digits = data::load().unwrap().training;
        let mut model = Model::new(5, &mut Rng::new(3, 0));
        for digit in &digits[..3] {
            let mut gradient = vec![0.0; model.len()];
            model.add_gradient(digit, &mut gradient);
            let mut loss_at = |index: usize, shift: f64| {
                let kept = model.params[index];
                model.params[index] = kept + shift;
                let loss = model.add_gradient(digit, &mut vec![0.0; model.len()]);
                model.params[index] = kept;
                loss
            };
            for (index, slope) in gradient.iter().enumerate() {
                let measured = (loss_at(index, 1e-5) - loss_at(index, -1e-5)) / 2e-5;
                assert!((measured - slope).abs() < 1e-7, "parameter {index}: {slope}, measured {measured}");
            }
        }
    }

    #[test]
    fn steps_lower_the_loss_of_their_images() {
        let digit = &data::load().unwrap().training[0];
        let mut model = Model::new(8, &mut Rng::new(3, 0));
        let mut descent = Descent::new(&model, 0.1);
        let mut losses = Vec::new();
        for _ in 0..20 {
            let mut gradient = vec![0.0; model.len()];
            losses.push(model.add_gradient(digit, &mut gradient));
            descent.step(&mut model, &gradient, 1);
        }
        assert!(losses[19] < losses[0] / 10.0, "{losses:?}");
        assert_eq!(model.guess(digit), digit.label);
    }
}
