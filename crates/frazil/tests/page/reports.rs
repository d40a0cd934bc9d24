//! The pages that operations make, of the embedded model, in a real browser.

use std::path::PathBuf;

use frazil::ops::bench::{self, Variant, bench};
use frazil::page::Page;
use frazil::source::GraphOptions;

use super::browser::checked;

fn demo(name: &str) -> PathBuf {
    PathBuf::from(format!("{}/assets/demo/{name}", env!("CARGO_MANIFEST_DIR")))
}

fn look_at(page: &Page, texts: &[&str]) {
    let html = page.render();
    for text in texts {
        assert!(html.contains(text), "`{text}` is not in the page: {html}");
    }
    checked(&html, |found| assert_eq!(found.problems, ""));
}

#[test]
fn measured() {
    let variant = |name: &str, int8, instances| Variant {
        name: name.into(),
        int8,
        instances,
        threads: Some(1),
        ..Variant::default()
    };
    let options = bench::Options {
        batch: 2,
        seq: 16,
        lengths: None,
        sequences: 2,
        warmup: 1,
        iterations: Some(2),
        variants: vec![variant("f32", false, 1), variant("int8 & two", true, 2)],
        profile: true,
    };
    let graph = GraphOptions {
        head: Some(frazil::bert::Head::Encoder),
        config: Some(demo("bert_config.json")),
        ..GraphOptions::default()
    };
    let model = bench::Model::File(demo("bert_model.ckpt"), Box::new(graph));
    let report = bench(&model, &options).unwrap();
    assert_eq!(report.variants[1].speed.instance_median_ms.len(), 2);
    look_at(&report.page(), &["int8 &amp; two: each of the 2 instances", "Time by kind of step"]);
}
