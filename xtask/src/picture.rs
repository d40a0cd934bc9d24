//! `cargo xtask picture`: the picture in the README, a screenshot of the tour's report in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// What the picture may take in the repository.
const MOST_BYTES: u64 = 200_000;
/// As wide as a page of text.
const WIDTH: u32 = 1000;
/// Only the first sections, so that it ends below one; how high they are is said in an element.
const FIRST: &str = "<style>section:nth-of-type(n+4), footer { display: none; }</style><script>\
    document.body.append(`HEIGHT ${Math.ceil(document.querySelector(\".wide\").offsetHeight)} END`);</script>";
const BROWSERS: [&str; 3] =
    ["/usr/bin/chromium", "/usr/bin/chromium-browser", "/usr/bin/google-chrome"];

pub fn run(args: &[&str]) -> Result<()> {
    let program = match args {
        [] => crate::target().join("release/frazil"),
        ["--frazil", program] => PathBuf::from(program),
        _ => bail!("`picture` takes nothing but `--frazil PROGRAM`"),
    };
    let browser = BROWSERS.iter().map(Path::new).find(|path| path.exists());
    let browser = browser.context("no Chromium is installed")?;
    let folder = tempfile::tempdir()?;
    let tour = Command::new(&program)
        .arg("demo")
        .current_dir(&folder)
        .output()
        .with_context(|| format!("{}: build it first", program.display()))?;
    ensure!(tour.status.success(), "{}", String::from_utf8_lossy(&tour.stderr));
    let report = folder.path().join("frazil-demo/report.html");
    let html = std::fs::read_to_string(&report)?.replace("</body>", &format!("{FIRST}</body>"));
    std::fs::write(&report, &html)?;
    let picture = crate::root().join("docs/report.png");
    let look = |height: u32, what: &str| -> Result<String> {
        let output = Command::new(browser)
            .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", what])
            .arg("--blink-settings=preferredColorScheme=1")
            .arg(format!("--window-size={WIDTH},{height}"))
            .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
            .arg(format!("file://{}", report.display()))
            .output()?;
        ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
        Ok(String::from_utf8_lossy(&output.stdout).into_owned())
    };
    let page = look(WIDTH, "--dump-dom")?;
    let height = page.rsplit_once("HEIGHT ").and_then(|(_, rest)| rest.split_once(" END"));
    let height = height.and_then(|(height, _)| height.parse().ok());
    look(
        height.context("the page does not say how high it is")?,
        &format!("--screenshot={}", picture.display()),
    )?;
    let bytes = std::fs::metadata(&picture)?.len();
    ensure!(bytes <= MOST_BYTES, "the picture has {bytes} bytes, {MOST_BYTES} are allowed");
    println!("wrote {} ({bytes} bytes)", picture.display());
    Ok(())
}
