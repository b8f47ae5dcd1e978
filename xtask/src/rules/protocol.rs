//! The rules that protocol.md states.

use std::collections::BTreeSet;

use crate::Outcome;

/// The numbers of all rules: a line that begins with `**R<n>**` states rule n.
pub(super) fn rules(protocol: &str) -> Outcome<BTreeSet<u32>> {
    let mut rules = BTreeSet::new();
    for (index, line) in protocol.lines().enumerate() {
        let Some(rule) = rule(line) else { continue };
        if !rules.insert(rule) {
            return Err(format!("protocol.md:{}: R{rule} is there twice", index + 1).into());
        }
    }
    if rules.is_empty() {
        return Err("protocol.md states no rule".into());
    }
    Ok(rules)
}

fn rule(line: &str) -> Option<u32> {
    let (number, _) = line.strip_prefix("**R")?.split_once("**")?;
    number.parse().ok()
}

#[cfg(test)]
mod tests {
    use super::rules;

    /// Only a number in bold at the beginning of a line states a rule.
    #[test]
    fn rules_are_found_at_the_beginning_of_lines() {
        let protocol = "\
# Protocol
**R1** A key.
See **R3** for more.
**R12**: another.
 **R4** not at the beginning
**Rx** no number
";
        assert_eq!(rules(protocol).expect("rules"), [1, 12].into());
    }

    /// One number for two rules is refused, and so is a protocol without any.
    #[test]
    fn a_number_stands_for_one_rule() {
        assert!(rules("**R1** a\n**R1** b\n").is_err());
        assert!(rules("R1 a\n").is_err());
    }
}
