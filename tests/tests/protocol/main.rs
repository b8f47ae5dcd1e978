//! The protocol at its edges: one file for each subject.

mod aliases;
mod body_sizes;
mod codecs;
mod encodings;
mod fingerprints;
mod grpc;
mod hooks;
mod keys;
mod problems;
mod request_bodies;
mod responses;
mod rights;
mod scopes;
mod support;
mod unkept;
mod waiting;
mod without_axum;
