//! The page in a real browser: nothing complains, nothing is fetched, no text covers another.

use std::path::Path;
use std::process::Command;

use super::samples;

/// Looks for texts of one chart that cover each other, or that stick out of it, and says so in an element
/// that the browser prints with the rest of the page.
const CHECK: &str = r#"<script>
const problems = [];
document.querySelectorAll("details").forEach((d) => { d.open = true; });
for (const svg of document.querySelectorAll("svg.chart")) {
  const title = svg.querySelector("title").textContent;
  const frame = svg.getBoundingClientRect();
  const texts = [...svg.querySelectorAll("text")].map((text) => {
    const box = text.getBoundingClientRect();
    return { words: text.firstChild.nodeValue, l: box.left + 0.5, r: box.right - 0.5, t: box.top + 1, b: box.bottom - 1 };
  });
  texts.forEach((a, i) => {
    if (a.l < frame.left - 1.5 || a.r > frame.right + 1.5 || a.t < frame.top - 1.5 || a.b > frame.bottom + 1.5)
      problems.push(title + ": `" + a.words + "` sticks out");
    for (const b of texts.slice(i + 1))
      if (a.l < b.r && b.l < a.r && a.t < b.b && b.t < a.b)
        problems.push(title + ": `" + a.words + "` covers `" + b.words + "`");
  });
}
if (document.documentElement.scrollWidth > innerWidth) problems.push("the page is wider than the window");
const room = document.querySelector("main").getBoundingClientRect();
for (const svg of document.querySelectorAll("figure svg.chart")) {
  const box = svg.getBoundingClientRect();
  const title = svg.querySelector("title").textContent;
  if (box.width === 0) continue;
  if (box.left < room.left - 0.5 || box.right > room.right + 0.5) problems.push(title + ": is cut off");
  if (parseFloat(getComputedStyle(svg).fontSize) * box.width / svg.viewBox.baseVal.width < 9) problems.push(title + ": too small to be read");
}
for (const figure of document.querySelectorAll("figure:has(svg)"))
  if ([...figure.querySelectorAll("svg")].filter((svg) => svg.getBoundingClientRect().width > 0).length !== 1)
    problems.push(figure.textContent.slice(0, 40) + ": is not there once");
// A table may be wider than a telephone, but not than a page.
for (const box of document.querySelectorAll(".scroll"))
  if (innerWidth >= 1200 && box.scrollWidth > box.clientWidth) problems.push("a table of " + box.scrollWidth + ": " + box.textContent.slice(0, 80));
for (const button of document.querySelectorAll("th button")) if (button.textContent === "") problems.push("a sort mark without a name");
for (const cell of document.querySelectorAll("td, p, dd"))
  if ((cell.textContent.match(/`/g) ?? []).length > 1) problems.push("raw backticks: " + cell.textContent);
const sortable = document.querySelectorAll("th button").length;
const filters = document.querySelectorAll(".filter").length;
const copies = document.querySelectorAll(".copy").length;
const result = document.createElement("pre");
result.id = "result";
result.textContent = "CHECKED sortable=" + (sortable > 0) + " filters=" + (filters > 0) + " copies=" + copies + "\n" + problems.join("\n") + "\nEND";
document.body.append(result);
</script>"#;

/// The narrowest window that a browser opens.
const LEAST: u32 = 500;

/// A page in a frame, as it would be in a window of that width. What was found in it is told outside.
fn framed(html: &str, width: u32) -> String {
    let html = html.replace('&', "&amp;").replace('"', "&quot;");
    format!(
        "<!DOCTYPE html><iframe width=\"{width}\" height=\"844\" style=\"border:0\" srcdoc=\"{html}\">\
         </iframe><script>addEventListener(\"load\", () => document.body.append(\
         frames[0].document.getElementById(\"result\").cloneNode(true)));</script>"
    )
}

/// What the browser made of a page, and what it had to say.
pub fn load(html: &str, dark: bool, width: u32) -> Option<(String, String)> {
    let folder = tempfile::tempdir().unwrap();
    let file = folder.path().join("page.html");
    let html = if width < LEAST { framed(html, width) } else { html.to_owned() };
    std::fs::write(&file, html).unwrap();
    let browser = ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"]
        .into_iter()
        .find(|path| Path::new(path).exists())?;
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--no-first-run", "--disable-sync"])
        .args(["--disable-background-networking", "--disable-component-update", "--disable-quic"])
        .args(["--enable-logging=stderr", "--log-level=0", "--dump-dom"])
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--blink-settings=preferredColorScheme={}", u8::from(!dark)))
        .arg(format!("--window-size={width},1000"))
        .arg(format!("file://{}", file.display()))
        .output()
        .unwrap();
    let text = |bytes: Vec<u8>| String::from_utf8_lossy(&bytes).into_owned();
    Some((text(output.stdout), text(output.stderr)))
}

/// What the check found in a page.
pub struct Found {
    /// What the script adds to it.
    pub added: String,
    /// Lines.
    pub problems: String,
}

/// Looks at a page in light and wide, in dark and narrow, and as on a telephone; where there is a browser.
#[allow(clippy::print_stderr, reason = "a test that is skipped says so")]
pub fn checked(html: &str, look: impl Fn(Found)) {
    let html = html.replace("</body>", &format!("{CHECK}</body>"));
    for (dark, width) in [(false, 1200), (true, 700), (false, 390)] {
        let Some((dom, log)) = load(&html, dark, width) else {
            eprintln!("SKIPPED: no Chromium is installed; pages are not looked at");
            return;
        };
        let complaints: Vec<&str> = log.lines().filter(|line| line.contains("CONSOLE")).collect();
        assert!(complaints.is_empty(), "{complaints:?}");
        // The script itself stands before what it found.
        let start = dom.rfind("CHECKED ").unwrap_or_else(|| panic!("no result: {log}")) + 8;
        let end = start + dom[start..].find("END").expect("the result ends");
        let (added, problems) = dom[start..end].split_once('\n').expect("two lines");
        look(Found { added: added.to_owned(), problems: problems.trim().to_owned() });
    }
}

#[test]
fn a_page_in_chromium() {
    checked(&samples::page(&samples::plain).render(), |found| {
        assert_eq!(found.problems, "");
        assert_eq!(found.added, "sortable=true filters=true copies=1");
    });
}
