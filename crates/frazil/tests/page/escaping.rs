//! Whatever a text holds, it stays text.

use std::collections::BTreeSet;

use proptest::prelude::*;
use quick_xml::Reader;
use quick_xml::events::{BytesStart, Event};

use super::samples;

/// Names of elements, and of their attributes, in the page.
fn names(html: &str) -> BTreeSet<(String, String)> {
    let mut names = BTreeSet::new();
    let mut add = |tag: &BytesStart| {
        let element = tag.name().as_ref().to_owned();
        names.insert((element.clone(), String::new()));
        for attribute in tag.attributes() {
            let name = attribute.unwrap().key.as_ref().to_owned();
            names.insert((element.clone(), name));
        }
    };
    let mut reader = Reader::from_str(html);
    loop {
        match reader.read_event().expect("every tag is closed") {
            Event::Start(tag) | Event::Empty(tag) => add(&tag),
            Event::Text(_) | Event::End(_) | Event::DocType(_) | Event::GeneralRef(_) => {}
            Event::Eof => return names,
            other => panic!("a page has no {other:?}"),
        }
    }
}

/// Without the style and the script, which are the same in every page.
fn markup(html: &str) -> String {
    let cut = |text: &str, name: &str| {
        let (open, close) = (format!("<{name}>"), format!("</{name}>"));
        let start = text.find(&open).expect("a page has it");
        let end = text.rfind(&close).expect("it ends");
        format!("{}{}", &text[..start], &text[end + close.len()..])
    };
    cut(&cut(html, "style"), "script")
}

/// What a browser would show.
fn unescaped(html: &str) -> String {
    let entities = [("&lt;", "<"), ("&gt;", ">"), ("&quot;", "\""), ("&#39;", "'"), ("&amp;", "&")];
    entities.iter().fold(html.to_owned(), |text, (from, to)| text.replace(from, to))
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(24))]

    #[test]
    fn any_text_is_text(text in r#"([<>&"'/=! \-a-z]|script|onload|]]>|<!--|\PC|[\x00-\x1f]){0,40}"#) {
        let known = names(&markup(&samples::page(&samples::plain).render()));
        let html = markup(&samples::page(&|_| text.clone()).render());
        let found = names(&html);
        let strange: Vec<_> = found.difference(&known).collect();
        prop_assert!(strange.is_empty(), "{strange:?}");
        let shown: String = text
            .chars()
            .map(|c| if c.is_control() && c != '\n' && c != '\t' { '\u{fffd}' } else { c })
            .collect();
        prop_assert!(unescaped(&html).contains(&shown), "{shown:?} is not in the page");
    }
}
