//! The torture as people run it, only shorter.

use std::process::{Command, Output};

/// What must be zero.
const VIOLATIONS: [&str; 9] = [
    "duplicates",
    "losses",
    "differing",
    "stuck",
    "2xx for another body",
    "untrue answers",
    "effects apart from records",
    "left claimed",
    "idle in transaction",
];

fn torture(arguments: &[&str]) -> String {
    let Output {
        status,
        stdout,
        stderr,
    } = Command::new(env!("CARGO_BIN_EXE_torture"))
        .args(arguments)
        .output()
        .expect("it runs");
    let said = String::from_utf8_lossy(&stdout).into_owned();
    // The seed is in it.
    println!("{said}");
    let errors = String::from_utf8_lossy(&stderr);
    assert!(status.success(), "{status}: {errors}");
    said
}

/// A quarter of a minute each: a minute of histories in all.
fn assert_holds(arguments: &[&str]) {
    let said = torture(&[&["--seconds", "15"], arguments].concat());
    let count = |what: &str| -> u64 {
        let line = said.lines().find(|line| line.starts_with(what));
        let last = line.and_then(|line| line.split_whitespace().last());
        let count = last.and_then(|count| count.parse().ok());
        count.unwrap_or_else(|| panic!("{what} is not in the table"))
    };
    for what in VIOLATIONS {
        assert_eq!(count(what), 0, "{what}");
    }
    for what in ["keys", "requests", "faults"] {
        assert_ne!(count(what), 0, "{what}");
    }
}

/// Dies once at each point, and is asked again.
fn assert_each_death_is_survived(database: &str) {
    let said = torture(&["points", "--database", database]);
    for point in [
        "claimed",
        "written",
        "completing",
        "committing",
        "committed",
        "answering",
        "freeing",
    ] {
        assert!(
            said.lines().any(|line| line.starts_with(point)),
            "{point} was survived"
        );
    }
}

/// R31, R32, R33, R50, R51, R62: three servers on PostgreSQL are killed, stalled and cut off, and each
/// key has one effect that all its 2xx name.
#[test]
fn the_promise_holds_on_postgres() {
    assert_holds(&["--database", "postgres"]);
}

/// R31, R32, R33, R50, R51, R61: likewise where every transaction is serializable.
#[test]
fn the_promise_holds_on_serializable_postgres() {
    assert_holds(&["--database", "postgres", "--isolation", "serializable"]);
}

/// R31, R32, R33, R50, R51: likewise two servers on one SQLite file.
#[test]
fn the_promise_holds_on_sqlite() {
    assert_holds(&["--database", "sqlite"]);
}

/// R31, R32, R33, R50, R51: likewise three servers on MariaDB.
#[test]
fn the_promise_holds_on_mysql() {
    assert_holds(&["--database", "mariadb"]);
}

/// R33, R50, R51: whatever a server was doing on PostgreSQL when it was killed, a retry makes what
/// was not committed, and replays what was.
#[test]
fn each_death_is_survived_on_postgres() {
    assert_each_death_is_survived("postgres");
}

/// R33, R50, R51: likewise on SQLite.
#[test]
fn each_death_is_survived_on_sqlite() {
    assert_each_death_is_survived("sqlite");
}

/// R31, R33, R51, R65: a key that arrives at four processes at once is run by one, and the others wait
/// for its result; when one dies, another takes its claim over. On PostgreSQL.
#[test]
fn four_processes_are_one_on_postgres() {
    torture(&["fleet", "--database", "postgres"]);
}

/// R31, R33, R51, R65: likewise on SQLite.
#[test]
fn four_processes_are_one_on_sqlite() {
    torture(&["fleet", "--database", "sqlite"]);
}
