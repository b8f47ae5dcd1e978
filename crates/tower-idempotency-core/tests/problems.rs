//! Every problem as a client reads it, and the page that each points to.

use std::collections::BTreeSet;
use std::fmt::Write as _;

use axum_core::body::Body;
use http_body_util::BodyExt as _;
use tower_idempotency_core::{Problem, ProblemKind};

/// Where the page is, and the file it is made of.
const PAGE: &str =
    "https://docs.rs/tower-idempotency/latest/tower_idempotency/problems/index.html#";
const PAGE_SOURCE: &str = include_str!("../src/problems.rs");

/// The status line, the headers and the body of each.
async fn rendered() -> String {
    let mut text = String::new();
    for kind in ProblemKind::ALL {
        let response = Problem::from(*kind).to_response::<Body>();
        let (head, body) = response.into_parts();
        let _ = writeln!(text, "{}", head.status);
        for (name, value) in &head.headers {
            let _ = writeln!(text, "{name}: {}", value.to_str().expect("ASCII"));
        }
        let body = body.collect().await.expect("a body").to_bytes();
        let _ = writeln!(text, "{}\n", std::str::from_utf8(&body).expect("UTF-8"));
    }
    text
}

/// R44: the documents, statuses and headers of all problems are those of the committed file. A
/// change is one of the protocol.
#[tokio::test]
async fn every_problem_is_as_it_was() {
    let now = rendered().await;
    assert!(
        now == include_str!("problems.txt"),
        "tests/problems.txt has all problems, and no other:\n{now}"
    );
}

/// R44: `type` leads to a heading of the docs for every problem, and every heading has one.
#[test]
fn every_type_is_a_heading() {
    let headings: BTreeSet<_> = PAGE_SOURCE
        .lines()
        .filter_map(|line| line.strip_prefix("//! ## "))
        .collect();
    let slugs: BTreeSet<_> = ProblemKind::ALL.iter().map(|kind| kind.slug()).collect();
    assert_eq!(slugs.len(), ProblemKind::ALL.len(), "each has its own");
    assert_eq!(slugs, headings);
    for kind in ProblemKind::ALL {
        let problem = Problem::from(*kind);
        assert_eq!(problem.type_uri().strip_prefix(PAGE), Some(kind.slug()));
        let section = PAGE_SOURCE
            .split(&format!("//! ## {}\n//!\n", kind.slug()))
            .nth(1)
            .expect("its section");
        let status = format!("//! Status {}", kind.status().as_u16());
        assert!(
            section.starts_with(&status),
            "{} says its status",
            kind.slug()
        );
        let first = section.lines().next().expect("a line");
        assert_eq!(
            first.contains("retryable"),
            kind.retryable(),
            "{} says whether a retry helps",
            kind.slug()
        );
    }
}

/// R44: each document has all members, and `Retry-After` is there exactly where a retry helps.
#[tokio::test]
async fn every_document_is_whole() {
    for kind in ProblemKind::ALL {
        let problem = Problem::from(*kind);
        let document: serde_json::Value = serde_json::from_str(&problem.to_json()).expect("JSON");
        let members: BTreeSet<_> = document
            .as_object()
            .expect("an object")
            .keys()
            .map(String::as_str)
            .collect();
        assert_eq!(
            members,
            BTreeSet::from(["type", "title", "status", "detail", "retryable"])
        );
        assert_eq!(document["status"], problem.status().as_u16());
        assert_eq!(document["retryable"], problem.retryable());

        let response = problem.to_response::<Body>();
        assert_eq!(
            response.headers()["content-type"],
            "application/problem+json"
        );
        assert_eq!(response.headers()["cache-control"], "no-store");
        assert_eq!(
            response.headers().contains_key("retry-after"),
            problem.retryable()
        );
        assert_eq!(response.extensions().get(), Some(&problem));
    }
}

/// R44: the table of protocol.md has the same names, statuses and waits.
#[test]
fn the_protocol_has_the_same_table() {
    let protocol = include_str!("../../../protocol.md");
    let mut rows = BTreeSet::new();
    for line in protocol.lines() {
        let cells: Vec<_> = line.split('|').map(str::trim).collect();
        if let ["", name, status, wait, _, ""] = cells[..] {
            let (Some(name), Ok(status)) = (
                name.strip_prefix('`')
                    .and_then(|name| name.strip_suffix('`')),
                status.parse::<u16>(),
            ) else {
                continue;
            };
            let wait = wait
                .strip_suffix(" s")
                .map(|seconds| seconds.parse::<u8>().expect("seconds"));
            rows.insert((name.to_owned(), status, wait));
        }
    }
    let kinds: BTreeSet<_> = ProblemKind::ALL
        .iter()
        .map(|kind| {
            (
                kind.slug().to_owned(),
                kind.status().as_u16(),
                Problem::from(*kind).retry_after(),
            )
        })
        .collect();
    assert_eq!(rows, kinds);
}
