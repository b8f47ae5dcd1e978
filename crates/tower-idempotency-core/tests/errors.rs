//! What errors print.

use std::error::Error;
use std::io;

use tower_idempotency_core::{StoreError, TxError};

/// An error prints one level, and has the next as its source, down to the driver's.
#[test]
fn one_level_is_printed() {
    let driver = || io::Error::other("at 10.0.0.7");
    for (error, printed) in [
        (
            StoreError::unavailable(driver()),
            "the store is unavailable or too busy",
        ),
        (
            StoreError::conflict(driver()),
            "a concurrent transaction won",
        ),
        (
            StoreError::encoding(driver()),
            "a value cannot be stored or read",
        ),
        (StoreError::other(driver()), "the store failed"),
    ] {
        assert_eq!(error.to_string(), printed);
        let error = TxError::from(error);
        assert_eq!(error.to_string(), "the transaction failed");
        let store = error.source().expect("the store's");
        assert_eq!(store.to_string(), printed);
        let source = store.source().expect("the driver's");
        assert_eq!(source.to_string(), "at 10.0.0.7");
    }
}
