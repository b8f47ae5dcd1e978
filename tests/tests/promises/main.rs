//! The promises, one file each.

mod answers;
mod failures;
mod hostile;
mod in_doubt;
mod one_effect;
mod pools;
mod take_over;
mod tombstones;
