//! Tasks
fn main() {}
