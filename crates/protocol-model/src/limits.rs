//! What keeps the model finite.

/// How much may happen.
#[derive(Clone, Copy, Debug)]
pub struct Limits {
    /// How many arrivals come, of either key.
    pub arrivals: u8,
    /// How many of them run at once: the number of processes.
    pub running: usize,
    /// How many connections break.
    pub cuts: u8,
    /// How many times an operator erases or releases a record.
    pub erasures: u8,
    /// Whether handlers end their transaction by hand.
    pub by_hand: ByHand,
    /// Whether posts are removed: the second key.
    pub removals: bool,
    /// Whether claims are renewed.
    pub renewals: bool,
    /// Whether one state stands for all that differ in the names of arrivals only. Not for traces.
    pub symmetry: bool,
}

/// What becomes of a handler that ends its transaction by hand.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum ByHand {
    /// There is none.
    Never,
    /// The effect does not count where the process dies, or is taken over, or gives up before the
    /// record is marked.
    ExcusedUnlessCut,
    /// Nor where the connection breaks, or is too slow, before the layer has learned from it whose
    /// the transaction is: the exception that the documents state.
    Excused,
}

impl Limits {
    /// Three processes, one key or two.
    pub const THREE_AT_ONCE: Self = Self {
        arrivals: 3,
        running: 3,
        cuts: 1,
        erasures: 1,
        by_hand: ByHand::Excused,
        removals: true,
        renewals: true,
        symmetry: true,
    };
}
