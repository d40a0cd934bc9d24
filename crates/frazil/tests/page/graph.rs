//! The page of a graph: what is in it, and how it is operated, in a real browser.

use std::path::{Path, PathBuf};

use frazil::ops::graph::draw;
use frazil::source::GraphOptions;
use serde_json::Value;

use super::browser::load;

/// Goes about as a user does, and writes down what is to be seen.
const DRIVE: &str = r#"<script>
const seen = {};
seen.first = { items: state.items.length, nodes: nodes().length, views: data.views.length, title: $("details").textContent };
const press = (element, key) => element.dispatchEvent(new KeyboardEvent("keydown", { key, bubbles: true, cancelable: true }));
const type = (text) => { $("search").value = text; $("search").dispatchEvent(new Event("input")); };
// Finding.
type("LAYER_0/attention/self/softmax");
press($("search"), "Enter");
seen.found = { chosen: state.chosen.path, status: $("status").textContent, details: $("details").textContent, parents: [] };
for (let at = state.chosen.parent; at.parent; at = at.parent) seen.found.parents.push([at.path, at.open]);
const box = { x: state.x + (state.chosen.ax + state.chosen.w / 2) * state.k, y: state.y + (state.chosen.ay + state.chosen.h / 2) * state.k };
seen.found.centered = Math.hypot(box.x - canvas.clientWidth / 2, box.y - canvas.clientHeight / 2) < 150;
seen.found.picked = pick(box.x, box.y) === state.chosen;
// Folding, by the button beside it.
let scope = state.chosen.parent;
choose(scope);
const before = state.items.length, corner = state.x + scope.ax * state.k;
$("fold").click();
seen.folded = { open: scope.open, fewer: state.items.length < before, stays: Math.abs(state.x + scope.ax * state.k - corner) < 0.01, button: $("fold").textContent };
press(canvas, "Enter");
seen.unfolded = { open: scope.open, same: state.items.length === before };
// Zooming keeps what is under the pointer.
const at = (x) => (x - state.x) / state.k;
const held = at(300), k = state.k;
canvas.dispatchEvent(new WheelEvent("wheel", { deltaY: -200, clientX: canvas.getBoundingClientRect().left + 300, clientY: canvas.getBoundingClientRect().top + 100, cancelable: true }));
seen.zoomed = { closer: state.k > k, held: Math.abs(at(300) - held) < 0.01 };
// All of it: nothing overlaps, edges go down, only what is in the window is drawn.
$("weights").click();
$("unfold-all").click();
draw();
const leaves = state.items.filter((item) => item.node >= 0);
let overlaps = 0;
const rows = [...state.items].filter((item) => item.parent);
for (const item of rows) for (const other of item.parent.shown) {
  if (other === item) continue;
  if (item.ax < other.ax + other.w && other.ax < item.ax + item.w && item.ay < other.ay + other.h && other.ay < item.ay + item.h) overlaps += 1;
}
const inside = rows.every((item) => item.ax >= item.parent.ax - 0.01 && item.ay >= item.parent.ay - 0.01 && item.ax + item.w <= item.parent.ax + item.parent.w + 0.01 && item.ay + item.h <= item.parent.ay + item.parent.h + 0.01);
const down = state.lines.filter(([a, b]) => a.ay + a.h <= b.ay + 0.01).length;
// The least of several: what the machine does beside it does not count.
const timed = (work) => Math.min(...Array.from({ length: 12 }, () => { const start = performance.now(); work(); return performance.now() - start; }));
seen.time = { draw: timed(draw), relayout: timed(() => relayout()), pick: timed(() => pick(300, 300)), find: timed(() => find("softmax")) };
// From so far that everything is in the window.
const [near, west, north] = [state.k, state.x, state.y];
[state.k, state.x, state.y] = [0.02, 0, 0];
seen.time.far = timed(draw);
[state.k, state.x, state.y] = [near, west, north];
draw();
seen.all = { leaves: leaves.length, overlaps, inside, down: down / state.lines.length, drawn: state.drawn, lines: state.lines.length };
$("fold-all").click();
seen.none = { items: state.items.length };
// The other view.
$("view").value = String(data.views.length - 1);
$("view").dispatchEvent(new Event("change"));
// Folded, and with everything to be seen: what is read stands above what reads it.
const up = () => state.lines.filter(([a, b]) => a.ay + a.h > b.ay + 0.01).map(([a, b]) => a.path + " > " + b.path);
seen.up = up();
$("unfold-all").click();
seen.up = seen.up.concat(up());
// What is hidden is not counted, and what is code looks like it.
$("fold-all").click();
if ($("weights").checked) $("weights").click();
const counts = state.items.filter((item) => item.node < 0 && item.parent).map((item) => {
  const inside = [];
  each(item, (kid) => { if (kid.node >= 0 && !hidden(kid.node)) inside.push(kid); });
  return label(item) === item.name + " (" + inside.length + ")" && !/\d (Const|Variable|Identity)/.test(second(item));
});
seen.counted = [counts.length > 0, counts.every(Boolean)];
choose(null);
seen.ticks = $("details").textContent.includes("`");
seen.codes = $("details").querySelectorAll("code").length;
const search = $("search");
pen.font = getComputedStyle(search).font;
seen.fits = pen.measureText(search.placeholder).width < search.clientWidth - 20;
seen.other = { view: data.views[state.view].name, kinds: [...new Set(nodes().map((node) => node.k))].sort(), nodes: nodes().length };
const result = document.createElement("pre");
result.textContent = "SEEN" + JSON.stringify(seen) + "END";
document.body.append(result);
</script>"#;

fn drive(path: &Path) -> Option<(Value, frazil::ops::graph::Report)> {
    let drawing = draw(path, &GraphOptions::default()).unwrap();
    let html = drawing.html().replace("</body>", &format!("{DRIVE}</body>"));
    let (dom, log) = load(&html, false, 1400)?;
    let complaints: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
    assert!(complaints.is_empty(), "{complaints:?}");
    let start = dom.rfind("SEEN").unwrap_or_else(|| panic!("no result: {log}")) + 4;
    let end = start + dom[start..].find("END").expect("the result ends");
    let text = dom[start..end].replace("&amp;", "&").replace("&lt;", "<").replace("&gt;", ">");
    Some((serde_json::from_str(&text).unwrap(), drawing.report))
}

/// Milliseconds, with everything unfolded: a picture thirty times a second, and no waiting for anything.
const FLUID: [(&str, f64); 5] =
    [("draw", 33.0), ("far", 33.0), ("relayout", 250.0), ("pick", 33.0), ("find", 33.0)];

fn check(seen: &Value, report: &frazil::ops::graph::Report) {
    assert_eq!(seen["first"]["nodes"], report.nodes);
    assert!(seen["first"]["items"].as_u64().is_some_and(|items| items < 70), "{}", seen["first"]);
    assert_eq!(seen["first"]["views"], 2);
    let found = &seen["found"];
    let name = found["chosen"].as_str().unwrap();
    assert!(name.ends_with("layer_0/attention/self/Softmax"), "{name}");
    assert_eq!(found["status"], "1 found");
    assert!(found["parents"].as_array().unwrap().iter().all(|parent| parent[1] == true));
    assert_eq!((&found["centered"], &found["picked"]), (&true.into(), &true.into()));
    let details = found["details"].as_str().unwrap();
    for text in ["Softmax", "float32 [", "Part of", "Reads (1)", "Read by (1)"] {
        assert!(details.contains(text), "`{text}`: {details}");
    }
    let folded =
        serde_json::json!({"open": false, "fewer": true, "stays": true, "button": "Unfold"});
    assert_eq!(seen["folded"], folded);
    assert_eq!(seen["unfolded"], serde_json::json!({"open": true, "same": true}));
    assert_eq!(seen["zoomed"], serde_json::json!({"closer": true, "held": true}));
    let all = &seen["all"];
    assert_eq!(all["leaves"], report.nodes);
    assert_eq!((&all["overlaps"], &all["inside"]), (&0.into(), &true.into()), "{all}");
    assert!(all["down"].as_f64().is_some_and(|part| part > 0.8), "{all}");
    assert!(all["drawn"].as_u64() < all["leaves"].as_u64(), "{all}");
    for (what, most) in FLUID {
        assert!(seen["time"][what].as_f64().is_some_and(|ms| ms < most), "{}", seen["time"]);
    }
    assert!(seen["none"]["items"].as_u64() < Some(40), "{}", seen["none"]);
    assert_eq!(seen["up"], serde_json::json!([]));
    assert_eq!(seen["counted"], serde_json::json!([true, true]));
    assert_eq!((&seen["ticks"], &seen["fits"]), (&false.into(), &true.into()));
    assert!(seen["codes"].as_u64() > Some(0), "what it was read from is named as code");
    assert_eq!(seen["other"]["view"], "as it runs");
    assert_eq!(seen["other"]["nodes"], report.running_nodes.unwrap());
    assert!(seen["other"]["kinds"].as_array().unwrap().contains(&"fused".into()));
}

#[test]
fn found_folded_and_zoomed() {
    let path = format!("{}/tests/fixtures/tf1/bert_model.ckpt.meta", env!("CARGO_MANIFEST_DIR"));
    match drive(path.as_ref()) {
        Some((seen, report)) => {
            check(&seen, &report);
            assert_eq!(report.applied["attention"], 2);
        }
        None => eprintln!("SKIPPED: no Chromium is installed; the graph is not looked at"),
    }
}

/// What only trains, saves and restores is no trouble.
#[test]
fn what_is_not_needed_does_not_alarm() {
    let path = format!("{}/tests/fixtures/tf1/bert_model.ckpt.meta", env!("CARGO_MANIFEST_DIR"));
    let drawing = draw(path.as_ref(), &GraphOptions::default()).unwrap();
    assert!(drawing.report.foreign > 10);
    assert_eq!(drawing.report.foreign_needed, 0);
    let html = drawing.html();
    assert!(html.contains("nodes are for training and saving, not needed to run"));
    assert!(!html.contains("\"k\":\"foreign\"") && !html.contains("cannot run them"));
    // The same without its values, where the outputs that are wanted are not known.
    let folder = tempfile::tempdir().unwrap();
    let alone = folder.path().join("alone.meta");
    std::fs::copy(&path, &alone).unwrap();
    let report = draw(&alone, &GraphOptions::default()).unwrap().report;
    assert_eq!((report.foreign, report.foreign_needed), (drawing.report.foreign, 0));
}

/// On a telephone most of the window is the drawing's.
#[test]
fn a_small_window() {
    const LOOK: &str = r#"<script>
const box = canvas.getBoundingClientRect();
const result = document.createElement("pre");
result.id = "result";
result.textContent = "SEEN" + JSON.stringify({
  part: box.width * box.height / (innerWidth * innerHeight),
  wide: document.documentElement.scrollWidth > innerWidth,
  again: getComputedStyle($("details").querySelector("h2")).display,
  legend: $("legend").open,
}) + "END";
document.body.append(result);
</script>"#;
    let path = format!("{}/tests/fixtures/tf1/bert_model.ckpt.meta", env!("CARGO_MANIFEST_DIR"));
    let drawing = draw(path.as_ref(), &GraphOptions::default()).unwrap();
    let html = drawing.html().replace("</body>", &format!("{LOOK}</body>"));
    let Some((dom, log)) = load(&html, false, 390) else {
        eprintln!("SKIPPED: no Chromium is installed; the graph is not looked at");
        return;
    };
    let start = dom.rfind("SEEN{").unwrap_or_else(|| panic!("no result: {log}")) + 4;
    let end = start + dom[start..].find("END").expect("the result ends");
    let seen: Value = serde_json::from_str(&dom[start..end]).unwrap();
    assert!(seen["part"].as_f64().unwrap() > 0.4, "{seen}");
    let expected = (&false.into(), &"none".into(), &false.into());
    assert_eq!((&seen["wide"], &seen["again"], &seen["legend"]), expected);
}

#[test]
fn a_graph_of_thousands() {
    let shared = PathBuf::from(env!("CARGO_MANIFEST_DIR")).join("../../../shared/data/checkpoints");
    let path = shared.join("google_chinese_L-12_H-768_A-12/bert_model.ckpt.meta");
    if !path.exists() {
        eprintln!("SKIPPED: `{}` is not here", path.display());
        return;
    }
    match drive(&path) {
        Some((seen, report)) => {
            check(&seen, &report);
            assert!(report.nodes > 3000);
        }
        None => eprintln!("SKIPPED: no Chromium is installed; the graph is not looked at"),
    }
}

#[test]
fn a_hostile_name_stays_text() {
    let source = "</script><script>alert(1)</script><!--&\"'";
    let path =
        PathBuf::from(format!("{}/tests/fixtures/tf1/saved_model", env!("CARGO_MANIFEST_DIR")));
    let options = GraphOptions { tags: vec!["serve".into()], ..GraphOptions::default() };
    // A folder may be called anything; what it is called is in the title and in the data.
    let folder = tempfile::tempdir().unwrap();
    let strange = folder.path().join(source.replace('/', "|"));
    copy(&path, &strange);
    let html = draw(&strange, &options).unwrap().html().to_owned();
    assert_eq!(html.matches("<script").count(), 2, "the data and ours");
    assert_eq!(html.matches("</script>").count(), 2);
    assert!(!html.contains("<!--"));
}

fn copy(from: &Path, to: &Path) {
    std::fs::create_dir_all(to).unwrap();
    for entry in std::fs::read_dir(from).unwrap() {
        let entry = entry.unwrap();
        let target = to.join(entry.file_name());
        match entry.file_type().unwrap().is_dir() {
            true => copy(&entry.path(), &target),
            false => drop(std::fs::copy(entry.path(), target).unwrap()),
        }
    }
}
