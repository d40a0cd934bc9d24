//! Each element, as it is written.

use frazil::page::{Chart, Page, Section, Table, chart::Bars};
use snapbox::{Data, assert_data_eq};

use super::samples;

fn kept(name: &str) -> Data {
    let path = format!("{}/tests/page/golden/{name}", env!("CARGO_MANIFEST_DIR"));
    Data::read_from(path.as_ref(), None).raw()
}

/// What stands between the tags of the page that every page has.
fn content(section: Section) -> String {
    let page = Page::new("t").section(section).render();
    let start = page.find("<section").expect("a page has a section");
    let end = page.find("</main>").expect("a page has an end");
    page[start..end].to_owned()
}

#[test]
fn elements() {
    for (name, section) in samples::all(&samples::plain) {
        let html = content(section);
        assert!(!html.contains("NaN") && !html.contains("=\"inf"), "{name}: {html}");
        // Those show nothing that the others do not, in many more lines.
        if !["curve", "wide_heat"].contains(&name) {
            assert_data_eq!(html, kept(&format!("{name}.html")));
        }
    }
}

#[test]
fn frame() {
    let section = |name: &str| Section::new(name).text("text");
    let page = Page::new("A <title>").lead("What it is.").lead("What came of it.");
    let page = page.section(section("One")).section(section("Two")).section(section("Three"));
    let page = page.section(Section::new("Empty").table(Table::new(["a"]))).foot("a foot");
    let html = page.render().replace(env!("CARGO_PKG_VERSION"), "VERSION");
    // The style and the script are files of their own.
    let start = html.find("<style>").expect("a style");
    let end = html.find("</style>").expect("its end");
    let (head, rest) = (&html[..start], &html[end..]);
    let script = rest.find("<script>").expect("a script");
    assert_data_eq!(format!("{head}{}", &rest[..script]), kept("frame.html"));
    assert!(html.ends_with("</script>\n</body>\n</html>\n"));
    assert_eq!(page.render(), page.render());
}

#[test]
fn written_whole_or_not_at_all() {
    let folder = tempfile::tempdir().unwrap();
    let path = folder.path().join("report.html");
    let page = Page::new("t");
    page.write(&path).unwrap();
    assert_eq!(std::fs::read_to_string(&path).unwrap(), page.render());
    let error = page.write(folder.path().join("no/such/folder.html")).unwrap_err();
    assert!(error.to_string().contains("folder.html"), "{error}");
}

#[test]
fn charts_in_a_file_of_their_own() {
    let bars = |name: &str| {
        Bars::of(name, Default::default(), [("a & b".to_owned(), 1.5), ("c".to_owned(), 3.0)])
    };
    let svg = Chart::file([bars("first"), bars("second")]);
    let style = svg.find("</style>").expect("a style");
    assert!(svg.starts_with("<svg xmlns="));
    assert_data_eq!(&svg[style..], kept("file.svg"));
}
