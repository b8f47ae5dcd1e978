//! Whose key it is.

use std::fmt;
use std::sync::Arc;

use axum_core::extract::FromRequestParts;
use http::request::Parts;

use crate::error::InvalidIdentity;
use crate::problem::{Problem, ProblemKind};

/// The authenticated principal to whom a key belongs.
///
/// Authentication puts it into the request's extensions, outside the idempotency layer:
///
/// ```
/// # use tower_idempotency_core::Owner;
/// # fn authenticated(request: &mut http::Request<()>, account_id: &str) -> Result<(), Box<dyn std::error::Error>> {
/// request.extensions_mut().insert(Owner::new(account_id)?);
/// # Ok(())
/// # }
/// ```
///
/// 1 to 255 bytes, compared byte for byte. Use the id of the principal, never a credential: it is
/// stored in clear. Owners never see each other's results. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Owner(Arc<str>);

impl Owner {
    /// The greatest length, in bytes.
    pub const MAX_LEN: usize = 255;

    const SHARED: &str = "*";

    /// Takes a principal's id.
    ///
    /// # Errors
    ///
    /// When it is empty, longer than [`Owner::MAX_LEN`] bytes, has a NUL, which PostgreSQL
    /// cannot store, or is `*`, which stands for [`Owner::shared`].
    pub fn new(id: impl AsRef<str>) -> Result<Self, InvalidIdentity> {
        let id = id.as_ref();
        InvalidIdentity::check("owner", id, Self::MAX_LEN)?;
        if id == Self::SHARED {
            return Err(InvalidIdentity::reserved("owner", Self::MAX_LEN));
        }
        Ok(Self(id.into()))
    }

    /// The owner of services whose callers share one name space of keys.
    ///
    /// Whoever knows or guesses a key then reads its result. An explicit choice, never a fallback.
    #[must_use]
    pub fn shared() -> Self {
        Self(Self::SHARED.into())
    }

    /// The id as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for Owner {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("Owner(..)")
    }
}

/// Rejects with the problem `owner-missing` where authentication has put none into the extensions.
impl<S: Sync> FromRequestParts<S> for Owner {
    type Rejection = Problem;

    async fn from_request_parts(parts: &mut Parts, _: &S) -> Result<Self, Problem> {
        parts
            .extensions
            .get()
            .cloned()
            .ok_or_else(|| ProblemKind::OwnerMissing.into())
    }
}
