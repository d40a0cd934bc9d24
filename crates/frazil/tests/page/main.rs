//! The pages of reports: each element against a file that is kept, every text escaped, and all of
//! it in a real browser.
//!
//! `SNAPSHOTS=overwrite cargo test -p frazil --test page` writes the kept files anew.

#![allow(clippy::unwrap_used, reason = "a test may fail loudly")]

mod browser;
mod escaping;
mod golden;
mod graph;
mod reports;
mod samples;
