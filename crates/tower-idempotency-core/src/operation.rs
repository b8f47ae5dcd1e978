//! What is being done: the part of a record's identity that the server chooses.

use std::borrow::Cow;
use std::fmt;

use http::Method;

use crate::error::InvalidIdentity;

/// The name of what a request does: `publish`, `POST /posts/{}`.
///
/// 1 to 128 bytes, compared byte for byte. The name is part of every record: renaming an
/// operation makes its late retries new requests, so name what you keep.
#[derive(Clone, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Operation(Cow<'static, str>);

impl Operation {
    /// The greatest length, in bytes.
    pub const MAX_LEN: usize = 128;

    /// Takes a name that is known when the program is compiled.
    ///
    /// ```
    /// use tower_idempotency_core::Operation;
    ///
    /// const PUBLISH: Operation = Operation::from_static("publish");
    /// ```
    ///
    /// # Panics
    ///
    /// When the name is empty, longer than [`Operation::MAX_LEN`] bytes or has a NUL: in a
    /// constant, while compiling.
    #[must_use]
    pub const fn from_static(name: &'static str) -> Self {
        let bytes = name.as_bytes();
        assert!(
            !bytes.is_empty() && bytes.len() <= Self::MAX_LEN,
            "an operation's name has 1 to 128 bytes"
        );
        let mut i = 0;
        while i < bytes.len() {
            assert!(bytes[i] != 0, "an operation's name has no NUL");
            i += 1;
        }
        Self(Cow::Borrowed(name))
    }

    /// Takes a name that is known at run time only.
    ///
    /// # Errors
    ///
    /// When it is empty, longer than [`Operation::MAX_LEN`] bytes or has a NUL.
    pub fn new(name: impl Into<String>) -> Result<Self, InvalidIdentity> {
        let name = name.into();
        InvalidIdentity::check("operation", &name, Self::MAX_LEN)?;
        Ok(Self(Cow::Owned(name)))
    }

    /// The name of a method on a route, with the names of the route's parameters erased, so that
    /// renaming a parameter is no new operation: `POST /posts/{id}` is `POST /posts/{}`.
    ///
    /// # Errors
    ///
    /// When the result is longer than [`Operation::MAX_LEN`] bytes.
    pub fn of_route(method: &Method, route: &str) -> Result<Self, InvalidIdentity> {
        let mut name = format!("{method} ");
        let mut rest = route;
        while let Some(open) = rest.find('{') {
            let Some(close) = rest[open..].find('}') else {
                break;
            };
            // `{*rest}` takes any number of segments: another route than `{rest}`.
            let wildcard = rest[open + 1..].starts_with('*');
            name.push_str(&rest[..=open]);
            name.push_str(if wildcard { "*}" } else { "}" });
            rest = &rest[open + close + 1..];
        }
        name.push_str(rest);
        Self::new(name)
    }

    /// The name as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

/// # Panics
///
/// As [`Operation::from_static`].
impl From<&'static str> for Operation {
    fn from(name: &'static str) -> Self {
        Self::from_static(name)
    }
}

impl fmt::Display for Operation {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(&self.0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// R5: an operation that has no name is called by its method and route, without the names of parameters.
    #[test]
    fn route_parameters_are_erased() {
        let name = |route| {
            Operation::of_route(&Method::POST, route)
                .unwrap()
                .to_string()
        };
        assert_eq!(name("/posts"), "POST /posts");
        assert_eq!(name("/posts/{id}/tags/{tag}"), "POST /posts/{}/tags/{}");
        assert_eq!(name("/files/{*path}"), "POST /files/{*}");
        assert_eq!(name("/odd/{open"), "POST /odd/{open");
        assert!(Operation::of_route(&Method::POST, &"/x".repeat(100)).is_err());
    }
}
