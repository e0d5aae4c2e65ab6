//! The record of a store whose clients have met its limits.

use super::*;
use crate::wire::limit::{Limit, Met};

#[test]
fn each_report_of_a_limit_is_recorded() {
    let mut s = Script::running(&spec(2));
    let met = |limit, key: &str| Met::at(limit, key.as_bytes(), 9, 8);
    for (limit, key, count) in [(Limit::Value, "a", 1), (Limit::Value, "b", 4), (Limit::Keys, "c", 1)] {
        s.hears(ToRoot::StoreLimit { met: met(limit, key), count });
    }
    let counted =
        s.log.iter().filter_map(|what| if let What::StoreLimit { count, .. } = what { Some(*count) } else { None });
    assert_eq!(counted.collect::<Vec<_>>(), [1, 4, 1]);
}
