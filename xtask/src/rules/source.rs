//! The rules that the tests of a Rust file name.

/// A doc line of a test that begins like the number of a rule.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Mention {
    pub(super) line: usize,
    /// None where it cannot be read.
    pub(super) rules: Option<Vec<u32>>,
}

/// Finds the doc lines `/// R1: ..` or `/// R1, R2: ..` above the tests of a file.
///
/// A test is a function with an attribute of the name `test`, or any if `all_are_tests`.
pub(super) fn mentions(text: &str, all_are_tests: bool) -> Vec<Mention> {
    let mut found = Vec::new();
    let mut item = Item::default();
    for (index, line) in text.lines().enumerate() {
        let line = line.trim();
        if item.open_brackets > 0 {
            item.open_brackets += brackets(line);
        } else if let Some(doc) = line.strip_prefix("///") {
            item.mentions.extend(mention(index + 1, doc.trim()));
        } else if let Some(attribute) = line.strip_prefix("#[") {
            item.is_test |= is_test(attribute);
            item.open_brackets = brackets(line);
        } else if is_function(line) && (item.is_test || all_are_tests) {
            found.append(&mut item.mentions);
            item = Item::default();
        } else if !line.is_empty() && !line.starts_with("//") {
            item = Item::default();
        }
    }
    found
}

/// What stands above an item.
#[derive(Default)]
struct Item {
    mentions: Vec<Mention>,
    is_test: bool,
    /// Above zero in the middle of an attribute of several lines.
    open_brackets: i32,
}

fn brackets(line: &str) -> i32 {
    line.chars().fold(0, |open, character| match character {
        '[' => open + 1,
        ']' => open - 1,
        _ => open,
    })
}

fn is_test(attribute: &str) -> bool {
    let path = attribute
        .split(|character: char| !(character.is_alphanumeric() || "_:".contains(character)))
        .next();
    path.and_then(|path| path.rsplit("::").next()) == Some("test")
}

fn is_function(line: &str) -> bool {
    line.split_whitespace()
        .find(|word| !matches!(*word, "async" | "const" | "unsafe") && !word.starts_with("pub"))
        == Some("fn")
}

fn mention(line: usize, doc: &str) -> Option<Mention> {
    let begins_like_a_rule = doc
        .strip_prefix('R')
        .is_some_and(|rest| rest.starts_with(|first: char| first.is_ascii_digit()));
    begins_like_a_rule.then(|| Mention {
        line,
        rules: rules(doc),
    })
}

fn rules(doc: &str) -> Option<Vec<u32>> {
    let (list, _) = doc.split_once(':')?;
    list.split(", ")
        .map(|rule| rule.strip_prefix('R')?.parse().ok())
        .collect()
}

#[cfg(test)]
mod tests {
    use super::{Mention, mentions};

    fn read(text: &str, all_are_tests: bool) -> Vec<(usize, Option<Vec<u32>>)> {
        mentions(text, all_are_tests)
            .into_iter()
            .map(|Mention { line, rules }| (line, rules))
            .collect()
    }

    /// Attributes of every shape may stand between the doc line and the test.
    #[test]
    fn tests_name_one_rule_or_several() {
        let text = "
/// R1: one.
#[test]
fn a() {}

    /// R2, R13: two, in a module.
    /// And more of it.
    #[tokio::test(
        flavor = \"multi_thread\",
    )]
    // For a reason.
    #[should_panic]
    async fn b() {}
";
        assert_eq!(
            read(text, false),
            [(2, Some(vec![1])), (6, Some(vec![2, 13]))]
        );
    }

    /// What is no test names no rule, unless a macro makes tests of functions.
    #[test]
    fn only_tests_count() {
        let text = "
/// R1: a function.
pub(crate) async fn a() {}

/// R2: a type.
#[derive(Debug)]
struct S;
#[test]
fn b() {}

/// R3: not a test attribute.
#[cfg(test)]
#[attest]
fn c() {}
";
        assert_eq!(read(text, false), []);
        assert_eq!(read(text, true), [(2, Some(vec![1])), (11, Some(vec![3]))]);
    }

    /// A line that was meant to name a rule is not passed over.
    #[test]
    fn what_cannot_be_read_is_reported() {
        for line in ["R1 a", "R1 and R2: a", "R1,R2: a", "R1, 2: a", "R1, R2"] {
            let text = format!("/// {line}\n#[test]\nfn a() {{}}\n");
            assert_eq!(read(&text, false), [(1, None)], "{line}");
        }
    }

    /// Words that begin with the same letter are no rules.
    #[test]
    fn prose_is_no_rule() {
        assert_eq!(read("/// Rules: all.\n#[test]\nfn a() {}\n", false), []);
    }
}
