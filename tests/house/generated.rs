//! Blocks of documents that are generated from the program's tables, between two comments, with text by hand around.

use std::fs;
use std::path::Path;

/// Compares the block `name` of a document with the program. `RLAUNCH_BLESS=1` writes the block anew.
pub(crate) fn compare(document: &Path, name: &str, generated: &str) {
    let text = fs::read_to_string(document).unwrap();
    let (begin, end) = (format!("<!-- generated: {name} -->\n"), format!("<!-- end: {name} -->\n"));
    let (head, rest) = text.split_once(&begin).unwrap_or_else(|| panic!("{} lacks {begin}", document.display()));
    let (block, tail) = rest.split_once(&end).unwrap_or_else(|| panic!("{} lacks {end}", document.display()));
    let generated = format!("\n{}\n\n", generated.trim());
    if std::env::var_os("RLAUNCH_BLESS").is_some() {
        return fs::write(document, [head, &begin, &generated, &end, tail].concat()).unwrap();
    }
    assert!(
        block == generated,
        "the block `{name}` of {} differs from the program: RLAUNCH_BLESS=1 cargo test -p rlaunch --bin rlaunch --test house page_has",
        document.display()
    );
}
