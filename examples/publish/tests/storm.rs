//! The storm, as people run it, only shorter.

use std::process::{Command, Output};

use test_support::{mysql_database, postgres_database};

fn storm(database_url: Option<&str>) -> Output {
    let mut storm = Command::new(env!("CARGO_BIN_EXE_publish"));
    storm
        .args(["storm", "--posts", "300", "--kills", "3"])
        .env_remove("DATABASE_URL");
    if let Some(url) = database_url {
        storm.env("DATABASE_URL", url);
    }
    storm.output().expect("the storm runs")
}

fn assert_calm(output: &Output) {
    let said = String::from_utf8_lossy(&output.stdout);
    assert!(
        output.status.success(),
        "{said}{}",
        String::from_utf8_lossy(&output.stderr)
    );
    for (what, count) in [
        ("posts", "300"),
        ("service killed", "3"),
        ("duplicates", "0"),
        ("lost", "0"),
        ("stuck", "0"),
    ] {
        let line = said
            .lines()
            .find(|line| line.starts_with(what) && line.ends_with(&format!(" {count}")));
        assert!(line.is_some(), "{what} is not {count} in:\n{said}");
    }
}

/// R31, R33, R50: impatient clients and a service that is killed again and again make each post once,
/// on the embedded default, on PostgreSQL and on MariaDB. One after the other: a storm is a load of its own.
#[tokio::test(flavor = "multi_thread")]
async fn each_post_is_made_once() {
    assert_calm(&storm(None));
    let database = postgres_database().await;
    assert_calm(&storm(Some(database.url())));
    database.assert_none_idle_in_transaction().await;
    let database = mysql_database().await;
    assert_calm(&storm(Some(database.url())));
    database.assert_none_idle_in_transaction().await;
}
