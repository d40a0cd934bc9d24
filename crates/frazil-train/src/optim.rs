//! Optimizers: what gradients do to weights.
//!
//! [`Optimizer`] keeps what has to be remembered of the gradients (its slots) and takes a step over
//! slices; where weights and gradients live is the caller's business. The arithmetic is in
//! `frazil_kernels::optim`.

use frazil_kernels::Isa;
use frazil_kernels::optim::{
    Moments, Momentum, Norms, adam_f32, lamb_f32, momentum_f32, pieces, square_sum_f32,
};
use frazil_kernels::par::Pool;

use crate::{Error, Result};

/// How weights are changed.
#[derive(Clone, Copy, Debug, PartialEq)]
pub enum Method {
    /// Adam and its kin.
    Adam(Adam),
    /// Adam whose update is scaled to the length of each weight: LAMB.
    Lamb(Lamb),
    /// Gradient descent with momentum.
    Sgd(Sgd),
}

/// Adam; see `frazil_kernels::optim::Adam` for the formula.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Adam {
    /// How much of the mean gradient stays at each step.
    pub beta1: f64,
    /// How much of the mean square stays at each step.
    pub beta2: f64,
    /// Added to the root of the mean square.
    pub epsilon: f64,
    /// Weight decay, decoupled from the gradients, in proportion to the learning rate.
    pub weight_decay: f64,
    /// Whether the means are corrected for having begun at 0.
    pub bias_correction: bool,
}

/// LAMB: Adam, the update of every weight scaled by the ratio of the weight's norm to the update's.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Lamb {
    /// What it is built on.
    pub adam: Adam,
    /// The most that a weight's norm counts for.
    pub max_weight_norm: Option<f64>,
}

/// Gradient descent with momentum.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Sgd {
    /// How much of the way before is gone again; 0 for none.
    pub momentum: f64,
    /// How much of the gradients is left out; 0 for nothing.
    pub dampening: f64,
    /// Added to the gradients.
    pub weight_decay: f64,
}

impl Method {
    /// What it is called.
    pub fn name(&self) -> &'static str {
        match self {
            Self::Adam(Adam { bias_correction: true, .. }) => "Adam",
            Self::Adam(_) => "Adam without bias correction",
            Self::Lamb(Lamb { adam: Adam { bias_correction: true, .. }, .. }) => "LAMB",
            Self::Lamb(_) => "LAMB without bias correction",
            Self::Sgd(_) => "gradient descent with momentum",
        }
    }
}

impl Adam {
    /// `AdamWeightDecayOptimizer` with the constants of google-research/bert: no bias correction.
    pub const BERT: Self = Self {
        beta1: 0.9,
        beta2: 0.999,
        epsilon: 1e-6,
        weight_decay: 0.01,
        bias_correction: false,
    };
    /// Adam as published.
    pub const PLAIN: Self =
        Self { epsilon: 1e-8, weight_decay: 0.0, bias_correction: true, ..Self::BERT };
    /// AdamW as published: decoupled weight decay, bias correction.
    pub const DECOUPLED: Self = Self { epsilon: 1e-8, bias_correction: true, ..Self::BERT };
}

impl Sgd {
    /// The momentum that most use.
    pub const PLAIN: Self = Self { momentum: 0.9, dampening: 0.0, weight_decay: 0.01 };
}

impl Lamb {
    /// As published.
    pub const PLAIN: Self =
        Self { adam: Adam { bias_correction: true, ..Adam::BERT }, max_weight_norm: None };
    /// As MLPerf's BERT has it: no bias correction, epsilon 1e-6.
    pub const MLPERF: Self = Self { adam: Adam::BERT, max_weight_norm: None };
}

/// All that is fixed for a training.
#[derive(Clone, Debug, PartialEq)]
pub struct Options {
    /// How weights are changed.
    pub method: Method,
    /// Weights whose names have one of these in them neither decay nor are scaled by LAMB.
    pub exclude: Vec<String>,
    /// Gradients are scaled down to this norm, of all of them together, if it is larger.
    pub clip_norm: Option<f32>,
}

impl Options {
    /// google-research/bert's `create_optimizer`.
    pub fn bert() -> Self {
        Self::new(Method::Adam(Adam::BERT), Some(1.0))
    }

    /// Refuses numbers that no weight would survive.
    pub fn check(&self) -> Result<()> {
        let adam = |adam: &Adam| {
            vec![
                ("beta1", adam.beta1, "from 0 to less than 1", (0.0..1.0).contains(&adam.beta1)),
                ("beta2", adam.beta2, "from 0 to less than 1", (0.0..1.0).contains(&adam.beta2)),
                ("epsilon", adam.epsilon, "above 0", adam.epsilon > 0.0),
                ("weight_decay", adam.weight_decay, "0 or more", adam.weight_decay >= 0.0),
            ]
        };
        let mut numbers = match &self.method {
            Method::Adam(method) => adam(method),
            Method::Lamb(Lamb { adam: of, max_weight_norm }) => {
                let most =
                    max_weight_norm.map(|most| ("norm of a weight", most, "above 0", most > 0.0));
                adam(of).into_iter().chain(most).collect()
            }
            Method::Sgd(Sgd { momentum, dampening, weight_decay }) => vec![
                ("momentum", *momentum, "from 0 to less than 1", (0.0..1.0).contains(momentum)),
                ("dampening", *dampening, "from 0 to less than 1", (0.0..1.0).contains(dampening)),
                ("weight_decay", *weight_decay, "0 or more", *weight_decay >= 0.0),
            ],
        };
        if let Some(norm) = self.clip_norm {
            numbers.push(("norm to clip to", norm.into(), "above 0", norm > 0.0));
        }
        let wrong = numbers.into_iter().find(|(_, value, _, fits)| !(*fits && value.is_finite()));
        match wrong {
            Some((name, found, expected, _)) => Err(Error::Setting { name, found, expected }),
            None => Ok(()),
        }
    }

    /// With the names that BERT's optimizers leave alone: norms and biases.
    pub fn new(method: Method, clip_norm: Option<f32>) -> Self {
        let exclude = ["LayerNorm", "layer_norm", "bias"].map(str::to_owned).to_vec();
        Self { method, exclude, clip_norm }
    }
}

/// What one step is taken with.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Step {
    /// How many steps were taken before.
    pub number: u64,
    /// And how many by whoever left what is remembered.
    pub before: u64,
    /// The learning rate.
    pub rate: f32,
    /// Another β₁ than the method's.
    pub beta1: Option<f64>,
    /// What gradients are divided by: the factor on the loss, or the number of batches that were
    /// added up.
    pub divisor: f32,
    /// The sum of squares of all gradients as they are, where it is not the plain one: see
    /// [`crate::grad`].
    pub square_sum: Option<f64>,
}

/// What became of a step.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Taken {
    /// The norm of all gradients together, before clipping.
    pub norm: f64,
    /// Whether weights were changed: not if a gradient is no number.
    pub changed: bool,
}

/// What gradients do to the weights of one model.
#[derive(Debug)]
pub struct Optimizer {
    options: Options,
    weights: Vec<Weight>,
    /// Scratch of sums.
    sums: Vec<f64>,
    pairs: Vec<[f64; 2]>,
}

/// One weight.
#[derive(Debug)]
struct Weight {
    name: String,
    /// Whether it decays.
    plain: bool,
    /// What is remembered: as many as [`Method::slots`] names, each as long as the weight.
    slots: Vec<Vec<f32>>,
}

impl Method {
    /// The names of what is remembered of each weight: a checkpoint has `WEIGHT/SLOT`.
    pub fn slots(&self) -> &'static [&'static str] {
        match self {
            Method::Adam(_) | Method::Lamb(_) => &["adam_m", "adam_v"],
            Method::Sgd(_) => &["Momentum"],
        }
    }
}

impl Optimizer {
    /// For weights of these names and lengths; nothing is remembered yet.
    pub fn new<'a>(options: Options, weights: impl IntoIterator<Item = (&'a str, usize)>) -> Self {
        let slots = options.method.slots().len();
        let weight = |(name, len): (&str, usize)| Weight {
            name: name.to_owned(),
            plain: !options.exclude.iter().any(|part| name.contains(part.as_str())),
            // Each by itself: a copy would write to pages that nobody may ever need.
            slots: (0..slots).map(|_| vec![0.0; len]).collect(),
        };
        let weights: Vec<Weight> = weights.into_iter().map(weight).collect();
        let longest = weights.iter().map(|weight| weight.slots[0].len()).max().unwrap_or(0);
        let (sums, pairs) = (vec![0.0; pieces(longest)], vec![[0.0; 2]; pieces(longest)]);
        Self { options, weights, sums, pairs }
    }

    /// What is fixed.
    pub fn options(&self) -> &Options {
        &self.options
    }

    /// Whether a weight decays, and is scaled by LAMB.
    pub fn decays(&self, weight: usize) -> bool {
        self.weights[weight].plain
    }

    /// What is remembered: the weight's name, the slot's, and the numbers.
    pub fn slots(&self) -> impl Iterator<Item = (&str, &'static str, &[f32])> {
        let names = self.options.method.slots();
        self.weights.iter().flat_map(move |weight| {
            let slots = names.iter().zip(&weight.slots);
            slots.map(|(name, slot)| (weight.name.as_str(), *name, slot.as_slice()))
        })
    }

    /// The same, to be filled from a checkpoint.
    pub fn slots_mut(&mut self) -> impl Iterator<Item = (&str, &'static str, &mut [f32])> {
        let names = self.options.method.slots();
        self.weights.iter_mut().flat_map(move |weight| {
            let Weight { name: of, slots, .. } = weight;
            let of = of.as_str();
            names.iter().zip(slots).map(move |(name, slot)| (of, *name, slot.as_mut_slice()))
        })
    }

    /// The sum of squares of all gradients.
    pub fn square_sum<'a>(
        &mut self,
        pool: &Pool,
        isa: Isa,
        grads: impl IntoIterator<Item = &'a [f32]>,
    ) -> f64 {
        grads.into_iter().map(|grad| square_sum_f32(pool, isa, grad, &mut self.sums)).sum()
    }

    /// Takes a step: `pairs` are the weights and their gradients, in the order of [`Optimizer::new`].
    ///
    /// # Panics
    /// If a weight or a gradient is not as long as was said there.
    pub fn step<'a>(
        &mut self,
        pool: &Pool,
        isa: Isa,
        step: &Step,
        pairs: Vec<(&'a mut [f32], &'a [f32])>,
    ) -> Taken {
        self.step_showing(pool, isa, step, pairs, &mut |_| ())
    }

    /// The same, and hands on each weight when it is changed.
    pub fn step_showing<'w, 'g>(
        &mut self,
        pool: &Pool,
        isa: Isa,
        step: &Step,
        pairs: Vec<(&'w mut [f32], &'g [f32])>,
        done: &mut dyn FnMut(&'w mut [f32]),
    ) -> Taken {
        assert_eq!(pairs.len(), self.weights.len(), "a gradient for each weight");
        let squares = match step.square_sum {
            Some(squares) => squares,
            None => self.square_sum(pool, isa, pairs.iter().map(|(_, grad)| *grad)),
        };
        let norm = squares.sqrt() / f64::from(step.divisor);
        if !norm.is_finite() {
            return Taken { norm, changed: false };
        }
        // In f32 and in this order, as `clip_by_global_norm` does it.
        let clip = |most: f32| most * (1.0 / norm as f32).min(1.0 / most);
        let factor = self.options.clip_norm.map_or(1.0, clip) / step.divisor;
        for (at, (weight, grad)) in pairs.into_iter().enumerate() {
            self.weight(pool, isa, step, factor, at, weight, grad);
            done(weight);
        }
        Taken { norm, changed: true }
    }

    #[allow(clippy::too_many_arguments, reason = "the parts of one step")]
    fn weight(
        &mut self,
        pool: &Pool,
        isa: Isa,
        step: &Step,
        factor: f32,
        at: usize,
        p: &mut [f32],
        g: &[f32],
    ) {
        let Weight { plain, slots, .. } = &mut self.weights[at];
        let decay = |rate: f64| if *plain { rate as f32 } else { 0.0 };
        let adam = |adam: &Adam| {
            let beta1 = step.beta1.unwrap_or(adam.beta1);
            let correction = |beta: f64| match adam.bias_correction {
                true => (1.0 / (1.0 - beta.powf((step.before + step.number + 1) as f64))) as f32,
                false => 1.0,
            };
            frazil_kernels::optim::Adam {
                rate: step.rate,
                beta1: beta1 as f32,
                rest1: (1.0 - beta1) as f32,
                beta2: adam.beta2 as f32,
                rest2: (1.0 - adam.beta2) as f32,
                epsilon: adam.epsilon as f32,
                decay: decay(adam.weight_decay),
                corrections: [correction(beta1), correction(adam.beta2)],
                factor,
            }
        };
        match (&self.options.method, slots.as_mut_slice()) {
            (Method::Adam(method), [m, v]) => {
                adam_f32(pool, isa, &adam(method), p, g, Moments { m, v });
            }
            (Method::Lamb(method), [m, v]) => {
                let trust = |norms: Norms| match *plain {
                    true => method.ratio(norms),
                    false => 1.0,
                };
                let moments = Moments { m, v };
                lamb_f32(pool, isa, &adam(&method.adam), p, g, moments, &mut self.pairs, trust);
            }
            (Method::Sgd(method), [v]) => {
                let rest = 1.0 - method.dampening;
                let momentum = Momentum {
                    rate: step.rate,
                    momentum: method.momentum as f32,
                    decay: decay(rest * method.weight_decay),
                    factor: rest as f32 * factor,
                };
                momentum_f32(pool, isa, &momentum, p, g, v);
            }
            _ => unreachable!("a weight has as many slots as its method"),
        }
    }
}

impl Lamb {
    /// What an update is multiplied by: 1 where either has no length.
    fn ratio(&self, norms: Norms) -> f32 {
        let weights = self.max_weight_norm.map_or(norms.weights, |most| norms.weights.min(most));
        match weights > 0.0 && norms.update > 0.0 {
            true => (weights / norms.update) as f32,
            false => 1.0,
        }
    }
}
