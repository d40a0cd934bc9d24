//! Texts of four to eight sentences about two or three people, the questions that each can answer, and
//! pairs of sentences that say the same or do not. The same seed gives the same texts.

use std::collections::HashSet;

use frazil::bert::python::random::Random;
use serde_json::{Value, json};

use super::grammar::{KINDS, MEN, Slot, WOMEN};

/// A question about a passage.
pub struct Question {
    pub words: String,
    pub answer: String,
    /// The character of the passage that the answer begins with.
    pub start: usize,
}

/// A text, and what can be asked about it.
pub struct Passage {
    pub sentences: Vec<String>,
    /// The same facts once more, in an order and in words of their own.
    pub again: Vec<String>,
    pub questions: Vec<Question>,
}

impl Passage {
    /// In one line.
    pub fn text(&self) -> String {
        self.sentences.join(" ")
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Hash)]
struct Person {
    name: &'static str,
    she: bool,
}

#[derive(Clone, Copy)]
struct Fact {
    kind: usize,
    person: Option<Person>,
    a: &'static str,
    b: &'static str,
}

impl Fact {
    fn slot(&self, slot: Slot) -> &'static str {
        match slot {
            Slot::Person => self.person.map_or("", |person| person.name),
            Slot::A => self.a,
            Slot::B => self.b,
        }
    }

    /// A sentence or a question; `pronoun`: the person is not named again.
    fn say(&self, template: &str, pronoun: bool) -> String {
        let mut text = template.replace("{a}", self.a).replace("{b}", self.b);
        if let Some(person) = self.person {
            let (he, his) = if person.she { ("she", "her") } else { ("he", "his") };
            let whose = format!("{}'s", person.name);
            text = text.replace("{p}", if pronoun { he } else { person.name });
            text = text.replace("{p's}", if pronoun { his } else { &whose });
        }
        let mut letters = text.chars();
        let first = letters.next().map(|first| first.to_ascii_uppercase());
        first.into_iter().chain(letters).collect()
    }
}

/// Where texts come from.
pub struct Writer {
    dice: Random,
    /// Texts that must not come again.
    known: HashSet<String>,
}

impl Writer {
    pub fn new(seed: u64) -> Self {
        Self { dice: Random::new(seed), known: HashSet::new() }
    }

    fn one<T: Copy>(&mut self, of: &[T]) -> T {
        of[self.dice.below(of.len() as u64) as usize]
    }

    fn chance(&mut self, part: f64) -> bool {
        self.dice.random() < part
    }

    fn person(&mut self) -> Person {
        let she = self.chance(0.5);
        Person { name: if she { self.one(&WOMEN) } else { self.one(&MEN) }, she }
    }

    fn fact(&mut self, kind: usize, person: Person) -> Fact {
        let of = &KINDS[kind];
        Fact {
            kind,
            person: of.personal.then_some(person),
            a: self.one(of.a),
            b: if of.b.is_empty() { "" } else { self.one(of.b) },
        }
    }

    /// Facts of which no two are of the same sort and person, or share a word.
    fn facts(&mut self) -> Vec<Fact> {
        let mut people = Vec::new();
        for _ in 0..2 + usize::from(self.chance(0.5)) {
            let person = self.person();
            if !people.contains(&person) {
                people.push(person);
            }
        }
        let count = self.dice.between(4, 8);
        let mut used: HashSet<&str> = HashSet::new();
        let mut topics = HashSet::new();
        let mut facts = Vec::new();
        // What is left of a world that is used up is a shorter text.
        for _ in 0..count * 4 {
            let (kind, person) = (self.dice.below(KINDS.len() as u64) as usize, self.one(&people));
            let fact = self.fact(kind, person);
            let taken = used.contains(fact.a) || (!fact.b.is_empty() && used.contains(fact.b));
            if taken || !topics.insert((kind, fact.person)) {
                continue;
            }
            used.extend([fact.a, fact.b]);
            facts.push(fact);
            if facts.len() == count {
                break;
            }
        }
        if self.chance(0.7) {
            // What is said of one person stands together.
            facts.sort_by_key(|fact| people.iter().position(|person| Some(*person) == fact.person));
        }
        facts
    }

    /// Facts of the same sorts about two people: whoever answers has to look whom they are about.
    fn rival_facts(&mut self) -> Vec<Fact> {
        let one = self.person();
        let other = loop {
            let person = self.person();
            if person != one {
                break person;
            }
        };
        let mut kinds: Vec<usize> = (0..KINDS.len()).filter(|kind| KINDS[*kind].personal).collect();
        self.dice.shuffle(&mut kinds);
        kinds.truncate(self.dice.between(2, 3));
        let mut used: HashSet<&str> = HashSet::new();
        let mut facts = Vec::new();
        for person in [one, other] {
            for kind in &kinds {
                let fact = self.fact(*kind, person);
                // A thing or an animal that both have makes it the harder.
                if used.insert(fact.a) {
                    facts.push(fact);
                }
            }
        }
        if self.chance(0.5) {
            self.dice.shuffle(&mut facts);
        }
        facts
    }

    /// A text with up to so many questions.
    pub fn passage(&mut self, questions: usize) -> Passage {
        self.fresh(questions, false)
    }

    /// A text about two rivals, to learn from.
    pub fn rivals(&mut self, questions: usize) -> Passage {
        self.fresh(questions, true)
    }

    fn fresh(&mut self, questions: usize, rivals: bool) -> Passage {
        loop {
            let passage = self.any_passage(questions, rivals);
            if self.known.insert(passage.text()) {
                return passage;
            }
        }
    }

    fn any_passage(&mut self, questions: usize, rivals: bool) -> Passage {
        let facts = if rivals { self.rival_facts() } else { self.facts() };
        let mut sentences = Vec::new();
        // For each fact the character that its sentence begins with, and whom it names.
        let mut said: Vec<(usize, bool)> = Vec::new();
        let (mut length, mut last) = (0, None);
        for fact in &facts {
            let again = fact.person.is_some() && fact.person == last;
            let pronoun = again && self.chance(0.4);
            let template = self.one(KINDS[fact.kind].sentences);
            let sentence = fact.say(template, pronoun);
            said.push((length, !pronoun));
            length += sentence.len() + 1;
            last = fact.person;
            sentences.push(sentence);
        }
        let mut again: Vec<String> = facts
            .iter()
            .map(|fact| fact.say(self.one(KINDS[fact.kind].sentences), false))
            .collect();
        self.dice.shuffle(&mut again);
        let mut asked = HashSet::new();
        let mut list = Vec::new();
        for _ in 0..questions * 4 {
            let at = self.dice.below(facts.len() as u64) as usize;
            let fact = &facts[at];
            let (template, slot) = self.one(KINDS[fact.kind].questions);
            // What nothing but a name leads to is the hardest to learn, and asked more often.
            if rivals && (slot != Slot::A || !fact.b.is_empty()) && self.chance(0.6) {
                continue;
            }
            let answer = fact.slot(slot);
            // Who is asked for is answered by the last sentence that names them.
            let named = match slot {
                Slot::Person => {
                    (0..=at).rev().find(|at| facts[*at].person == fact.person && said[*at].1)
                }
                _ => Some(at),
            };
            let place = named.and_then(|at| Some(said[at].0 + sentences[at].find(answer)?));
            let words = fact.say(template, false);
            let Some(start) = place.filter(|_| asked.insert(words.clone())) else { continue };
            list.push(Question { words, answer: answer.to_owned(), start });
            if list.len() == questions {
                break;
            }
        }
        Passage { sentences, again, questions: list }
    }

    /// Two sentences, and whether they say the same.
    pub fn pair(&mut self) -> (String, String, bool) {
        loop {
            let (kind, person) = (self.dice.below(KINDS.len() as u64) as usize, self.person());
            let fact = self.fact(kind, person);
            let same = self.chance(0.5);
            let mut other = fact;
            if !same {
                // One word is another one.
                let fresh = self.person();
                let fresh = self.fact(kind, fresh);
                match (self.dice.below(3), fact.person) {
                    (0, Some(_)) => other.person = fresh.person,
                    (1, _) if !fact.b.is_empty() => other.b = fresh.b,
                    _ => other.a = fresh.a,
                }
                let words = |of: &Fact| (of.person, of.a, of.b);
                if words(&other) == words(&fact) {
                    continue;
                }
            }
            let (one, two) = (self.one(KINDS[kind].sentences), self.one(KINDS[kind].sentences));
            let (one, two) = (fact.say(one, false), other.say(two, false));
            if one != two && self.known.insert(format!("{one}\t{two}")) {
                return (one, two, same);
            }
        }
    }
}

/// Passages as a SQuAD file.
pub fn squad(title: &str, passages: &[Passage]) -> Value {
    let mut id = 0;
    let mut paragraph = |passage: &Passage| {
        let mut question = |question: &Question| {
            id += 1;
            json!({
                "id": format!("{title}-{id:04}"),
                "question": question.words,
                "answers": [{"text": question.answer, "answer_start": question.start}],
            })
        };
        let qas: Vec<Value> = passage.questions.iter().map(&mut question).collect();
        json!({"context": passage.text(), "qas": qas})
    };
    let paragraphs: Vec<Value> = passages.iter().map(&mut paragraph).collect();
    json!({"version": "1.1", "data": [{"title": title, "paragraphs": paragraphs}]})
}

/// Pairs as a file of MRPC.
pub fn mrpc(pairs: &[(String, String, bool)]) -> String {
    let mut text = "Quality\t#1 ID\t#2 ID\t#1 String\t#2 String\n".to_owned();
    for (at, (one, two, same)) in pairs.iter().enumerate() {
        let label = u8::from(*same);
        text += &format!("{label}\t{}\t{}\t{one}\t{two}\n", 2 * at + 1, 2 * at + 2);
    }
    text
}

/// Passages as text to pre-train on: a sentence a line, an empty line between two texts. After what is
/// said comes the same once more, or questions with their answers: what is masked can be looked up.
pub fn corpus(passages: &[Passage]) -> String {
    let mut text = String::new();
    for (at, passage) in passages.iter().enumerate() {
        let answered = |of: &Question| format!("{} {}.", of.words, of.answer);
        let more: Vec<String> = match at % 2 {
            0 => passage.again.clone(),
            _ => passage.questions.iter().map(answered).collect(),
        };
        for sentence in passage.sentences.iter().chain(&more) {
            text += sentence;
            text.push('\n');
        }
        text.push('\n');
    }
    text
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_texts() {
        let texts = |seed| {
            let mut writer = Writer::new(seed);
            let passages: Vec<Passage> = (0..50).map(|_| writer.passage(4)).collect();
            (squad("x", &passages).to_string(), mrpc(&[writer.pair(), writer.pair()]))
        };
        assert_eq!(texts(1), texts(1));
        assert_ne!(texts(1), texts(2));
    }

    #[test]
    fn answers_stand_where_they_are_said_to() {
        let mut writer = Writer::new(3);
        for _ in 0..500 {
            let passage = writer.passage(4);
            let text = passage.text();
            assert!((3..=8).contains(&passage.sentences.len()), "{text}");
            assert!(!passage.questions.is_empty());
            for question in &passage.questions {
                assert_eq!(text.find('{'), None);
                assert_eq!(question.words.find('{'), None);
                let end = question.start + question.answer.len();
                assert_eq!(text.get(question.start..end), Some(question.answer.as_str()), "{text}");
                let around = [text[..question.start].chars().last(), text[end..].chars().next()];
                let inside = around.into_iter().flatten().any(char::is_alphanumeric);
                assert!(!inside, "{} in {text}", question.answer);
            }
        }
    }
}
