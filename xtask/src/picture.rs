//! `cargo xtask picture`: the picture in the README, a screenshot of the tour's report in a real browser.

use std::path::{Path, PathBuf};
use std::process::Command;

use anyhow::{Context, Result, bail, ensure};

/// What the picture may take in the repository.
const MOST_BYTES: u64 = 200_000;
/// As wide as a page of text, as high as the figures and the first chart.
const WINDOW: &str = "--window-size=1000,860";
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
    let picture = crate::root().join("docs/report.png");
    let output = Command::new(browser)
        .args(["--headless", "--no-sandbox", "--disable-gpu", "--hide-scrollbars", WINDOW])
        .arg("--blink-settings=preferredColorScheme=1")
        .arg(format!("--user-data-dir={}", folder.path().join("profile").display()))
        .arg(format!("--screenshot={}", picture.display()))
        .arg(format!("file://{}", folder.path().join("frazil-demo/report.html").display()))
        .output()?;
    ensure!(output.status.success(), "{}", String::from_utf8_lossy(&output.stderr));
    let bytes = std::fs::metadata(&picture)?.len();
    ensure!(bytes <= MOST_BYTES, "the picture has {bytes} bytes, {MOST_BYTES} are allowed");
    println!("wrote {} ({bytes} bytes)", picture.display());
    Ok(())
}
