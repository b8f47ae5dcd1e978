//! What there is at one instant: the committed rows, the arrivals, and what is under way.

use std::fmt;

/// How many records there are: the key of a post, and the key of its removal.
pub(crate) const KEYS: usize = 2;

/// How many arrivals a state has room for: four, and the probe of [`promise`](crate::promise).
pub(crate) const SLOTS: usize = 5;

/// An arrival, and the claim token that it draws.
#[derive(Clone, Copy, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Token(pub u8);

impl Token {
    /// Its place among the arrivals.
    #[must_use]
    pub fn index(self) -> usize {
        usize::from(self.0)
    }
}

impl fmt::Debug for Token {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        write!(f, "{}", ['A', 'B', 'C', 'D', 'E'][self.index()])
    }
}

/// What an arrival is for, and thereby which key it bears.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Job {
    /// Makes a post.
    #[default]
    Publish,
    /// Removes the post, and buries the record of its publication in the same transaction.
    Remove,
}

impl Job {
    /// The row of its key.
    #[must_use]
    pub fn key(self) -> usize {
        match self {
            Self::Publish => 0,
            Self::Remove => 1,
        }
    }
}

/// What a completed record replays.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Replay {
    /// The answer of that arrival's handler.
    Of(Token),
    /// 410: nobody knows whether there is an effect.
    Unknown,
}

/// A committed row.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Row {
    /// There is none.
    #[default]
    Absent,
    /// Somebody runs it, or did.
    Claimed {
        /// Whose it is.
        token: Token,
        /// Whether `stale_at` is reached.
        stale: bool,
    },
    /// Done.
    Completed {
        /// The token of the claim; only a mutant drops it.
        token: Option<Token>,
        /// What it replays.
        result: Replay,
        /// Whether `stale_at`, which is kept, is reached. Only followed for the mutants that read it.
        stale: bool,
        /// Whether `expires_at` is reached.
        expired: bool,
    },
    /// Buried.
    Tombstone,
}

impl Row {
    /// Whether that claim holds it.
    #[must_use]
    pub fn is_claimed_by(self, wanted: Token) -> bool {
        matches!(self, Self::Claimed { token, .. } if token == wanted)
    }

    /// The column `claim_token`.
    #[must_use]
    pub fn token(self) -> Option<Token> {
        match self {
            Self::Claimed { token, .. } => Some(token),
            Self::Completed { token, .. } => token,
            Self::Absent | Self::Tombstone => None,
        }
    }
}

/// How far an arrival has come.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Phase {
    /// Not yet there.
    #[default]
    Absent,
    /// About to claim.
    Claiming {
        /// Whether it has looked before: a broken connection is then not tried again.
        again: bool,
    },
    /// About to replace the row that it has seen.
    Replacing {
        /// The token that it saw; none where a mutant replaces a tombstone.
        seen: Option<Token>,
    },
    /// Its handler runs and has not begun the transaction.
    Running,
    /// Its handler has written within the transaction.
    Begun,
    /// Its handler has ended the transaction by hand.
    ByHand,
    /// Completion is done within the transaction, COMMIT is not sent.
    Committing,
    /// COMMIT is in doubt: about to free.
    Resolving,
    /// COMMIT is in doubt and there was nothing to free: about to read.
    Reading,
    /// Rolled back: about to free.
    Freeing(Then),
    /// Completion matched nothing: about to read whose record it is.
    Unmatched,
    /// The claim is lost: about to read what to answer.
    LookingUp,
    /// The transaction was not ours: about to mark the record.
    Marking,
    /// Answered, or dead.
    Over(Told),
}

/// What follows the freeing.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Then {
    /// An answer that says nothing of an effect.
    Answer,
    /// An answer that says that there is no effect.
    Deny,
    /// The record of somebody else decides.
    LookUp,
}

/// What an arrival was told, as far as it can be false.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Told {
    /// Nothing that is false, or nothing at all.
    Truth,
    /// That it has no effect.
    NoEffect,
    /// 2xx for an effect that is not committed.
    FalseSuccess,
    /// That it still holds a claim which is somebody else's.
    FalseRenewal,
}

/// The transaction of an arrival's handler, at the database.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Tx {
    /// Who will end it.
    pub fate: Fate,
    /// Whether it has completed the record, and so locks its row.
    pub completed: bool,
    /// Whether it has buried the record of the publication, and so locks its row.
    pub buries: bool,
}

/// Who ends a transaction.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Fate {
    /// There is none.
    #[default]
    None,
    /// The layer.
    Open,
    /// The database rolls it back, sooner or later.
    Abandoned,
    /// COMMIT is on its way: the database commits it or rolls it back, sooner or later.
    InDoubt,
}

/// What is known of an arrival's effect by who sees everything.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Effect {
    /// Nothing is committed.
    #[default]
    None,
    /// Committed.
    Standing,
    /// Committed by the handler's own hand, and not yet marked.
    ByHand,
    /// Committed, and since forgotten: by ttl, erasure, or the documented exception.
    Past,
}

/// A statement of one line, committed by itself.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub enum Statement {
    /// Inserts the claim, or reads what is there.
    Claim,
    /// Replaces a stale claim or an expired result.
    Replace {
        /// The token that was seen.
        seen: Option<Token>,
    },
    /// Moves `stale_at`.
    Renew,
    /// Deletes the claimed row.
    Free,
    /// Completes the claimed row as unknown.
    Mark,
    /// Completes the claimed row for a handler that wrote nothing.
    Complete,
}

/// One request, from its arrival to whatever is left of it.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Arrival {
    /// What it is for.
    pub job: Job,
    /// How far it has come.
    pub phase: Phase,
    /// Its handler's transaction.
    pub tx: Tx,
    /// A statement that nobody waits for any more and that will still be run.
    pub late: Option<Statement>,
    /// What it did.
    pub effect: Effect,
}

impl Arrival {
    /// Whether its process is working on it.
    #[must_use]
    pub fn is_running(&self) -> bool {
        !matches!(self.phase, Phase::Absent | Phase::Over(_))
    }

    /// Whether nothing of it is under way, not even at the database.
    #[must_use]
    pub fn is_at_rest(&self) -> bool {
        !self.is_running() && self.late.is_none() && self.tx.fate == Fate::None
    }
}

/// Everything at one instant.
#[derive(Clone, Copy, Debug, Default, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct State {
    /// The committed rows, by key.
    pub rows: [Row; KEYS],
    /// The arrivals, in the order in which they come.
    pub arrivals: [Arrival; SLOTS],
    /// The row that a purge has found, not yet deleted.
    pub doomed: Option<Doomed>,
    /// Whether the deletion of the post is committed.
    pub removed: bool,
    /// How many more connections may break.
    pub cuts: u8,
    /// How many more times an operator may erase.
    pub erasures: u8,
}

/// What a purge has found.
#[derive(Clone, Copy, Debug, PartialEq, Eq, Hash, PartialOrd, Ord)]
pub struct Doomed {
    /// Which row.
    pub key: usize,
    /// The stale claim that it bore; none where it was an expired result.
    pub claim: Option<Token>,
}

impl State {
    /// An arrival.
    #[must_use]
    pub fn arrival(&self, token: Token) -> &Arrival {
        &self.arrivals[token.index()]
    }

    /// An arrival, to be changed.
    pub fn arrival_mut(&mut self, token: Token) -> &mut Arrival {
        &mut self.arrivals[token.index()]
    }

    /// The row of an arrival's key.
    #[must_use]
    pub fn row(&self, token: Token) -> Row {
        self.rows[self.arrival(token).job.key()]
    }

    /// The row of an arrival's key, to be changed.
    pub fn row_mut(&mut self, token: Token) -> &mut Row {
        let key = self.arrival(token).job.key();
        &mut self.rows[key]
    }

    /// Whether a transaction has changed the row and has not ended. Whatever waits for it runs on a
    /// connection of its own, so an arrival waits for its own transaction too.
    #[must_use]
    pub fn is_locked(&self, key: usize) -> bool {
        self.arrivals.iter().any(|arrival| {
            arrival.tx.completed && arrival.job.key() == key
                || arrival.tx.buries && key == Job::Publish.key()
        })
    }

    /// What was committed for the key no longer counts: its record has ended as it may.
    pub fn forget(&mut self, key: usize) {
        for arrival in &mut self.arrivals {
            let counts = matches!(arrival.effect, Effect::Standing | Effect::ByHand);
            if arrival.job.key() == key && counts {
                arrival.effect = Effect::Past;
            }
        }
        if key == Job::Publish.key() {
            self.removed = false;
        }
    }

    /// The one exception of the promise: a handler committed by hand, and its record cannot be
    /// marked any more.
    pub fn excuse(&mut self, token: Token) {
        let arrival = self.arrival_mut(token);
        if arrival.effect == Effect::ByHand {
            arrival.effect = Effect::Past;
        }
    }
}
