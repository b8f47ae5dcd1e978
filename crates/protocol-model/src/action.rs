//! What happens, one thing at a time, and how it reads in a trace.

use std::fmt;

use crate::state::{Job, Token};

/// What can happen.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Action {
    /// A request comes in.
    Arrive(Token, Job),
    /// An arrival makes a step, and learns how it went.
    Go(Token, Step),
    /// The connection breaks, or is too slow, during a step.
    Cut(Token, Cut),
    /// The process dies.
    Die(Token),
    /// The database runs a statement that nobody waits for any more.
    Late(Token),
    /// The database commits a transaction whose COMMIT is in doubt.
    Land(Token),
    /// The database rolls a transaction back that nobody will end.
    RollBack(Token),
    /// A claim becomes stale, or a result expires.
    TimePasses(usize),
    /// A purge finds a row to delete.
    PurgeFinds(usize),
    /// The purge deletes what it has found.
    PurgeDeletes,
    /// An operator releases a claim, or erases an owner.
    Erase(usize),
}

/// A step of an arrival.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Step {
    /// Inserts its claim, or decides on what is there.
    Claim,
    /// Replaces the row that it saw.
    Replace,
    /// Renews the claim.
    Renew,
    /// The handler begins its transaction and writes.
    Begin,
    /// The handler ends the transaction by hand, so that what it writes is committed.
    EndByHand,
    /// The handler has answered 2xx: the record is completed.
    Complete,
    /// The handler has failed, or the database certainly has.
    Fail,
    /// COMMIT.
    Commit,
    /// Frees, to find out.
    Resolve,
    /// Reads, to find out.
    Read,
    /// Frees.
    Free,
    /// Reads whose record it is.
    LookUp,
    /// Marks the record as of unknown outcome.
    Mark,
}

/// A step whose answer did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub struct Cut {
    /// The step.
    pub step: Step,
    /// What the database has made of it.
    pub server: Server,
    /// What the arrival makes of it.
    pub client: Client,
}

/// What the database has made of a statement whose answer did not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Server {
    /// It never came.
    NotRun,
    /// It was run.
    Ran,
    /// It will be.
    RunsLater,
}

/// What an arrival makes of an answer that does not come.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Client {
    /// It tries the step again.
    Retries,
    /// It is told that the connection is broken.
    GivesUp,
    /// It is not told anything.
    TimesOut,
}

const KEY_NAMES: [&str; 2] = ["the post's record", "the removal's record"];

impl fmt::Display for Action {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        match *self {
            Self::Arrive(me, Job::Publish) => write!(f, "{me:?} arrives, to publish"),
            Self::Arrive(me, Job::Remove) => write!(f, "{me:?} arrives, to remove"),
            Self::Go(me, step) => write!(f, "{me:?} {step}"),
            Self::Cut(
                me,
                Cut {
                    step,
                    server,
                    client,
                },
            ) => {
                let server = match server {
                    Server::NotRun => "never reaches the database",
                    Server::Ran => "is run and its answer lost",
                    Server::RunsLater => "is on its way and its answer lost",
                };
                let client = match client {
                    Client::Retries => "tries again",
                    Client::GivesUp => "sees the connection broken",
                    Client::TimesOut => "is left in doubt",
                };
                write!(f, "{me:?} {step}, which {server}; {me:?} {client}")
            }
            Self::Die(me) => write!(f, "{me:?} dies"),
            Self::Late(me) => write!(f, "{me:?}'s last statement is run at last"),
            Self::Land(me) => write!(f, "{me:?}'s COMMIT in doubt is done"),
            Self::RollBack(me) => write!(f, "{me:?}'s transaction is rolled back"),
            Self::TimePasses(key) => write!(f, "time passes for {}", KEY_NAMES[key]),
            Self::PurgeFinds(key) => write!(f, "a purge finds {}", KEY_NAMES[key]),
            Self::PurgeDeletes => f.write_str("the purge deletes what it found"),
            Self::Erase(key) => write!(f, "an operator erases {}", KEY_NAMES[key]),
        }
    }
}

impl fmt::Display for Step {
    fn fmt(&self, f: &mut fmt::Formatter<'_>) -> fmt::Result {
        f.write_str(match self {
            Self::Claim => "claims",
            Self::Replace => "replaces what it saw",
            Self::Renew => "renews",
            Self::Begin => "begins and writes",
            Self::EndByHand => "commits by hand",
            Self::Complete => "completes",
            Self::Fail => "fails and rolls back",
            Self::Commit => "commits",
            Self::Resolve => "resolves, by freeing",
            Self::Read => "resolves, by reading",
            Self::Free => "frees",
            Self::LookUp => "looks whose record it is",
            Self::Mark => "marks the record",
        })
    }
}
