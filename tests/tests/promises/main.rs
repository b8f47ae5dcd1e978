//! The promises, one file each.

mod answers;
mod busy;
mod cancellation;
mod disconnects;
mod disk_full;
mod drain;
mod failures;
mod hostile;
mod in_doubt;
mod isolation;
mod limits;
mod logs;
mod one_effect;
mod pools;
mod relaxed;
mod restarts;
mod standby;
mod start_up;
mod statements;
mod storage;
mod take_over;
mod tombstones;
mod unclaimed;
mod upkeep;
