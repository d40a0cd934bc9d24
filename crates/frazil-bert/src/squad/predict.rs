//! Answers from logits: the original's `write_predictions`.
//!
//! Sums, comparisons and their order are the original's, in double precision, so that equal
//! logits give equal files to the last byte. A [`Finder`] answers one question at a time, as soon
//! as the model has seen its windows; [`predict`] answers all. Left out: running the model.

use std::collections::HashMap;
use std::path::Path;

use rayon::prelude::*;
use serde::{Deserialize, Serialize};

use super::final_text::{find_text, join_pieces};
use super::{NotFound, SquadExample, SquadFeatures};
use crate::python::Json;
use crate::tokenizer::{Casing, Tokenizer};
use crate::{Error, Result};

/// The original's flags, with its defaults.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct PredictOptions {
    /// How many answers are listed, and how many starts and ends are combined.
    pub n_best_size: usize,
    /// The longest answer, in pieces.
    pub max_answer_length: usize,
    /// The original's `version_2_with_negative`: there may be no answer.
    pub version_2: bool,
    /// With version 2: no answer if that scores so much higher than the best one.
    pub null_score_diff_threshold: f64,
}

impl Default for PredictOptions {
    fn default() -> Self {
        Self {
            n_best_size: 20,
            max_answer_length: 30,
            version_2: false,
            null_score_diff_threshold: 0.0,
        }
    }
}

/// What the model says of one window.
#[derive(Clone, Debug, PartialEq)]
pub struct RawResult {
    /// The window's [`unique_id`](SquadFeatures::unique_id).
    pub unique_id: i64,
    /// For each token, how much speaks for the answer to start there.
    pub start_logits: Vec<f32>,
    /// For each token, how much speaks for the answer to end there.
    pub end_logits: Vec<f32>,
}

/// A window of a question's document, and what the model says of it. Logits may go on behind the
/// window's tokens, where the original has those of padding.
#[derive(Clone, Copy, Debug)]
pub struct Window<'a> {
    /// The window.
    pub features: &'a SquadFeatures,
    /// For each token, how much speaks for the answer to start there.
    pub start_logits: &'a [f32],
    /// For each token, how much speaks for the answer to end there.
    pub end_logits: &'a [f32],
}

impl Window<'_> {
    fn check(&self) -> Result<()> {
        let (start, end) = (self.start_logits.len(), self.end_logits.len());
        let (tokens, unique_id) = (self.features.features.len(), self.features.unique_id);
        if start.min(end) < tokens || start != end {
            return Err(Error::LogitCount { unique_id, tokens, start, end });
        }
        Ok(())
    }
}

/// A possible answer.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Answer {
    /// Its text; empty for no answer.
    pub text: String,
    /// Among those listed.
    pub probability: f64,
    /// The logit of its first token.
    pub start_logit: f64,
    /// The logit of its last token.
    pub end_logit: f64,
}

/// What was found for a question.
#[derive(Clone, Debug, PartialEq, Serialize, Deserialize)]
pub struct Question {
    /// Its id in the data set.
    pub qas_id: String,
    /// The answer.
    pub prediction: String,
    /// The best answers, best first.
    pub n_best: Vec<Answer>,
    /// With version 2: how much higher no answer scores than the best one.
    pub null_odds: Option<f64>,
    /// Why some of the answers are whole words: what the original prints under `verbose_logging`.
    pub not_found: Vec<NotFound>,
}

/// What was found for all questions, in the order of the data set.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Predictions {
    /// Each id once.
    pub questions: Vec<Question>,
}

/// Finds the answers of all examples, on rayon's threads.
///
/// `tokenizer` is the one that the features were made with.
pub fn predict(
    examples: &[SquadExample],
    features: &[SquadFeatures],
    results: &[RawResult],
    tokenizer: &Tokenizer,
    options: PredictOptions,
) -> Result<Predictions> {
    let by_id: HashMap<i64, &RawResult> =
        results.iter().map(|result| (result.unique_id, result)).collect();
    let mut windows: Vec<Vec<Window<'_>>> = Vec::new();
    windows.resize_with(examples.len(), Vec::new);
    for features in features {
        let unique_id = features.unique_id;
        let Some(windows) = windows.get_mut(features.example_index) else { continue };
        let RawResult { start_logits, end_logits, .. } =
            by_id.get(&unique_id).ok_or(Error::NoLogits { unique_id })?;
        windows.push(Window { features, start_logits, end_logits });
    }
    let finder = Finder::new(tokenizer, options);
    let found: Result<Vec<Question>> = examples
        .par_iter()
        .zip(windows)
        .map(|(example, windows)| finder.find(example, &windows))
        .collect();
    Ok(found?.into_iter().collect())
}

/// An id that comes again replaces the first, in its place.
impl FromIterator<Question> for Predictions {
    fn from_iter<I: IntoIterator<Item = Question>>(all: I) -> Self {
        let mut places = HashMap::new();
        let mut questions: Vec<Question> = Vec::new();
        for question in all {
            match places.get(&question.qas_id) {
                Some(&place) => questions[place] = question,
                None => {
                    places.insert(question.qas_id.clone(), questions.len());
                    questions.push(question);
                }
            }
        }
        Self { questions }
    }
}

/// A possible answer before its text is known.
#[derive(Clone, Copy)]
struct Candidate {
    window: usize,
    /// First and last token; 0 for no answer.
    start: usize,
    end: usize,
    start_logit: f64,
    end_logit: f64,
}

/// Finds answers, one question at a time.
#[derive(Clone, Copy, Debug)]
pub struct Finder<'a> {
    tokenizer: &'a Tokenizer,
    options: PredictOptions,
}

impl<'a> Finder<'a> {
    /// `tokenizer` is the one that the features are made with.
    pub fn new(tokenizer: &'a Tokenizer, options: PredictOptions) -> Self {
        Self { tokenizer, options }
    }

    /// The answers to a question, of which all windows are given in their order.
    ///
    /// Where the original would stop with an exception, because under version 2 a question has no
    /// possible answer at all, there is no answer, and the odds are the score of that alone.
    pub fn find(&self, example: &SquadExample, windows: &[Window<'_>]) -> Result<Question> {
        windows.iter().try_for_each(Window::check)?;
        let options = &self.options;
        let null = null_candidate(windows);
        let mut candidates = Vec::new();
        for (index, window) in windows.iter().enumerate() {
            self.candidates(index, window, &mut candidates);
        }
        if options.version_2 {
            candidates.push(null);
        }
        // Stable: of equals, the one found first.
        candidates.sort_by(|a, b| descending(a.score(), b.score()));
        let mut n_best: Vec<Answer> = Vec::new();
        let mut not_found = Vec::new();
        for candidate in &candidates {
            if n_best.len() >= options.n_best_size {
                break;
            }
            let text = self.text(example, windows, candidate, &mut not_found);
            // No answer is listed even if a text before it was empty.
            if candidate.start > 0 && n_best.iter().any(|answer| answer.text == text) {
                continue;
            }
            n_best.push(candidate.answer(text));
        }
        if options.version_2 && n_best.iter().all(|answer| !answer.text.is_empty()) {
            n_best.push(null.answer(String::new()));
        }
        if n_best.is_empty() {
            let nonce = Candidate { window: 0, start: 0, end: 0, start_logit: 0.0, end_logit: 0.0 };
            n_best.push(nonce.answer("empty".into()));
        }
        softmax(&mut n_best);
        let (prediction, null_odds) = if options.version_2 {
            let score = if windows.is_empty() { 0.0 } else { null.score() };
            let best = n_best.iter().find(|answer| !answer.text.is_empty());
            let odds = best.map_or(score, |best| score - best.start_logit - best.end_logit);
            let answered = best.filter(|_| odds <= options.null_score_diff_threshold);
            (answered.map(|best| best.text.clone()).unwrap_or_default(), Some(odds))
        } else {
            (n_best[0].text.clone(), None)
        };
        Ok(Question { qas_id: example.qas_id.clone(), prediction, n_best, null_odds, not_found })
    }

    /// Adds the possible answers of a window.
    fn candidates(&self, index: usize, window: &Window<'_>, candidates: &mut Vec<Candidate>) {
        let Window { features, start_logits, end_logits } = *window;
        let starts = best_places(start_logits, self.options.n_best_size);
        let mut ends = best_places(end_logits, self.options.n_best_size);
        ends.retain(|&end| features.word(end).is_some());
        for &start in starts.iter().filter(|&&start| features.is_max_context(start)) {
            for &end in &ends {
                if end < start || end - start >= self.options.max_answer_length {
                    continue;
                }
                let start_logit = f64::from(start_logits[start]);
                let end_logit = f64::from(end_logits[end]);
                candidates.push(Candidate { window: index, start, end, start_logit, end_logit });
            }
        }
    }

    fn text(
        &self,
        example: &SquadExample,
        windows: &[Window<'_>],
        at: &Candidate,
        not_found: &mut Vec<NotFound>,
    ) -> String {
        if at.start == 0 {
            return String::new();
        }
        let features = windows[at.window].features;
        let (Some(first), Some(last)) = (features.word(at.start), features.word(at.end)) else {
            return String::new();
        };
        let vocabulary = self.tokenizer.vocabulary();
        let ids = features.features.ids()[at.start..=at.end].iter();
        let pieces = ids.filter_map(|&id| vocabulary.token(u32::try_from(id).ok()?));
        let original = example.document.join(first, last + 1);
        let casing: Casing = self.tokenizer.casing();
        let found = find_text(&join_pieces(pieces), &original, casing).map(str::to_owned);
        match found {
            Ok(text) => text,
            Err(why) => {
                not_found.push(why);
                original
            }
        }
    }
}

impl Candidate {
    fn score(&self) -> f64 {
        self.start_logit + self.end_logit
    }

    fn answer(&self, text: String) -> Answer {
        let Self { start_logit, end_logit, .. } = *self;
        Answer { text, probability: 0.0, start_logit, end_logit }
    }
}

/// No answer, as the window says that sees least reason for it.
fn null_candidate(windows: &[Window<'_>]) -> Candidate {
    let mut least = 1_000_000.0;
    let mut null = Candidate { window: 0, start: 0, end: 0, start_logit: 0.0, end_logit: 0.0 };
    for (index, window) in windows.iter().enumerate() {
        let (Some(&start), Some(&end)) = (window.start_logits.first(), window.end_logits.first())
        else {
            continue;
        };
        let (start_logit, end_logit) = (f64::from(start), f64::from(end));
        if start_logit + end_logit < least {
            least = start_logit + end_logit;
            null = Candidate { window: index, start: 0, end: 0, start_logit, end_logit };
        }
    }
    null
}

/// Larger first; what is no number compares as equal, so it moves nowhere.
fn descending(a: f64, b: f64) -> std::cmp::Ordering {
    b.partial_cmp(&a).unwrap_or(std::cmp::Ordering::Equal)
}

/// Where the largest logits are, largest first; of equals, the first.
fn best_places(logits: &[f32], count: usize) -> Vec<usize> {
    // A total order, so that what is no number can do no harm; last, as it wins no comparison.
    let order = |&a: &usize, &b: &usize| {
        let key =
            |place: usize| if logits[place].is_nan() { f32::NEG_INFINITY } else { logits[place] };
        // -0.0 and 0.0 are equal.
        (key(b) + 0.0).total_cmp(&(key(a) + 0.0)).then(a.cmp(&b))
    };
    let mut places: Vec<usize> = (0..logits.len()).collect();
    if count < places.len() {
        places.select_nth_unstable_by(count, order);
        places.truncate(count);
    }
    places.sort_unstable_by(order);
    places
}

fn softmax(answers: &mut [Answer]) {
    let score = |answer: &Answer| answer.start_logit + answer.end_logit;
    let largest = answers.iter().map(score).fold(f64::NEG_INFINITY, f64::max);
    let mut sum = 0.0;
    for answer in answers.iter_mut() {
        answer.probability = (score(answer) - largest).exp();
        sum += answer.probability;
    }
    for answer in answers {
        answer.probability /= sum;
    }
}

impl Predictions {
    /// `predictions.json`
    pub fn predictions_json(&self) -> String {
        self.json(|json, question| json.string(&question.prediction))
    }

    /// `nbest_predictions.json`
    pub fn n_best_json(&self) -> String {
        self.json(|json, question| {
            json.begin_list();
            for answer in &question.n_best {
                json.item();
                json.begin_object();
                json.key("text");
                json.string(&answer.text);
                json.key("probability");
                json.float(answer.probability);
                json.key("start_logit");
                json.float(answer.start_logit);
                json.key("end_logit");
                json.float(answer.end_logit);
                json.end();
            }
            json.end();
        })
    }

    /// `null_odds.json`, with version 2.
    pub fn null_odds_json(&self) -> String {
        self.json(|json, question| json.float(question.null_odds.unwrap_or(0.0)))
    }

    /// Writes `predictions.json`, `nbest_predictions.json` and, with version 2, `null_odds.json`
    /// into a folder.
    pub fn write(&self, folder: impl AsRef<Path>) -> Result<()> {
        let folder = folder.as_ref();
        let write = |name: &str, text: String| {
            frazil_tensor::file::write(folder.join(name), text.as_bytes())
        };
        write("predictions.json", self.predictions_json())?;
        write("nbest_predictions.json", self.n_best_json())?;
        if self.questions.iter().any(|question| question.null_odds.is_some()) {
            write("null_odds.json", self.null_odds_json())?;
        }
        Ok(())
    }

    fn json(&self, value: impl Fn(&mut Json, &Question)) -> String {
        let mut json = Json::default();
        json.begin_object();
        for question in &self.questions {
            json.key(&question.qas_id);
            value(&mut json, question);
        }
        json.finish()
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_best_places_come_in_order() {
        let logits = [1.0, 3.0, f32::NAN, 3.0, 2.0, -0.0, 0.0, f32::INFINITY];
        assert_eq!(best_places(&logits, 4), [7, 1, 3, 4]);
        assert_eq!(best_places(&logits, 99), [7, 1, 3, 4, 0, 5, 6, 2]);
        assert!(best_places(&[], 3).is_empty());
        assert!(best_places(&logits, 0).is_empty());
    }

    #[test]
    fn probabilities_sum_to_one() {
        let answer = |score| Answer {
            text: String::new(),
            probability: 0.0,
            start_logit: score,
            end_logit: 0.0,
        };
        let mut answers = [answer(1000.0), answer(999.0)];
        softmax(&mut answers);
        assert!((answers[0].probability - 0.731_058_578_630_004_9).abs() < 1e-15);
        assert!((answers[0].probability + answers[1].probability - 1.0).abs() < 1e-15);
    }
}
