//! The record of a store whose clients have met its limits.

use super::*;
use rlaunch_protocol::wire::limit::{Limit, Met};
use rlaunch_protocol::wire::node_news::{NodeNews, StoreNews};

#[test]
fn each_report_of_a_limit_is_recorded() {
    let mut s = Script::running(&spec(2));
    let met = |limit, key: &str| Met::at(limit, key.as_bytes(), 9, 8);
    for (limit, key, count) in [(Limit::Value, "a", 1), (Limit::Value, "b", 4), (Limit::Keys, "c", 1)] {
        s.receive(ToRoot::News(NodeNews::Store(StoreNews::Limit { met: met(limit, key), count })));
    }
    let count = |what: &What| {
        let What::NodeNews { news: NodeNews::Store(StoreNews::Limit { count, .. }), .. } = what else { return None };
        Some(*count)
    };
    assert_eq!(s.log.iter().filter_map(count).collect::<Vec<_>>(), [1, 4, 1]);
}
