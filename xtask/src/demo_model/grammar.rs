//! The small world that the embedded model knows: what can be said of people and places, in which
//! words, and what can be asked.
//!
//! A sentence has slots: `{p}` is a person, `{a}` and `{b}` are what is said. A question names the slot
//! that answers it. Left out: which facts stand together in a text (`passage`).

/// What fills a slot.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash)]
pub enum Slot {
    /// `{p}`
    Person,
    /// `{a}`
    A,
    /// `{b}`
    B,
}

/// One sort of fact.
pub struct Kind {
    /// Whether it is about a person.
    pub personal: bool,
    /// What `{a}` can be.
    pub a: &'static [&'static str],
    /// What `{b}` can be; nothing where the sentences have none.
    pub b: &'static [&'static str],
    /// Ways to say it, all of the same meaning.
    pub sentences: &'static [&'static str],
    /// Ways to ask, and where the answer is.
    pub questions: &'static [(&'static str, Slot)],
}

/// People who are “she”.
pub const WOMEN: [&str; 18] = [
    "Anna", "Bella", "Clara", "Dora", "Emma", "Freya", "Greta", "Helen", "Ida", "Julia", "Karen",
    "Laura", "Maria", "Nina", "Olga", "Paula", "Rosa", "Sofia",
];

/// People who are “he”.
pub const MEN: [&str; 18] = [
    "Adam", "Ben", "Carl", "David", "Erik", "Felix", "Georg", "Hugo", "Ivan", "Jonas", "Kurt",
    "Lukas", "Martin", "Noah", "Oscar", "Peter", "Ralf", "Simon",
];

const CITIES: &[&str] = &[
    "Oslo", "Paris", "London", "Berlin", "Rome", "Madrid", "Vienna", "Prague", "Lisbon", "Dublin",
    "Athens", "Warsaw", "Bergen", "Zurich", "Geneva", "Boston", "Tokyo", "Cairo", "Lima", "Delhi",
];
const JOBS: &[&str] = &[
    "baker", "teacher", "doctor", "pilot", "farmer", "painter", "singer", "driver", "nurse",
    "judge", "cook", "writer", "sailor", "builder", "lawyer", "tailor", "miner", "gardener",
];
const COLOURS: &[&str] =
    &["red", "blue", "green", "yellow", "black", "white", "brown", "grey", "pink", "purple"];
const THINGS: &[&str] = &[
    "boat", "car", "bike", "hat", "coat", "lamp", "table", "chair", "door", "tent", "piano", "bag",
];
const NUMBERS: &[&str] =
    &["two", "three", "four", "five", "six", "seven", "eight", "nine", "ten", "twelve"];
const ANIMALS: &[&str] =
    &["cat", "dog", "horse", "cow", "goat", "duck", "hen", "rabbit", "bird", "pig"];
const FOODS: &[&str] = &[
    "bread",
    "cheese",
    "rice",
    "soup",
    "fish",
    "honey",
    "cake",
    "fruit",
    "pasta",
    "salad",
    "chocolate",
    "pizza",
];
const MONTHS: &[&str] = &[
    "January",
    "February",
    "March",
    "April",
    "May",
    "June",
    "July",
    "August",
    "September",
    "October",
    "November",
    "December",
];
const WATERS: &[&str] = &["lake", "river", "sea", "pond", "water", "harbour"];
const STATES: &[&str] = &["cold", "warm", "deep", "clean", "calm", "dark"];

/// All that can be said.
pub const KINDS: [Kind; 8] = [
    Kind {
        personal: true,
        a: CITIES,
        b: &[],
        sentences: &[
            "{p} lives in {a}.",
            "{p's} home is in {a}.",
            "{p} has a house in {a}.",
            "{p} has lived in {a} for years.",
        ],
        questions: &[
            ("Where does {p} live?", Slot::A),
            ("Where is {p's} home?", Slot::A),
            ("In which city does {p} live?", Slot::A),
            ("Who lives in {a}?", Slot::Person),
        ],
    },
    Kind {
        personal: true,
        a: JOBS,
        b: &[],
        sentences: &[
            "{p} works as a {a}.",
            "{p} is a {a}.",
            "{p} earns money as a {a}.",
            "{p} has worked as a {a} for years.",
        ],
        questions: &[
            ("What is {p's} job?", Slot::A),
            ("What does {p} work as?", Slot::A),
            ("Who is a {a}?", Slot::Person),
            ("Who works as a {a}?", Slot::Person),
        ],
    },
    Kind {
        personal: true,
        a: COLOURS,
        b: THINGS,
        sentences: &[
            "{p} has a {a} {b}.",
            "{p's} {b} is {a}.",
            "{p} bought a {a} {b}.",
            "{p} owns a {a} {b}.",
        ],
        questions: &[
            ("What colour is {p's} {b}?", Slot::A),
            ("Which colour does {p's} {b} have?", Slot::A),
            ("Who has a {a} {b}?", Slot::Person),
        ],
    },
    Kind {
        personal: true,
        a: NUMBERS,
        b: ANIMALS,
        sentences: &[
            "{p} has {a} {b}s.",
            "{p} keeps {a} {b}s.",
            "There are {a} {b}s in {p's} garden.",
            "{p} looks after {a} {b}s.",
        ],
        questions: &[
            ("How many {b}s does {p} have?", Slot::A),
            ("How many {b}s are in {p's} garden?", Slot::A),
            ("Who keeps {a} {b}s?", Slot::Person),
        ],
    },
    Kind {
        personal: true,
        a: FOODS,
        b: &[],
        sentences: &[
            "{p} likes {a}.",
            "{p} often eats {a}.",
            "{p's} favourite food is {a}.",
            "{p} cannot live without {a}.",
        ],
        questions: &[
            ("What does {p} like?", Slot::A),
            ("What is {p's} favourite food?", Slot::A),
            ("Who likes {a}?", Slot::Person),
        ],
    },
    Kind {
        personal: true,
        a: MONTHS,
        b: &[],
        sentences: &[
            "{p} was born in {a}.",
            "{p's} birthday is in {a}.",
            "In {a} {p} has a birthday.",
        ],
        questions: &[
            ("When is {p's} birthday?", Slot::A),
            ("When was {p} born?", Slot::A),
            ("Who was born in {a}?", Slot::Person),
        ],
    },
    Kind {
        personal: false,
        a: STATES,
        b: WATERS,
        sentences: &["The {b} is {a}.", "Today the {b} is {a}.", "It is said that the {b} is {a}."],
        questions: &[("What is {a}?", Slot::B), ("How is the {b}?", Slot::A)],
    },
    Kind {
        personal: false,
        a: MONTHS,
        b: CITIES,
        sentences: &[
            "Ice forms in {b} in {a}.",
            "In {b} ice forms in {a}.",
            "There is ice in {b} in {a}.",
        ],
        questions: &[
            ("When is there ice in {b}?", Slot::A),
            ("Where is there ice in {a}?", Slot::B),
        ],
    },
];

/// Every template, for the vocabulary.
pub fn templates() -> impl Iterator<Item = &'static str> {
    let of = |kind: &'static Kind| {
        kind.sentences.iter().copied().chain(kind.questions.iter().map(|(words, _)| *words))
    };
    KINDS.iter().flat_map(of)
}

/// Every word that fills a slot.
pub fn words() -> impl Iterator<Item = &'static str> {
    let of = |kind: &'static Kind| kind.a.iter().chain(kind.b).copied();
    WOMEN.into_iter().chain(MEN).chain(KINDS.iter().flat_map(of))
}
