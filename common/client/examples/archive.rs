//! The library for C. It is an example so that its libraries have the features of the whole workspace.
//! `scripts/build-client --profile ci` links it from what was built for tests.
use rlaunch_client as _;
