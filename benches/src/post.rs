//! What clients send, and what they get.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What a client sends.
#[derive(Debug, Serialize, Deserialize)]
pub struct Draft {
    /// A line.
    pub title: String,
    /// As long as the draft is to be.
    pub text: String,
}

/// What it gets.
#[derive(Debug, Serialize)]
pub struct Post<'a> {
    /// Its number.
    pub id: i64,
    /// As in the draft.
    pub title: &'a str,
    /// As in the draft.
    pub text: &'a str,
}

/// A draft of about that many bytes.
#[must_use]
pub fn draft(bytes: usize) -> Bytes {
    let draft = Draft {
        title: "Exactly once".into(),
        text: "lorem ipsum ".repeat(bytes / 12)[..bytes.saturating_sub(40)].into(),
    };
    serde_json::to_vec(&draft).expect("a draft is JSON").into()
}
