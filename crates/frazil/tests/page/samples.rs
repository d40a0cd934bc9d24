//! A page for each element, with the awkward cases: long names, close points, missing values.
//! Every text goes through `t`, so that a test can put anything in its place.

use frazil::page::chart::{
    Axis, Bars, Better, Front, HeatMap, Line, Lines, Point, Range, Ranges, Rule, Scale, Scatter,
    Series, Strip, Strips,
};
use frazil::page::{Cell, Page, Section, Table, Tone};

type Text<'a> = &'a dyn Fn(&str) -> String;

/// As it is written.
pub fn plain(text: &str) -> String {
    text.to_owned()
}

/// Name and content of each.
pub fn all(t: Text) -> Vec<(&'static str, Section)> {
    vec![
        ("words", words(t)),
        ("figures", figures(t)),
        ("table", table(t)),
        ("long_table", long_table(t)),
        ("scatter", Section::new(t("Scatter")).chart(scatter(t))),
        ("crowd", Section::new(t("Crowd")).chart(crowd(t))),
        ("lines", Section::new(t("Lines")).chart(lines(t))),
        ("curve", Section::new(t("Curve")).chart(curve(t))),
        ("bars", Section::new(t("Bars")).chart(bars(t))),
        ("goals", Section::new(t("Goals")).chart(goals(t))),
        ("strips", Section::new(t("Histograms")).chart(strips(t))),
        ("heat", Section::new(t("Heat")).chart(heat(t))),
        ("wide_heat", Section::new(t("Wide heat")).chart(wide_heat(t))),
        ("ranges", Section::new(t("Ranges")).chart(ranges(t))),
        ("nothing", nothing(t)),
    ]
}

/// One page with everything.
pub fn page(t: Text) -> Page {
    let page = Page::new(t("Every element of a report"))
        .lead(t("What a page can hold, with names that are long and numbers that are missing."));
    all(t).into_iter().fold(page, |page, (_, section)| page.section(section)).foot(t("a foot"))
}

fn words(t: Text) -> Section {
    Section::new(t("Words"))
        .text(t("A paragraph: `a < b && b > c`, \"quoted\" and 'quoted'."))
        .heading(t("Heading"))
        .code(t("frazil bench model.ckpt-1000 --batch 8 \\\n  --compare f32,int8 > out.json"))
        .note(Tone::Plain, t("11 nodes were fused."))
        .note(Tone::Good, t("every output is within 1e-4"))
        .note(Tone::Warning, t("`--head` has no effect"))
        .note(Tone::Bad, t("they part at `bert/encoder/layer_3/attention/self/Softmax`"))
        .folded(Section::new(t("More")).text(t("What few want to read.")))
}

fn figures(t: Text) -> Section {
    Section::new(t("Figures"))
        .figure(t("parameters"), t("110,106,428"), t("in 206 variables"))
        .figure(t("file"), t("bert_model.ckpt.data-00000-of-00001"), "")
        .judged(t("F1"), t("88.31"), t("goal: 87.9"), Tone::Good)
        .judged(t("drop"), t("1.7%"), t("goal: 1%"), Tone::Bad)
}

fn table(t: Text) -> Section {
    let table = Table::new([t("name"), format!(">{}", t("ms")), t("verdict")])
        .caption(t("Three variants"))
        .row([Cell::code(t("f32")), 12.345.into(), t("slow").into()])
        .row([Cell::code(t("int8+avx512vnni")), 3.2.into(), Cell::from(t("met")).tone(Tone::Good)])
        .row([Cell::code(t("threads=2")), Cell::from(None::<f64>)])
        .row([t("size").into(), Cell::size(12_345_678), Cell::from(12_345usize)]);
    Section::new(t("Table")).table(table)
}

fn long_table(t: Text) -> Section {
    let mut table = Table::new([t("variable"), format!(">{}", t("bytes"))]);
    for layer in 0..40 {
        let name = format!("bert/encoder/layer_{layer}/attention/self/query/kernel");
        table.push([Cell::code(t(&name)), Cell::size(2_359_296 >> (layer % 7))]);
    }
    Section::new(t("Long table")).table(table)
}

fn scatter(t: Text) -> Scatter {
    let point = |x, y, label: &str| Point { x, y, label: t(label), ..Point::default() };
    Scatter {
        title: t("Accuracy against latency of all trials"),
        about: t("Five trials; trial 3 is the fastest that meets the goal."),
        x: Axis::new(t("latency of a batch"), t("ms")),
        y: Axis::new(t("F1"), ""),
        series: vec![t("tried"), t("evaluated in full")],
        points: vec![
            Point { series: 1, ..point(812.0, 88.4, "f32") },
            point(301.0, 86.2, "trial 1"),
            Point { detail: t("9 of 75 in f32"), ..point(342.0, 87.6, "trial 2") },
            Point { series: 1, chosen: true, ..point(355.0, 88.1, "trial 3") },
            point(501.0, 87.9, "trial 4"),
            point(f64::NAN, 87.9, "trial 5, failed"),
        ],
        front: Some(Front { name: t("Pareto front"), x: Better::Lower, y: Better::Higher }),
        rules: vec![Rule { value: 87.5, label: t("goal: 1% below f32") }],
    }
}

/// Points so close that few names find a place.
fn crowd(t: Text) -> Scatter {
    let point = |i: u32| Point {
        x: 10.0 + f64::from(i * 37 % 101) * 0.02,
        y: 0.9 + f64::from(i * 53 % 97) * 1e-4,
        label: t(&format!("trial {i}")),
        series: i as usize % 3,
        ..Point::default()
    };
    Scatter {
        title: t("A hundred trials"),
        x: Axis::new("ms", ""),
        y: Axis::new(t("accuracy"), ""),
        series: vec![t("basic"), t("random"), t("tpe")],
        points: (0..100).map(point).collect(),
        rules: vec![
            Rule { value: 0.905, label: t("goal") },
            Rule { value: 0.9051, label: t("another goal, just above") },
        ],
        ..Scatter::default()
    }
}

fn lines(t: Text) -> Lines {
    let curve = |name: &str, factor: f64| {
        Line::new(t(name), (4..10).map(|p| (2f64.powi(p), factor * 1.7f64.powi(p))))
    };
    Lines {
        title: t("How time grows with length"),
        about: t("Both grow by 1.7 with each doubling."),
        x: Axis { scale: Scale::Log2, ..Axis::new(t("length"), t("tokens")) },
        y: Axis::new(t("median"), t("ms")).log(),
        lines: vec![curve("f32", 3.0), curve("int8", 1.0), curve("scalar", 40.0)],
        rules: Vec::new(),
    }
}

/// Thousands of points, and some that are none.
fn curve(t: Text) -> Lines {
    let loss = |i: u32| match i {
        700 => f64::NAN,
        i => 11.0 * (1.0 / (1.0 + f64::from(i) / 900.0)) + f64::from(i * 7919 % 13) * 0.05,
    };
    Lines {
        title: t("Loss"),
        about: t("The loss falls from 11 to 2."),
        x: Axis::new(t("step"), ""),
        y: Axis::new(t("MLM + NSP"), "").from_zero(),
        lines: vec![Line::new(t("training"), (0..5000).map(|i| (f64::from(i), loss(i))))],
        rules: vec![Rule { value: 6.6, label: t("goal") }],
    }
}

fn bars(t: Text) -> Bars {
    let names = [
        "bert/embeddings/word_embeddings",
        "bert/encoder/layer_11/intermediate/dense/kernel/with/a/name/that/goes/on/and/on",
        "cls",
        "nothing",
    ];
    let sizes = [93_763_584.0, 9_437_184.0, 2_359_296.0, 0.0];
    let bars = names.iter().zip(sizes).map(|(name, size)| (t(name), size / 1e6));
    Bars {
        about: t("One variable dwarfs the rest."),
        ..Bars::of(t("Largest variables"), Axis::new(t("size"), t("MB")), bars)
    }
}

fn goals(t: Text) -> Bars {
    Bars {
        title: t("Speed-up over OpenVINO"),
        about: t("Above the goal everywhere but in W2."),
        value: Axis::new(t("times as fast"), "x"),
        groups: ["W1", "W2", "W3"].map(t).into(),
        series: vec![
            Series::new(t("frazil"), [Some(1.3), Some(1.02), Some(2.2)]),
            Series::new(t("ONNX Runtime"), [Some(0.8), None, Some(-0.4)]),
            Series::new(t("rten"), [Some(f64::NAN), Some(0.9)]),
        ],
        goals: vec![Some(1.1), Some(1.1), None],
    }
}

fn strips(t: Text) -> Strips {
    let lengths: Vec<f64> = (0..2000u32).map(|i| f64::from(i * 31 % 97 + i * 17 % 413)).collect();
    let mut before = Strip::of(t("lengths before packing"), &lengths, 64);
    before.marks.push((254.0, t("mean")));
    let after = Strip {
        name: t("after"),
        edges: vec![480.0, 496.0, 512.0],
        counts: vec![12.0, 900.0],
        ..Strip::default()
    };
    Strips {
        title: t("Lengths before and after packing"),
        about: t("Before, lengths are spread up to 512; after, nearly all rows are full."),
        x: Axis::new(t("length"), t("tokens")).from_zero(),
        strips: vec![before, after],
    }
}

fn heat(t: Text) -> HeatMap {
    let value = |row: usize, column: usize| match (row, column) {
        (2, 1) => None,
        (3, 3) => Some(f64::NAN),
        _ => Some(((row * 7 + column * 13) % 23) as f64 / 23.0 * 10f64.powi(row as i32 - 2)),
    };
    let rows = 0..5;
    let columns = ["query", "key", "value", "attention output", "intermediate"];
    HeatMap {
        title: t("Sensitivity by layer"),
        about: t("The first layers matter most."),
        value: Axis::new(t("mean squared error of the logits"), ""),
        rows: rows.clone().map(|row| t(&format!("layer {row}"))).collect(),
        columns: columns.map(t).into(),
        values: rows.map(|row| (0..columns.len()).map(|c| value(row, c)).collect()).collect(),
    }
}

/// Columns too narrow for their names.
fn wide_heat(t: Text) -> HeatMap {
    let value = |row: i32, column: i32| Some(10f64.powi(-((row * 5 + column * 3) % 9)));
    HeatMap {
        title: t("Sensitivity of every product"),
        value: Axis::new(t("error"), "").log(),
        rows: (0..3).map(|row| t(&format!("kind of product {row}"))).collect(),
        columns: (0..72).map(|column| t(&format!("layer_{column}/dense"))).collect(),
        values: (0..3).map(|row| (0..72).map(|column| value(row, column)).collect()).collect(),
        ..HeatMap::default()
    }
}

fn ranges(t: Text) -> Ranges {
    let range = |group: &str, name: &str, full, kept, note: &str| Range {
        group: t(group),
        name: t(name),
        full,
        kept,
        note: t(note),
    };
    Ranges {
        title: t("Ranges of activations"),
        about: t("Layer 1's output has the widest range."),
        value: Axis::new(t("value"), ""),
        ranges: vec![
            range("layer 0", "query", (-3.1, 4.0), (-3.1, 4.0), ""),
            range("layer 0", "output", (-18.0, 12.0), (-9.5, 8.0), "0.31% clipped"),
            range("layer 1", "query", (-2.0, 2.5), (-2.0, 2.5), ""),
            range("layer 1", "output", (-42.0, 3.0), (-20.0, 3.0), "0.05% clipped"),
            range("layer 1", "broken", (f64::NAN, 3.0), (0.0, 0.0), "no numbers"),
        ],
    }
}

/// Every chart without anything in it.
fn nothing(t: Text) -> Section {
    Section::new(t("Nothing"))
        .chart(Scatter { title: t("no points"), ..Scatter::default() })
        .chart(Lines { title: t("no lines"), ..Lines::default() })
        .chart(Bars { title: t("no bars"), ..Bars::default() })
        .chart(Strips { title: t("no strips"), ..Strips::default() })
        .chart(HeatMap { title: t("no cells"), ..HeatMap::default() })
        .chart(Ranges { title: t("no ranges"), ..Ranges::default() })
}
