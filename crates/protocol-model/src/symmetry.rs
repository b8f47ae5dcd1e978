//! Which arrival is which does not matter: of states that differ in that alone, one stands for all.

use crate::state::{Arrival, Doomed, Phase, Replay, Row, SLOTS, State, Statement, Token};

/// The state with its arrivals in an order that does not depend on when they came.
///
/// Where two arrivals cannot be told apart by themselves, their order is left as it is; that costs
/// a few states more and is sound.
#[must_use]
pub(crate) fn representative(state: &State) -> State {
    let mut order: [usize; SLOTS] = std::array::from_fn(|index| index);
    order.sort_by_key(|&index| sort_key(state, index));
    let mut renamed = [Token(0); SLOTS];
    for (now, &before) in (0..).zip(&order) {
        renamed[before] = Token(now);
    }
    let rename = |token: Token| renamed[token.index()];
    State {
        rows: state.rows.map(|row| rename_row(row, rename)),
        arrivals: order.map(|index| rename_arrival(state.arrivals[index], rename)),
        doomed: state.doomed.map(|doomed| Doomed {
            claim: doomed.claim.map(rename),
            ..doomed
        }),
        ..*state
    }
}

/// The arrival without names, and who else names it. Those who have not come are last.
fn sort_key(state: &State, index: usize) -> (bool, Arrival, [bool; 4]) {
    let arrival = state.arrivals[index];
    let me = Token(u8::try_from(index).unwrap_or(u8::MAX));
    let row = state.rows[arrival.job.key()];
    let named = [
        row.token() == Some(me),
        matches!(row, Row::Completed { result: Replay::Of(token), .. } if token == me),
        state.doomed.is_some_and(|doomed| doomed.claim == Some(me)),
        state.arrivals.iter().any(|other| names(other, me)),
    ];
    let nameless = rename_arrival(arrival, |_| Token(0));
    (arrival.phase == Phase::Absent, nameless, named)
}

fn names(arrival: &Arrival, wanted: Token) -> bool {
    matches!(arrival.phase, Phase::Replacing { seen } if seen == Some(wanted))
        || matches!(arrival.late, Some(Statement::Replace { seen }) if seen == Some(wanted))
}

fn rename_row(row: Row, rename: impl Fn(Token) -> Token) -> Row {
    match row {
        Row::Claimed { token, stale } => Row::Claimed {
            token: rename(token),
            stale,
        },
        Row::Completed {
            token,
            result,
            stale,
            expired,
        } => Row::Completed {
            token: token.map(&rename),
            result: match result {
                Replay::Of(token) => Replay::Of(rename(token)),
                Replay::Unknown => Replay::Unknown,
            },
            stale,
            expired,
        },
        Row::Absent | Row::Tombstone => row,
    }
}

fn rename_arrival(mut arrival: Arrival, rename: impl Fn(Token) -> Token) -> Arrival {
    if let Phase::Replacing { seen } = &mut arrival.phase {
        *seen = seen.map(&rename);
    }
    if let Some(Statement::Replace { seen }) = &mut arrival.late {
        *seen = seen.map(&rename);
    }
    arrival
}
