//! What clients send, and what they get.

use bytes::Bytes;
use serde::{Deserialize, Serialize};

/// What a client sends.
#[derive(Debug, Serialize, Deserialize)]
pub(crate) struct Draft {
    pub(crate) title: String,
    pub(crate) text: String,
}

/// What it gets.
#[derive(Debug, Serialize)]
pub(crate) struct Post<'a> {
    pub(crate) id: i64,
    pub(crate) title: &'a str,
    pub(crate) text: &'a str,
}

/// A draft of about that many bytes.
pub(crate) fn draft(bytes: usize) -> Bytes {
    let draft = Draft {
        title: "Exactly once".into(),
        text: "lorem ipsum ".repeat(bytes / 12)[..bytes.saturating_sub(40)].into(),
    };
    serde_json::to_vec(&draft).expect("a draft is JSON").into()
}
