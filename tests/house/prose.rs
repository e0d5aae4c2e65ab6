//! Prose of documents, comments and messages, measured against goals: sentences are short, and name their subject.
//!
//! Files that missed a goal when the goals were set are on lists beside this file. A list may only shrink.

use crate::files::{sources_in, without_tests};
use crate::root;
use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};

/// Words in a sentence, on average.
const MEAN_WORDS: f64 = 15.0;

/// A sentence with more words than this is long.
const LONG: usize = 30;

/// Long sentences among 100.
const LONG_SHARE: f64 = 4.0;

/// Ruled-out words among 10,000.
const RULED_OUT_SHARE: f64 = 3.0;

/// Figures of a text.
#[derive(Default, Debug)]
struct Prose {
    sentences: usize,
    words: usize,
    long: usize,
    ruled_out: usize,
}

impl Prose {
    fn add(&mut self, text: &str) {
        for paragraph in paragraphs(&without_code_and_links(text)) {
            for sentence in sentences(&paragraph) {
                let words: Vec<String> = words(sentence);
                self.ruled_out += ruled_out(&words);
                if words.len() >= 3 {
                    self.sentences += 1;
                    self.words += words.len();
                    self.long += usize::from(words.len() > LONG);
                }
            }
        }
    }

    /// The goals that these figures miss, in words.
    fn misses(&self) -> Vec<String> {
        let share = |part: usize, of: usize, scale: f64| scale * part as f64 / of.max(1) as f64;
        let figures = [
            ("words per sentence", share(self.words, self.sentences, 1.0), MEAN_WORDS),
            ("% of sentences above 30 words", share(self.long, self.sentences, 100.0), LONG_SHARE),
            ("ruled-out words per 10,000", share(self.ruled_out, self.words, 1e4), RULED_OUT_SHARE),
        ];
        figures
            .iter()
            .filter(|(_, figure, goal)| figure > goal)
            .map(|(name, figure, goal)| format!("{figure:.1} {name} (goal {goal})"))
            .collect()
    }
}

fn prose(texts: impl IntoIterator<Item = String>) -> Prose {
    let mut prose = Prose::default();
    for text in texts {
        prose.add(&text);
    }
    prose
}

/// The text with one word in the place of each code span, and without the targets of links.
fn without_code_and_links(text: &str) -> String {
    let mut plain = String::new();
    for (index, part) in text.split('`').enumerate() {
        plain.push_str(if index % 2 == 0 { part } else { "X" });
    }
    let mut out = String::new();
    let mut rest = plain.as_str();
    while let Some((before, target)) = rest.split_once("](") {
        out.push_str(before);
        rest = target.split_once(')').map_or("", |(_, after)| after);
    }
    out + rest
}

fn paragraphs(text: &str) -> Vec<String> {
    let mut found = vec![String::new()];
    for line in text.lines() {
        match (line.trim(), found.last_mut()) {
            ("", _) => found.push(String::new()),
            (line, Some(last)) => {
                last.push_str(line);
                last.push(' ');
            }
            (_, None) => {}
        }
    }
    found
}

/// A sentence closes with punctuation before a space and a capital letter.
fn sentences(paragraph: &str) -> Vec<&str> {
    let mut found = Vec::new();
    let mut begin = 0;
    for (at, c) in paragraph.char_indices() {
        let rest = &paragraph[at + c.len_utf8()..];
        let next = rest.trim_start();
        let opens = next.starts_with(|c: char| c.is_ascii_uppercase() || "\"(".contains(c));
        if ".!?:;".contains(c) && next.len() < rest.len() && opens {
            found.push(&paragraph[begin..at]);
            begin = paragraph.len() - next.len();
        }
    }
    found.push(&paragraph[begin..]);
    found
}

fn words(sentence: &str) -> Vec<String> {
    sentence
        .split(|c: char| !(c.is_ascii_alphanumeric() || "_'’-".contains(c)))
        .filter(|word| !word.is_empty())
        .map(str::to_lowercase)
        .collect()
}

/// Number of ruled-out words and phrases in a sentence: unclear verbs, pronouns in the place of a noun, private words.
fn ruled_out(words: &[String]) -> usize {
    let at = |index: usize| words.get(index).map_or("", String::as_str);
    let opening = match (at(0), at(1)) {
        ("who" | "what" | "whoever", second) => !second.is_empty(),
        ("one" | "those", "that") | ("so", "is" | "are" | "does") | ("nor", "does") => true,
        _ => false,
    };
    let phrase = |index: usize| {
        matches!(
            (at(index), at(index + 1), at(index + 2)),
            ("nobody" | "somebody" | "anybody" | "whoever", _, _)
                | ("is" | "are" | "was" | "were" | "be" | "been", "told" | "said", _)
                | ("says", "so", _)
                | ("told", "of", _)
                | ("sent", "home", _)
                | ("goes", "on", _)
                | ("stand" | "stands", "still", _)
                | ("not", "heard", "of")
                | ("behind", "the" | "a" | "it" | "that" | "its", _)
        )
    };
    usize::from(opening) + (0..words.len()).filter(|index| phrase(*index)).count()
}

/// Files whose prose misses a goal, on a list that may only shrink: a line of the list that has reached the goals must go.
fn compare_with_list(list: &str, missed: &[(PathBuf, Vec<String>)]) {
    let path = root().join("tests/house").join(list);
    let names: BTreeSet<String> =
        missed.iter().map(|(path, _)| path.strip_prefix(root()).unwrap().to_string_lossy().into_owned()).collect();
    if std::env::var_os("RLAUNCH_BLESS").is_some() {
        let lines: String = names.iter().map(|name| format!("{name}\n")).collect();
        fs::write(
            &path,
            format!("# Files whose prose still misses a goal. A file may leave this list, and none may come.\n{lines}"),
        )
        .unwrap();
    }
    let text = fs::read_to_string(&path).unwrap_or_default();
    let allowed: BTreeSet<String> = text.lines().filter(|line| !line.starts_with('#')).map(str::to_owned).collect();
    let new: Vec<_> = missed
        .iter()
        .filter(|(path, _)| !allowed.contains(path.strip_prefix(root()).unwrap().to_string_lossy().as_ref()))
        .collect();
    assert!(new.is_empty(), "the prose of these files misses the goals: {new:#?}");
    let reached: Vec<_> = allowed.difference(&names).collect();
    assert!(reached.is_empty(), "these files reach the goals now: remove them from {}: {reached:#?}", path.display());
}

fn missed(files: impl IntoIterator<Item = PathBuf>, text: impl Fn(&str) -> String) -> Vec<(PathBuf, Vec<String>)> {
    files
        .into_iter()
        .map(|path| (prose([text(&fs::read_to_string(&path).unwrap())]).misses(), path))
        .filter(|(misses, _)| !misses.is_empty())
        .map(|(misses, path)| (path, misses))
        .collect()
}

fn comments(text: &str) -> String {
    let comment = |line: &str| {
        let line = line.trim_start();
        let rest = line.strip_prefix("///").or_else(|| line.strip_prefix("//!"));
        rest.unwrap_or_default().to_owned()
    };
    text.lines().map(comment).collect::<Vec<_>>().join("\n")
}

/// String literals of five words and more, without those of inline tests.
fn messages(text: &str) -> String {
    let mut found = literals(text);
    found.retain(|text| text.matches(' ').count() >= 4);
    // A line of what to try is no part of the sentence above it.
    found.join("\n").replace('\n', "\n\n")
}

/// String literals, without those of inline tests.
pub(crate) fn literals(text: &str) -> Vec<String> {
    // A quotation mark as a character opens no literal.
    let code = without_tests(text).replace("'\"'", "' '");
    let mut found = Vec::new();
    let mut literal: Option<String> = None;
    let mut chars = code.chars();
    while let Some(c) = chars.next() {
        match (c, &mut literal) {
            ('\\', Some(text)) => match chars.next() {
                Some('n') => text.push('\n'),
                escaped => text.extend(escaped.filter(|c| !c.is_whitespace())),
            },
            ('"', Some(_)) => found.extend(literal.take()),
            ('"', None) => literal = Some(String::new()),
            (c, Some(text)) => text.push(c),
            (_, None) => {}
        }
    }
    found
}

fn document(text: &str) -> String {
    let mut fenced = false;
    let line = |line: &str| {
        let trimmed = line.trim_start();
        if trimmed.starts_with("```") {
            fenced = !fenced;
            return String::new();
        }
        if fenced || trimmed.starts_with(['|', '#', '<', '!']) {
            return String::new();
        }
        let numbered = trimmed.starts_with(|c: char| c.is_ascii_digit());
        let number = trimmed.trim_start_matches(|c: char| c.is_ascii_digit()).strip_prefix(". ").filter(|_| numbered);
        match trimmed.strip_prefix("- ").or_else(|| trimmed.strip_prefix("* ")).or(number) {
            Some(item) => format!("\n{item}"),
            None => line.to_owned(),
        }
    };
    text.lines().map(line).collect::<Vec<_>>().join("\n")
}

pub(crate) fn documents(dir: &Path) -> Vec<PathBuf> {
    let mut found = Vec::new();
    for entry in fs::read_dir(dir).unwrap() {
        let path = entry.unwrap().path();
        if path.is_dir() && dir != root() {
            found.extend(documents(&path));
        } else if path.extension().is_some_and(|extension| extension == "md") {
            found.push(path);
        }
    }
    found
}

#[test]
fn prose_of_comments_reaches_the_goals() {
    let roots = ["common", "agent", "launcher", "tests"].map(|name| root().join(name));
    let files = roots.iter().flat_map(|dir| sources_in(dir));
    compare_with_list("prose-comments.txt", &missed(files, comments));
}

#[test]
fn prose_of_messages_reaches_the_goals() {
    let roots = ["launcher/src/view", "launcher/src/cli"].map(|name| root().join(name));
    let files = roots.iter().flat_map(|dir| sources_in(dir));
    compare_with_list("prose-messages.txt", &missed(files, messages));
}

#[test]
fn prose_of_documents_reaches_the_goals() {
    let files = [root(), root().join("docs"), root().join("examples")].into_iter().flat_map(|dir| documents(&dir));
    compare_with_list("prose-documents.txt", &missed(files, document));
}

#[test]
fn ruled_out_words_and_long_sentences_are_counted() {
    let clear = prose(["The launcher sends the plan to `agent`. Each agent starts its ranks.".to_owned()]);
    assert_eq!((clear.sentences, clear.words, clear.ruled_out), (2, 12, 0), "{clear:?}");
    let unclear = "Who is gone is told of. It stands still behind the wall; nobody is told. So is what goes on.";
    let unclear = prose([unclear.to_owned()]);
    assert_eq!((unclear.sentences, unclear.ruled_out), (3, 9), "{unclear:?}");
    let long = prose([vec!["word"; LONG + 1].join(" ")]);
    assert_eq!(long.long, 1, "{long:?}");
    assert_eq!(messages("let a = \"one two three \\\n   four five six\"; // #\n"), "one two three    four five six");
}
