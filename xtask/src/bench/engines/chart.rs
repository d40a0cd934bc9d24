//! Small charts as SVG text: bars in groups, and curves on logarithmic axes. Nothing but lines,
//! rectangles and words; readable in a browser, in light and in dark.

use std::fmt::Write;

const COLOURS: [&str; 9] = [
    "#d1495b", "#30638e", "#edae49", "#00798c", "#7b5ea7", "#5b8c5a", "#8d6a4f", "#9aa0a6",
    "#444444",
];
const STYLE: &str = "<style>text{font:12px sans-serif;fill:#333}.t{font-size:14px;font-weight:bold}\
.g{stroke:#bbb;stroke-width:1}.m{stroke:#111;stroke-width:2}.l{fill:none;stroke-width:2}rect.b{fill:#fff}\
@media(prefers-color-scheme:dark){text{fill:#ddd}rect.b{fill:#1e1e1e}.g{stroke:#555}.m{stroke:#eee}}</style>";

/// Bars: a group for each workload, a bar for each engine.
pub struct Bars {
    /// Above it.
    pub title: String,
    /// Names of the groups.
    pub groups: Vec<String>,
    /// What the first bar of each group is to reach.
    pub goals: Vec<Option<f64>>,
    /// Names of the bars, and their heights in each group; `None` where there is none.
    pub bars: Vec<(String, Vec<Option<f64>>)>,
}

/// Curves over one axis.
pub struct Curves {
    /// Above it.
    pub title: String,
    /// What x is.
    pub x: String,
    /// What y is.
    pub y: String,
    /// Names and points.
    pub lines: Vec<(String, Vec<(f64, f64)>)>,
}

/// Panels below each other.
pub fn bars(panels: &[Bars]) -> String {
    let (width, height) = (960.0, 300.0);
    let mut body = String::new();
    for (i, panel) in panels.iter().enumerate() {
        let top = i as f64 * height;
        bar_panel(&mut body, panel, top, width, height);
    }
    page(width, height * panels.len() as f64, &body)
}

/// Panels in two columns.
pub fn curves(panels: &[Curves]) -> String {
    let (width, height) = (480.0, 340.0);
    let mut body = String::new();
    for (i, panel) in panels.iter().enumerate() {
        let (left, top) = ((i % 2) as f64 * width, (i / 2) as f64 * height);
        curve_panel(&mut body, panel, (left, top), width, height);
    }
    page(width * 2.0, height * panels.len().div_ceil(2) as f64, &body)
}

fn page(width: f64, height: f64, body: &str) -> String {
    format!(
        "<svg xmlns=\"http://www.w3.org/2000/svg\" width=\"{width}\" height=\"{height}\" \
         viewBox=\"0 0 {width} {height}\">\n{STYLE}\n\
         <rect class=\"b\" width=\"{width}\" height=\"{height}\"/>\n{body}</svg>\n"
    )
}

fn bar_panel(out: &mut String, panel: &Bars, top: f64, width: f64, height: f64) {
    let (left, right, above, below) = (50.0, 10.0, 50.0, 30.0);
    let heights = panel.bars.iter().map(|(_, heights)| heights);
    let values =
        || heights.clone().chain([&panel.goals]).flat_map(|heights| heights.iter().flatten());
    let most = values().copied().fold(1.0, f64::max) * 1.1;
    let bottom = top + height - below;
    let scale = (height - above - below) / most;
    let y = |value: f64| bottom - scale * value;
    text(out, (left, top + 18.0), "t", "start", &panel.title);
    legend(out, panel.bars.iter().map(|(name, _)| name.as_str()), (left, top + 36.0));
    for value in ticks(most) {
        line(out, (left, y(value)), (width - right, y(value)));
        text(out, (left - 6.0, y(value) + 4.0), "", "end", &short(value));
    }
    let group = (width - left - right) / panel.groups.len().max(1) as f64;
    let bar = group * 0.85 / panel.bars.len().max(1) as f64;
    for (g, name) in panel.groups.iter().enumerate() {
        let start = left + g as f64 * group + group * 0.075;
        text(out, (start + group * 0.425, bottom + 18.0), "", "middle", name);
        for (b, (engine, heights)) in panel.bars.iter().enumerate() {
            let Some(value) = heights.get(g).copied().flatten() else { continue };
            let (x, y) = (start + b as f64 * bar, y(value));
            let _ = writeln!(
                out,
                "<rect x=\"{x:.1}\" y=\"{y:.1}\" width=\"{:.1}\" height=\"{:.1}\" fill=\"{}\">\
                 <title>{} {}: {value:.2}</title></rect>",
                bar * 0.92,
                bottom - y,
                colour(b),
                escape(engine),
                escape(name)
            );
            // The figure of ours; the others' would run into each other.
            if b == 0 {
                let above = panel.goals.get(g).copied().flatten().unwrap_or(0.0);
                let at = (x + bar * 0.46, y.min(bottom - scale * above) - 5.0);
                text(out, at, "", "middle", &format!("{value:.2}"));
            }
        }
        if let Some(goal) = panel.goals.get(g).copied().flatten() {
            let (x, y) = (start - bar * 0.1, y(goal));
            let _ = writeln!(
                out,
                "<line class=\"m\" x1=\"{x:.1}\" y1=\"{y:.1}\" x2=\"{:.1}\" y2=\"{y:.1}\"/>",
                x + bar * 1.12
            );
        }
    }
}

fn curve_panel(out: &mut String, panel: &Curves, at: (f64, f64), width: f64, height: f64) {
    let (left, right, top, bottom) =
        (at.0 + 60.0, at.0 + width - 20.0, at.1 + 56.0, at.1 + height - 44.0);
    let points = || panel.lines.iter().flat_map(|(_, points)| points.iter().copied());
    let bounds = |values: Vec<f64>| {
        let least = values.iter().copied().fold(f64::INFINITY, f64::min);
        let most = values.iter().copied().fold(0.0, f64::max);
        // Whole powers of two, and never an empty range.
        (least.log2().floor(), most.log2().ceil().max(least.log2().floor() + 1.0))
    };
    text(out, (left, at.1 + 18.0), "t", "start", &panel.title);
    legend(out, panel.lines.iter().map(|(name, _)| name.as_str()), (left, at.1 + 38.0));
    text(out, (f64::midpoint(left, right), bottom + 34.0), "", "middle", &panel.x);
    text(out, (left - 50.0, top - 4.0), "", "start", &panel.y);
    if points().next().is_none() {
        return;
    }
    let (x0, x1) = bounds(points().map(|p| p.0).collect());
    let (y0, y1) = bounds(points().map(|p| p.1).collect());
    let x = |value: f64| left + (right - left) * (value.log2() - x0) / (x1 - x0);
    let y = |value: f64| bottom - (bottom - top) * (value.log2() - y0) / (y1 - y0);
    for power in (x0 as i32)..=(x1 as i32) {
        let value = f64::from(power).exp2();
        line(out, (x(value), top), (x(value), bottom));
        text(out, (x(value), bottom + 16.0), "", "middle", &short(value));
    }
    let step = (((y1 - y0) / 8.0).ceil() as usize).max(1);
    for power in ((y0 as i32)..=(y1 as i32)).step_by(step) {
        let value = f64::from(power).exp2();
        line(out, (left, y(value)), (right, y(value)));
        text(out, (left - 6.0, y(value) + 4.0), "", "end", &short(value));
    }
    for (i, (_, points)) in panel.lines.iter().enumerate() {
        let path: Vec<String> =
            points.iter().map(|p| format!("{:.1},{:.1}", x(p.0), y(p.1))).collect();
        let _ = writeln!(
            out,
            "<polyline class=\"l\" stroke=\"{}\" points=\"{}\"/>",
            colour(i),
            path.join(" ")
        );
    }
}

fn legend<'a>(out: &mut String, names: impl Iterator<Item = &'a str>, (x, y): (f64, f64)) {
    let mut x = x;
    for (i, name) in names.enumerate() {
        let _ = writeln!(
            out,
            "<rect x=\"{x:.1}\" y=\"{:.1}\" width=\"10\" height=\"10\" fill=\"{}\"/>",
            y - 9.0,
            colour(i)
        );
        text(out, (x + 14.0, y), "", "start", name);
        x += 26.0 + 6.2 * name.len() as f64;
    }
}

fn line(out: &mut String, (x1, y1): (f64, f64), (x2, y2): (f64, f64)) {
    let _ = writeln!(
        out,
        "<line class=\"g\" x1=\"{x1:.1}\" y1=\"{y1:.1}\" x2=\"{x2:.1}\" y2=\"{y2:.1}\"/>"
    );
}

fn text(out: &mut String, (x, y): (f64, f64), class: &str, anchor: &str, words: &str) {
    let words = escape(words);
    let _ = writeln!(
        out,
        "<text class=\"{class}\" x=\"{x:.1}\" y=\"{y:.1}\" text-anchor=\"{anchor}\">{words}</text>"
    );
}

fn colour(i: usize) -> &'static str {
    COLOURS[i % COLOURS.len()]
}

fn escape(words: &str) -> String {
    words.replace('&', "&amp;").replace('<', "&lt;").replace('>', "&gt;")
}

/// About five round values up to `most`.
fn ticks(most: f64) -> Vec<f64> {
    let step = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 20.0, 50.0, 100.0]
        .into_iter()
        .find(|step| most / step <= 6.0)
        .unwrap_or(most / 5.0);
    (0..=(most / step) as usize).map(|i| i as f64 * step).collect()
}

fn short(value: f64) -> String {
    match value {
        v if v >= 10.0 || v == v.round() => format!("{v:.0}"),
        v if v >= 0.1 => format!("{v:.2}").trim_end_matches('0').to_owned(),
        v => format!("{v:.3}"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bars_stand_on_their_panel() {
        let panel = Bars {
            title: "f32 & more".into(),
            groups: vec!["W1".into(), "W2".into()],
            goals: vec![Some(1.1), None],
            bars: vec![
                ("frazil".into(), vec![Some(1.2), Some(2.0)]),
                ("rten".into(), vec![None, Some(0.5)]),
            ],
        };
        let svg = bars(&[panel]);
        assert!(svg.starts_with("<svg") && svg.ends_with("</svg>\n"));
        assert_eq!(svg.matches("<title>").count(), 3);
        assert_eq!(svg.matches("class=\"m\"").count(), 1);
        assert!(svg.contains("f32 &amp; more") && !svg.contains("NaN"));
    }

    #[test]
    fn curves_of_anything_are_drawn() {
        let panel = |lines| Curves { title: "t".into(), x: "x".into(), y: "ms".into(), lines };
        let one = vec![("a".to_owned(), vec![(1.0, 5.0)])];
        let two = vec![("a".to_owned(), vec![(16.0, 5.0), (512.0, 300.0)])];
        let svg = curves(&[panel(one), panel(two), panel(Vec::new())]);
        assert_eq!(svg.matches("<polyline").count(), 2);
        assert!(!svg.contains("NaN") && !svg.contains("inf"), "{svg}");
    }
}
