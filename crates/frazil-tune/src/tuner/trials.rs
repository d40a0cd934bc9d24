//! The trials so far, and the rules by which a search ends.

use std::collections::HashMap;
use std::ops::ControlFlow;
use std::time::{Duration, Instant};

use super::goal::{best, cost};
use super::subject::{Extent, Measured, Subject};
use super::{Event, Outcome, Progress, Settings, Stop, Trial, Verdict, finite};
use crate::choice::Configuration;
use crate::config::Strategy;
use crate::error::{Error, Result};
use crate::history::History;
use crate::space::Space;

/// Why a strategy cannot go on: strategies hand it up with `?`.
#[derive(Debug)]
pub(crate) enum Halt {
    /// A rule.
    Stop(Stop),
    /// An error.
    Failed(Error),
}

impl From<Error> for Halt {
    fn from(error: Error) -> Self {
        Self::Failed(error)
    }
}

/// What a strategy works with.
pub(crate) struct Trials<'a> {
    subject: &'a mut dyn Subject,
    pub(crate) space: &'a Space,
    pub(crate) settings: &'a Settings,
    history: &'a mut History,
    progress: &'a mut Progress<'a>,
    baseline: Option<Measured>,
    trials: Vec<Trial>,
    places: HashMap<String, usize>,
    damage: Vec<(String, f64)>,
    full_evaluations: usize,
    started: Instant,
    /// What trials of the history took.
    replayed: Duration,
}

impl<'a> Trials<'a> {
    pub(super) fn new<'b: 'a>(
        subject: &'a mut dyn Subject,
        space: &'a Space,
        settings: &'a Settings,
        history: &'a mut History,
        progress: &'a mut Progress<'b>,
    ) -> Self {
        Self {
            subject,
            space,
            settings,
            history,
            progress,
            baseline: None,
            trials: Vec::new(),
            places: HashMap::new(),
            damage: Vec::new(),
            full_evaluations: 0,
            started: Instant::now(),
            replayed: Duration::ZERO,
        }
    }

    fn tell(&mut self, event: &Event<'_>) -> Result<(), Halt> {
        match (self.progress)(event) {
            ControlFlow::Continue(()) => Ok(()),
            ControlFlow::Break(()) => Err(Halt::Stop(Stop::Interrupted)),
        }
    }

    /// Measures the f32 model.
    pub(super) fn baseline(&mut self) -> Result<(), Halt> {
        let measured = match self.history.baseline() {
            Some((measured, seconds)) => {
                self.replayed += duration(seconds);
                self.subject.remember_baseline(&measured);
                measured
            }
            None => {
                let begun = Instant::now();
                let measured = self.subject.baseline()?;
                finite(&measured, || "the baseline".into())?;
                self.history.add_baseline(measured, begun.elapsed().as_secs_f64())?;
                measured
            }
        };
        self.baseline = Some(measured);
        self.tell(&Event::Baseline(&measured))
    }

    fn base(&self) -> f64 {
        self.baseline.as_ref().expect("a search begins with the baseline").accuracy
    }

    /// A quick guess.
    pub(crate) fn subset(&mut self, configuration: &Configuration) -> Result<Measured, Halt> {
        self.measure(configuration, Extent::Subset)
    }

    /// The truth.
    pub(crate) fn full(&mut self, configuration: &Configuration) -> Result<Measured, Halt> {
        self.measure(configuration, Extent::Full)
    }

    fn measure(&mut self, configuration: &Configuration, extent: Extent) -> Result<Measured, Halt> {
        let key = configuration.key();
        let place = self.places.get(&key).copied();
        if let Some(place) = place {
            let known = &self.trials[place];
            if known.measured.full || extent == Extent::Subset {
                return Ok(known.measured);
            }
        } else {
            self.may_go_on()?;
        }
        let number = place.unwrap_or(self.trials.len()) + 1;
        let (measured, seconds, cached) = match self.history.measured(&key, configuration, extent) {
            Some((measured, seconds)) => (measured, seconds, true),
            None => {
                self.tell(&Event::Started { number, configuration, extent })?;
                let begun = Instant::now();
                let measured = self.subject.measure(configuration, extent)?;
                finite(&measured, || format!("trial {number}"))?;
                let seconds = begun.elapsed().as_secs_f64();
                self.history.add_trial(&key, configuration, extent, measured, seconds)?;
                (measured, seconds, false)
            }
        };
        if cached {
            self.replayed += duration(seconds);
        }
        self.full_evaluations += usize::from(measured.full);
        let met = measured.full && self.met(&measured);
        let earlier = place.map_or(0.0, |place| self.trials[place].seconds);
        let trial = Trial {
            number,
            configuration: configuration.clone(),
            key: key.clone(),
            measured,
            met,
            seconds: earlier + seconds,
            cached,
        };
        match place {
            Some(place) => self.trials[place] = trial.clone(),
            None => {
                self.places.insert(key, self.trials.len());
                self.trials.push(trial.clone());
            }
        }
        let is_best = self.best() == Some(number - 1);
        self.tell(&Event::Finished { trial: &trial, extent, best: is_best })?;
        let ends_itself = self.settings.strategy == Strategy::Sensitivity;
        if met && !ends_itself && self.settings.timeout.is_zero() {
            return Err(Halt::Stop(Stop::GoalMet));
        }
        Ok(measured)
    }

    /// Is a new trial allowed?
    fn may_go_on(&self) -> Result<(), Halt> {
        if self.trials.len() >= self.settings.max_trials.max(1) {
            return Err(Halt::Stop(Stop::MaxTrials));
        }
        let spent = self.started.elapsed() + self.replayed;
        // There is always something to return.
        if !self.settings.timeout.is_zero()
            && spent >= self.settings.timeout
            && self.trials.iter().any(|trial| trial.measured.full)
        {
            return Err(Halt::Stop(Stop::Timeout));
        }
        Ok(())
    }

    /// What each operation alone does.
    pub(crate) fn damage(
        &mut self,
        configuration: &Configuration,
    ) -> Result<Vec<(String, f64)>, Halt> {
        let key = configuration.key();
        let damage = match self.history.damage(&key, configuration) {
            Some((damage, seconds)) => {
                self.replayed += duration(seconds);
                damage
            }
            None => {
                self.tell(&Event::MeasuringDamage(configuration))?;
                let begun = Instant::now();
                let damage = self.subject.damage(configuration)?;
                for (name, value) in &damage {
                    if !value.is_finite() {
                        let (of, found) = (format!("`{name}`"), *value);
                        return Err(Error::Measurement { what: "effect", of, found }.into());
                    }
                }
                let missing = configuration.ops.iter().find(|(name, choice)| {
                    choice.is_int8() && !damage.iter().any(|(known, _)| known == *name)
                });
                if let Some((name, _)) = missing {
                    return Err(Error::NoDamage(name.clone()).into());
                }
                let seconds = begun.elapsed().as_secs_f64();
                self.history.add_damage(&key, configuration, &damage, seconds)?;
                damage
            }
        };
        self.damage = damage.clone();
        self.tell(&Event::Damage(&damage))?;
        Ok(damage)
    }

    /// Is the goal met, if this is the truth?
    pub(crate) fn met(&self, measured: &Measured) -> bool {
        self.settings.goal.met(self.base(), measured.accuracy)
    }

    /// Does even a guess say that the goal is missed?
    pub(crate) fn surely_missed(&self, measured: &Measured) -> bool {
        match measured.full {
            true => !self.met(measured),
            false => self.settings.goal.surely_missed(self.base(), measured),
        }
    }

    /// Points of the metric that are lost.
    pub(crate) fn loss(&self, measured: &Measured) -> f64 {
        self.settings.goal.loss(self.base(), measured.accuracy)
    }

    /// Points of the metric that may be lost.
    pub(crate) fn allowance(&self) -> f64 {
        self.settings.goal.allowance(self.base())
    }

    /// What is worth more: cheap, and dearly paid for what is missing to the goal. One percent of
    /// accuracy that is missing weighs as much as a tenth of the time.
    pub(crate) fn utility(&self, measured: &Measured) -> f64 {
        let baseline = self.baseline.as_ref().expect("a search begins with the baseline");
        let missing = (self.loss(measured) - self.allowance()).max(0.0);
        let share = missing / baseline.accuracy.abs().max(f64::MIN_POSITIVE);
        let gain = 1.0
            - cost(self.settings.objective, measured)
                / cost(self.settings.objective, baseline).max(f64::MIN_POSITIVE);
        self.settings.latency_weight * gain - self.settings.accuracy_weight * share.min(1e6) * 10.0
    }

    /// Was it tried already?
    pub(crate) fn knows(&self, configuration: &Configuration) -> bool {
        self.places.contains_key(&configuration.key())
    }

    pub(crate) fn full_evaluations(&self) -> usize {
        self.full_evaluations
    }

    fn best(&self) -> Option<usize> {
        best(&self.trials, &self.settings.goal, self.settings.objective, self.base())
    }

    pub(super) fn outcome(self, stop: Stop) -> Result<Outcome> {
        let baseline = self.baseline.expect("a search that ends without an error has a baseline");
        let best = self.best();
        let met = best.is_some_and(|best| self.trials[best].met);
        let verdict = match (self.settings.performance_only, met) {
            (true, _) => Verdict::NotAsked,
            (false, true) => Verdict::Met,
            (false, false) => Verdict::Missed,
        };
        Ok(Outcome {
            baseline,
            trials: self.trials,
            best,
            verdict,
            stop,
            damage: self.damage,
            full_evaluations: self.full_evaluations,
        })
    }
}

fn duration(seconds: f64) -> Duration {
    Duration::try_from_secs_f64(seconds).unwrap_or_default()
}
