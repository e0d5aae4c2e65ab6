//! The command, which carries the agent: one file is the whole install.
#![forbid(unsafe_code)]
#![cfg_attr(not(test), no_main)]

mod began;
mod bindings;
mod bootstrap;
mod cli;
mod colour;
mod command_names;
mod commands;
mod directory;
mod doctor;
mod driver;
mod edges;
mod installed;
mod pool;
mod print;
mod query_commands;
mod report_command;
mod serve;
mod start;
mod this_machine;
mod timeline;
mod unconnected;
mod view;

// A C `main`: std's own start would reopen descriptors 0-2 and ignore SIGPIPE before we could see how we were started.
#[cfg(not(test))]
rlaunch_sys::c_main!(start::run);
// The test harness brings a `main` of its own.
#[cfg(test)]
const _: fn() -> u8 = start::run;
