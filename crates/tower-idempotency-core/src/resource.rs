//! What a completed request made, and the request to bury it.

use std::fmt;

use crate::error::InvalidIdentity;
use crate::{Operation, Owner};

/// A reference to what a request made: the id of a post, a payment, an order.
///
/// 1 to 255 bytes, compared byte for byte. Recorded with the completion, so that deleting the
/// resource can leave a tombstone. `Debug` does not show it.
#[derive(Clone, PartialEq, Eq, Hash)]
pub struct ResourceRef(String);

impl ResourceRef {
    /// The greatest length, in bytes.
    pub const MAX_LEN: usize = 255;

    /// Takes anything that displays as an id: a number, a UUID, a text.
    ///
    /// # Panics
    ///
    /// When the text is empty, longer than [`ResourceRef::MAX_LEN`] bytes or has a NUL. Use
    /// [`ResourceRef::try_new`] for ids that come from outside.
    #[must_use]
    pub fn new(id: impl fmt::Display) -> Self {
        Self::try_new(id).expect("a resource's reference has 1 to 255 bytes and no NUL")
    }

    /// As [`ResourceRef::new`], for ids that may be out of bounds.
    ///
    /// # Errors
    ///
    /// When the text is empty, longer than [`ResourceRef::MAX_LEN`] bytes or has a NUL.
    pub fn try_new(id: impl fmt::Display) -> Result<Self, InvalidIdentity> {
        let id = id.to_string();
        InvalidIdentity::check("resource reference", &id, Self::MAX_LEN)?;
        Ok(Self(id))
    }

    /// The reference as text.
    #[must_use]
    pub fn as_str(&self) -> &str {
        &self.0
    }
}

impl fmt::Debug for ResourceRef {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str("ResourceRef(..)")
    }
}

/// The request to bury whatever an operation of an owner recorded for a resource.
///
/// The records turn into tombstones: they keep neither fingerprint nor result, and answer 410 to
/// every later arrival of their keys, whatever its body.
#[derive(Clone, Debug)]
pub struct TombstoneResource {
    /// Whose records.
    pub owner: Owner,
    /// The operation that made the resource.
    pub operation: Operation,
    /// The resource that is being deleted.
    pub resource_ref: ResourceRef,
}
