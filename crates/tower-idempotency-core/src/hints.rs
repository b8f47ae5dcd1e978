//! What looks like a mistake of the application's and may be none: said once, in the log.

use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Mutex, PoisonError};

use http::Method;

use crate::operation::Operation;

/// So many operations are remembered.
const MOST: usize = 64;

/// What has been said already. Not shared by layers whose settings differ.
#[derive(Default)]
pub(crate) struct Hints {
    unused: Mutex<Vec<Operation>>,
    uncovered: [AtomicBool; METHODS.len()],
}

/// Those that write. Others may be safe, and clients can make up any number of them.
const METHODS: [Method; 4] = [Method::POST, Method::PUT, Method::PATCH, Method::DELETE];

impl Hints {
    /// A result was kept whose handler never asked for its transaction.
    pub(crate) fn unused(&self, operation: &Operation) {
        if self.is_first(operation) {
            tracing::warn!(
                operation = operation.as_str(),
                "a handler answered 2xx and never used its transaction: take `tx: Tx<_>` and write through `tx.acquire()`; what it writes elsewhere is not exactly once"
            );
        }
    }

    /// A request with a key was answered 2xx, and its method is not covered.
    pub(crate) fn uncovered(&self, method: &Method) {
        let known = METHODS.iter().position(|known| known == method);
        if known.is_some_and(|known| !self.uncovered[known].swap(true, Ordering::Relaxed)) {
            tracing::warn!(
                method = method.as_str(),
                "a request with an idempotency key passed unprotected: name its method in `.methods([..])` of the layer"
            );
        }
    }

    fn is_first(&self, operation: &Operation) -> bool {
        // Nothing in it is ever half-written.
        let mut said = self.unused.lock().unwrap_or_else(PoisonError::into_inner);
        let first = said.len() < MOST && !said.contains(operation);
        if first {
            said.push(operation.clone());
        }
        first
    }
}

/// A layer that is made of another may be around other handlers.
impl Clone for Hints {
    fn clone(&self) -> Self {
        Self::default()
    }
}

#[cfg(test)]
mod tests {
    use super::{Hints, MOST};
    use crate::operation::Operation;

    /// An operation is the first once, and past so many none is.
    #[test]
    fn said_once() {
        let hints = Hints::default();
        let operation = |number: usize| Operation::new(format!("op-{number}")).unwrap();
        for number in 0..MOST {
            assert!(hints.is_first(&operation(number)));
            assert!(!hints.is_first(&operation(number)));
        }
        assert!(!hints.is_first(&operation(MOST)));
    }
}
