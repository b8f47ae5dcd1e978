//! Rows, as a database may return them: what breaks the table's constraints is an error, never a
//! record.

#![no_main]

use arbitrary::{Arbitrary, Unstructured};
use libfuzzer_sys::fuzz_target;
use tower_idempotency_core::{RecordState, ResourceRef};
use tower_idempotency_sqlx::fuzzing::{Columns, record};

#[derive(Debug)]
struct Row(Columns);

impl<'a> Arbitrary<'a> for Row {
    fn arbitrary(u: &mut Unstructured<'a>) -> arbitrary::Result<Self> {
        let mut columns = Columns::arbitrary(u)?;
        // Else hardly a row would be one of ours.
        let states = ["claimed", "completed", "tombstone", "acquired"];
        if let Some(state) = states.get(usize::from(u8::arbitrary(u)? % 8)) {
            columns.0 = (*state).into();
        }
        if let (true, Some(token)) = (bool::arbitrary(u)?, &mut columns.1) {
            token.resize(16, 0);
        }
        Ok(Self(columns))
    }
}

fuzz_target!(|row: Row| {
    let Row(columns) = row;
    let Ok(read) = record(columns.clone()) else {
        return;
    };
    let (state, token, claimed_at, stale, fingerprint, status, kept, ..) = columns;
    let (.., headers, body, made, expired) = columns;
    assert!(claimed_at >= 0);
    assert_eq!(read.resource_ref, made.map(ResourceRef::new));
    assert_eq!(
        read.token().map(|token| token.as_bytes().to_vec()),
        match &*state {
            "tombstone" => None,
            _ => token,
        }
    );
    match read.state {
        RecordState::Tombstone => assert_eq!(state, "tombstone"),
        RecordState::Claimed {
            fingerprint: read,
            stale: judged,
            ..
        } => {
            assert_eq!((&*state, judged), ("claimed", stale));
            assert_eq!(Some(read.as_str()), fingerprint.as_deref());
        }
        RecordState::Completed {
            fingerprint: read,
            response,
            expired: judged,
            ..
        } => {
            assert_eq!((&*state, judged), ("completed", expired));
            assert_eq!(Some(read.as_str()), fingerprint.as_deref());
            assert_eq!(Some(i64::from(response.status.as_u16())), status);
            assert_eq!(Some(response.content.is_some()), kept);
            let content = response
                .content
                .map(|content| (content.headers, content.body));
            assert_eq!(
                content.as_ref().map(|(headers, _)| &headers[..]),
                headers.as_deref()
            );
            assert_eq!(content.as_ref().map(|(_, body)| &body[..]), body.as_deref());
        }
    }
});
