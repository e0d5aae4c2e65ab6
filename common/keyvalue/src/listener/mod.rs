//! Fronts: what speaks a wire of others to their clients, and has a namespace of the store do what they ask.
//!
//! A front is pure too: bytes in, bytes out. Sockets, and who may connect to them, are an edge's business.

pub mod tcpstore;
