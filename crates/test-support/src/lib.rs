//! Real engines for tests
