//! SQuAD's official scores: exact match and F1, of version 1.1 and of version 2.0.
//!
//! Both scripts' own arithmetic, in their order. They differ: 1.1 counts a question without a
//! prediction as wrong, 2.0 leaves it out of the count; 2.0 knows questions without an answer and
//! finds the threshold of the null odds that would have been best. Left out: making predictions,
//! see [`squad`](crate::squad).

use std::borrow::Cow;
use std::collections::{HashMap, HashSet};
use std::path::Path;

use serde_json::Value;

use super::normalize_answer;
use crate::rows::{BadRow, OnBadRow, RowProblem};
use crate::squad::File;
use crate::{Error, Result};

/// Which of the two scripts.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Version {
    /// Every question has an answer.
    V1,
    /// Questions may have none.
    V2,
}

/// A data set with the answers that people gave.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct Reference {
    /// In the order of the file.
    questions: Vec<(String, Vec<String>)>,
    skipped: Vec<BadRow>,
    /// What the file says of itself.
    told: Option<String>,
    /// Whether a question says that it could be without an answer.
    impossible: bool,
}

/// The scores of version 1.1, in percent.
#[derive(Clone, Debug, PartialEq)]
pub struct Score {
    /// Answers that are the same as one that people gave.
    pub exact_match: f64,
    /// Words in common with the most similar of those.
    pub f1: f64,
    /// Questions in the data set.
    pub total: usize,
    /// Those of them without a prediction, which count as wrong.
    pub missing: Vec<String>,
}

/// The scores of version 2.0 over some of the questions, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Part {
    /// As in [`Score`].
    pub exact: f64,
    /// As in [`Score`].
    pub f1: f64,
    /// How many questions.
    pub total: usize,
}

/// The best that a threshold for the null odds could do, in percent.
#[derive(Clone, Copy, Debug, PartialEq)]
pub struct Best {
    /// The best score.
    pub score: f64,
    /// Where it is reached: no answer above these odds.
    pub threshold: f64,
}

/// The scores of version 2.0.
#[derive(Clone, Debug, PartialEq)]
pub struct ScoreV2 {
    /// Over all questions with a prediction.
    pub all: Part,
    /// Over those that have an answer, if there are any.
    pub has_answer: Option<Part>,
    /// Over those that have none, if there are any.
    pub no_answer: Option<Part>,
    /// With null odds: the best exact match by threshold.
    pub best_exact: Option<Best>,
    /// With null odds: the best F1 by threshold.
    pub best_f1: Option<Best>,
    /// Questions without a prediction, which do not count.
    pub missing: Vec<String>,
}

impl Reference {
    /// Reads a data set.
    pub fn open(path: impl AsRef<Path>, on_bad_row: OnBadRow) -> Result<Self> {
        let path = path.as_ref();
        let bytes = frazil_tensor::file::map(path)?;
        Self::parse(&bytes, on_bad_row).map_err(|error| error.in_file(path))
    }

    /// Reads a data set that is in memory.
    pub fn parse(bytes: &[u8], on_bad_row: OnBadRow) -> Result<Self> {
        let file = File::new(bytes, on_bad_row)?;
        let (told, paragraphs) = file.parse()?;
        let mut lines = file.lines();
        let mut all = Self { told, ..Self::default() };
        for question in paragraphs.into_iter().flat_map(|paragraph| paragraph.questions) {
            let missing = |key| RowProblem::MissingKey { place: question.place(), key };
            let read = match &question.entry {
                Err(row) => Err(row.clone()),
                Ok(entry) => {
                    all.impossible |= entry.is_impossible.is_some();
                    let text = |text: &Option<Cow<'_, str>>| {
                        text.as_deref().map(str::to_owned).ok_or_else(|| missing("text"))
                    };
                    let answers = entry.answers.as_ref().ok_or_else(|| missing("answers"));
                    let answers = answers.and_then(|answers| {
                        answers.iter().map(|answer| text(&answer.text)).collect()
                    });
                    let id = entry.id.as_deref().ok_or_else(|| missing("id"));
                    id.and_then(|id| Ok((id.to_owned(), answers?)))
                        .map_err(|problem| problem.on_line(lines.of_question(&question)))
                }
            };
            match (read, on_bad_row) {
                (Ok(read), _) => all.questions.push(read),
                (Err(row), OnBadRow::Skip) => all.skipped.push(row),
                (Err(row), OnBadRow::Stop) => return Err(row.into()),
            }
        }
        if all.questions.is_empty() {
            return Err(Error::NoUsableRow { skipped: all.skipped.len() });
        }
        Ok(all)
    }

    /// The version that this is of: by its own word, else by whether questions say that they have
    /// no answer, or have none.
    pub fn version(&self) -> Version {
        let told = self.told.as_deref().map(|told| told.trim_start_matches(['v', 'V']));
        let first = told.and_then(|told| told.split('.').next());
        let without = |(_, answers): &(String, Vec<String>)| answers.is_empty();
        match first {
            Some("1") => Version::V1,
            Some("2") => Version::V2,
            _ if self.impossible || self.questions.iter().any(without) => Version::V2,
            _ => Version::V1,
        }
    }

    /// Questions that could not be used, if those are left out.
    pub fn skipped(&self) -> &[BadRow] {
        &self.skipped
    }

    /// The number of questions.
    pub fn len(&self) -> usize {
        self.questions.len()
    }

    /// Whether there are none.
    pub fn is_empty(&self) -> bool {
        self.questions.is_empty()
    }

    /// The scores of version 1.1. A question to which nobody gave an answer counts as wrong.
    pub fn score(&self, predictions: &HashMap<String, String>) -> Score {
        let (mut exact, mut f1) = (0_usize, 0.0);
        let mut missing = Vec::new();
        for (id, score) in self.each(predictions, Version::V1) {
            let Some((same, best)) = score else {
                missing.push(id.to_owned());
                continue;
            };
            exact += usize::from(same);
            f1 += best;
        }
        let total = self.questions.len();
        let percent = |sum: f64| 100.0 * sum / total as f64;
        Score { exact_match: percent(exact as f64), f1: percent(f1), total, missing }
    }

    /// Each question's id, and of its prediction, if it has one, whether it is one of the answers,
    /// and the F1 with the most similar one, from 0 to 1.
    pub fn each<'a>(
        &'a self,
        predictions: &'a HashMap<String, String>,
        version: Version,
    ) -> impl Iterator<Item = (&'a str, Option<(bool, f64)>)> {
        self.questions.iter().map(move |(id, answers)| {
            let prediction = predictions.get(id);
            (id.as_str(), prediction.map(|prediction| compare(prediction, answers, version)))
        })
    }

    /// The scores of version 2.0. With null odds, answers with odds above `threshold` count as
    /// none; the script's own default is 1.
    pub fn score_v2(
        &self,
        predictions: &HashMap<String, String>,
        null_odds: Option<&NullOdds>,
        threshold: f64,
    ) -> Result<ScoreV2> {
        // An id that comes again replaces the first, in its place.
        let mut places = HashMap::new();
        let mut unique: Vec<&(String, Vec<String>)> = Vec::with_capacity(self.questions.len());
        for question in &self.questions {
            match places.get(&question.0) {
                Some(&place) => unique[place] = question,
                None => {
                    places.insert(&question.0, unique.len());
                    unique.push(question);
                }
            }
        }
        let mut missing = Vec::new();
        let mut scored: Vec<Scored<'_>> = Vec::new();
        for (id, answers) in unique.iter().copied() {
            let has_answer = !answers.is_empty();
            let Some(prediction) = predictions.get(id) else {
                missing.push(id.clone());
                continue;
            };
            let answered = !prediction.is_empty();
            let (same, f1) = compare(prediction, answers, Version::V2);
            let exact = f64::from(u8::from(same));
            scored.push(Scored { id, has_answer, answered, exact, f1 });
        }
        if scored.is_empty() {
            return Err(Error::NoUsableRow { skipped: missing.len() });
        }
        let no_answers = unique.iter().filter(|(_, answers)| answers.is_empty()).count();
        let (mut best_exact, mut best_f1) = (None, None);
        let mut kept = scored.clone();
        if let Some(odds) = null_odds {
            best_exact = Some(best(&scored, odds, no_answers, |score| score.exact)?);
            best_f1 = Some(best(&scored, odds, no_answers, |score| score.f1)?);
            for score in &mut kept {
                if odds.of(score.id)? > threshold {
                    let right = f64::from(u8::from(!score.has_answer));
                    (score.exact, score.f1) = (right, right);
                }
            }
        }
        Ok(ScoreV2 {
            all: Part::of(kept.iter()).unwrap_or(Part { exact: 0.0, f1: 0.0, total: 0 }),
            has_answer: Part::of(kept.iter().filter(|score| score.has_answer)),
            no_answer: Part::of(kept.iter().filter(|score| !score.has_answer)),
            best_exact,
            best_f1,
            missing,
        })
    }
}

/// Whether a prediction is one of the answers, and the F1 with the most similar one.
fn compare(prediction: &str, answers: &[String], version: Version) -> (bool, f64) {
    let prediction = Words::of(prediction);
    let mut answers: Vec<Words> = answers.iter().map(|answer| Words::of(answer)).collect();
    if version == Version::V2 {
        answers.retain(|answer| !answer.text.is_empty());
        if answers.is_empty() {
            answers.push(Words::of(""));
        }
    }
    let (mut exact, mut best) = (false, 0.0_f64);
    for answer in &answers {
        let same = prediction.text == answer.text;
        exact |= same;
        // Two texts without words are alike in version 2.0, and have nothing in common in 1.1.
        let empty = f64::from(u8::from(same && version == Version::V2));
        best = best.max(prediction.f1(answer, empty));
    }
    (exact, best)
}

/// A question's scores.
#[derive(Clone, Copy)]
struct Scored<'a> {
    id: &'a str,
    has_answer: bool,
    /// Whether something was predicted.
    answered: bool,
    exact: f64,
    f1: f64,
}

impl Part {
    fn of<'a, 'b: 'a>(scores: impl Iterator<Item = &'a Scored<'b>>) -> Option<Self> {
        let (mut exact, mut f1, mut total) = (0.0, 0.0, 0_usize);
        for score in scores {
            exact += score.exact;
            f1 += score.f1;
            total += 1;
        }
        let percent = |sum: f64| 100.0 * sum / total as f64;
        (total > 0).then(|| Self { exact: percent(exact), f1: percent(f1), total })
    }
}

/// Goes through all thresholds from the lowest odds up: each question that gets its answer back
/// adds its score, or costs one if there was none to give.
fn best(
    scored: &[Scored<'_>],
    odds: &NullOdds,
    no_answers: usize,
    score: impl Fn(&Scored<'_>) -> f64,
) -> Result<Best> {
    let by_id: HashMap<&str, &Scored<'_>> = scored.iter().map(|s| (s.id, s)).collect();
    let mut order: Vec<&(String, f64)> = odds.odds.iter().collect();
    order.sort_by(|a, b| a.1.partial_cmp(&b.1).unwrap_or(std::cmp::Ordering::Equal));
    let mut current = no_answers as f64;
    let (mut highest, mut threshold) = (current, 0.0);
    for (id, odds) in order {
        let Some(scored) = by_id.get(id.as_str()) else { continue };
        current += match (scored.has_answer, scored.answered) {
            (true, _) => score(scored),
            (false, true) => -1.0,
            (false, false) => 0.0,
        };
        if current > highest {
            (highest, threshold) = (current, *odds);
        }
    }
    Ok(Best { score: 100.0 * highest / scored.len() as f64, threshold })
}

/// A normalized answer.
struct Words {
    text: String,
}

impl Words {
    fn of(answer: &str) -> Self {
        Self { text: normalize_answer(answer) }
    }

    fn words(&self) -> impl Iterator<Item = &str> {
        self.text.split(' ').filter(|word| !word.is_empty())
    }

    /// The harmonic mean of the shares of words in common; `if_empty` if one has no words.
    fn f1(&self, other: &Self, if_empty: f64) -> f64 {
        let mut counts: HashMap<&str, usize> = HashMap::new();
        let mut theirs = 0_usize;
        for word in other.words() {
            *counts.entry(word).or_default() += 1;
            theirs += 1;
        }
        let (mut ours, mut same) = (0_usize, 0_usize);
        for word in self.words() {
            ours += 1;
            if let Some(count) = counts.get_mut(word).filter(|count| **count > 0) {
                *count -= 1;
                same += 1;
            }
        }
        if ours == 0 || theirs == 0 {
            return if_empty;
        }
        if same == 0 {
            return 0.0;
        }
        let precision = same as f64 / ours as f64;
        let recall = same as f64 / theirs as f64;
        (2.0 * precision * recall) / (precision + recall)
    }
}

/// `null_odds.json`: how much speaks against an answer.
#[derive(Clone, Debug, Default, PartialEq)]
pub struct NullOdds {
    /// In the order of the file, which decides between equals.
    odds: Vec<(String, f64)>,
    by_id: HashMap<String, f64>,
}

impl NullOdds {
    /// Of these questions.
    pub fn new(odds: impl IntoIterator<Item = (String, f64)>) -> Self {
        let odds: Vec<(String, f64)> = odds.into_iter().collect();
        let by_id = odds.iter().cloned().collect();
        Self { odds, by_id }
    }

    /// Reads a file.
    pub fn open(path: impl AsRef<Path>) -> Result<Self> {
        let number = |value: &Value| value.as_f64();
        Ok(Self::new(read_object(path.as_ref(), "a number", number)?))
    }

    fn of(&self, id: &str) -> Result<f64> {
        self.by_id.get(id).copied().ok_or_else(|| Error::NoNullOdds { id: id.to_owned() })
    }
}

/// Reads `predictions.json`, anyone's.
pub fn read_predictions(path: impl AsRef<Path>) -> Result<HashMap<String, String>> {
    let text = |value: &Value| value.as_str().map(str::to_owned);
    Ok(read_object(path.as_ref(), "a string", text)?.into_iter().collect())
}

/// A file with one JSON object, whose values are all of one kind.
fn read_object<T>(
    path: &Path,
    expected: &'static str,
    take: impl Fn(&Value) -> Option<T>,
) -> Result<Vec<(String, T)>> {
    let read = |bytes: &[u8]| -> Result<Vec<(String, T)>> {
        if bytes.is_empty() {
            return Err(Error::EmptyFile { expected: "a JSON object with an entry for each id" });
        }
        let value: Value = serde_json::from_slice(bytes)?;
        let Value::Object(object) = value else {
            return Err(Error::NotPredictions { id: None, expected });
        };
        let entry = |(id, value): (String, Value)| match take(&value) {
            Some(value) => Ok((id, value)),
            None => Err(Error::NotPredictions { id: Some(id), expected }),
        };
        object.into_iter().map(entry).collect()
    };
    let bytes = frazil_tensor::file::map(path)?;
    read(&bytes).map_err(|error| error.in_file(path))
}

/// Ids of predictions that the data set does not have; the official scripts do not look at them.
pub fn unknown_ids<'a>(
    reference: &Reference,
    predictions: &'a HashMap<String, String>,
) -> Vec<&'a str> {
    let known: HashSet<&str> = reference.questions.iter().map(|(id, _)| id.as_str()).collect();
    let mut unknown: Vec<&str> =
        predictions.keys().map(String::as_str).filter(|id| !known.contains(id)).collect();
    unknown.sort_unstable();
    unknown
}

#[cfg(test)]
mod tests {
    use super::*;

    fn reference(questions: &[(&str, &[&str])]) -> Reference {
        let owned = |(id, answers): &(&str, &[&str])| {
            (id.to_string(), answers.iter().map(|answer| answer.to_string()).collect())
        };
        Reference { questions: questions.iter().map(owned).collect(), ..Reference::default() }
    }

    fn predictions(predictions: &[(&str, &str)]) -> HashMap<String, String> {
        predictions.iter().map(|(id, text)| (id.to_string(), text.to_string())).collect()
    }

    #[test]
    fn version_1_takes_the_best_of_all_answers() {
        let reference = reference(&[
            ("1", &["the Tower", "big red tower"]),
            ("2", &["x"]),
            ("3", &["28 m", "28 metres"]),
        ]);
        let predictions = predictions(&[("1", "Tower."), ("3", "28 28 m"), ("9", "")]);
        let score = reference.score(&predictions);
        assert_eq!(score.exact_match, 100.0 / 3.0);
        assert!((score.f1 - 100.0 * (1.0 + 0.8) / 3.0).abs() < 1e-12);
        assert_eq!((score.total, score.missing), (3, vec!["2".to_owned()]));
        assert_eq!(unknown_ids(&reference, &predictions), ["9"]);
    }

    fn parsed(text: &str) -> Result<Reference> {
        Reference::parse(text.as_bytes(), OnBadRow::Stop)
    }

    #[test]
    fn the_version_is_the_file_s_own_or_what_its_questions_show() {
        let file = |version: &str, question: &str| {
            let questions = format!("[{{\"id\": \"1\", {question}}}]");
            let text =
                format!("{{{version} \"data\": [{{\"paragraphs\": [{{\"qas\": {questions}}}]}}]}}");
            parsed(&text).unwrap().version()
        };
        let answered = "\"answers\": [{\"text\": \"x\"}]";
        let possible = "\"is_impossible\": false, \"answers\": [{\"text\": \"x\"}]";
        assert_eq!(file("", answered), Version::V1);
        assert_eq!(file("", possible), Version::V2);
        assert_eq!(file("", "\"answers\": []"), Version::V2);
        assert_eq!(file("\"version\": \"v2.0\",", answered), Version::V2);
        assert_eq!(file("\"version\": 2,", answered), Version::V2);
        assert_eq!(file("\"version\": \"1.1\",", possible), Version::V1);
        assert_eq!(file("\"version\": \"mine\",", possible), Version::V2);
    }

    #[test]
    fn bad_questions_stop_or_are_counted() {
        let text = "{\"data\": [{\"paragraphs\": [{\"qas\": [\n{\"id\": \"1\", \"answers\": []},\n\
                    {\"id\": \"2\"},\n{\"answers\": []},\n{\"id\": \"4\", \"answers\": [{}]}]}]}]}";
        let error = parsed(text).unwrap_err().to_string();
        assert_eq!(error, "line 3: question `2`: expected `answers`");
        let reference = Reference::parse(text.as_bytes(), OnBadRow::Skip).unwrap();
        let skipped: Vec<String> = reference.skipped().iter().map(ToString::to_string).collect();
        assert_eq!((reference.len(), &skipped[0]), (1, &error));
        assert_eq!(skipped[1], "line 4: `data[0].paragraphs[0].qas[2]`: expected `id`");
        assert_eq!(skipped[2], "line 5: question `4`: expected `text`");
        assert!(parsed("{\"data\": []}").is_err());
    }

    #[test]
    fn no_words_are_equal_in_version_2_only() {
        let reference = reference(&[("1", &["the"])]);
        let predictions = predictions(&[("1", "a")]);
        let score = reference.score(&predictions);
        assert_eq!((score.exact_match, score.f1), (100.0, 0.0));
        let score = reference.score_v2(&predictions, None, 1.0).unwrap();
        assert_eq!((score.all.exact, score.all.f1), (100.0, 100.0));
    }

    #[test]
    fn version_2_finds_the_best_threshold() {
        let reference =
            reference(&[("1", &["one"]), ("2", &[]), ("3", &["three"]), ("4", &[]), ("5", &[])]);
        let predictions =
            predictions(&[("1", "one"), ("2", "two"), ("3", "four three"), ("4", "")]);
        let odds = [("1", -3.0), ("2", 2.0), ("3", 1.0), ("4", 5.0), ("7", 0.0)];
        let odds = NullOdds::new(odds.map(|(id, odds)| (id.to_owned(), odds)));
        let score = reference.score_v2(&predictions, Some(&odds), 1.0).unwrap();
        // 1 right, 2 cut by its odds and so right, 3 two thirds, 4 right.
        assert_eq!(score.all.exact, 75.0);
        assert!((score.all.f1 - 100.0 * (3.0 + 2.0 / 3.0) / 4.0).abs() < 1e-12);
        assert_eq!(score.has_answer.unwrap().exact, 50.0);
        assert_eq!(score.no_answer.unwrap().total, 2);
        // Three questions have no answer, one of them without a prediction: the script starts
        // from three.
        assert_eq!(score.best_exact, Some(Best { score: 100.0, threshold: -3.0 }));
        assert_eq!(score.best_f1.unwrap().threshold, 1.0);
        assert_eq!(score.missing, ["5"]);
        let few = NullOdds::new([("1".to_owned(), 0.0)]);
        assert!(reference.score_v2(&predictions, Some(&few), 1.0).is_err());
    }
}
