//! Rows of the picture: a host's name, a rank, or several ranks or hosts where there are too many for a row each.

use crate::view::timeline::words::host;
use rlaunch_core::timeline::{Row, RowKey, Timeline};

/// Most rows of ranks.
const MOST: usize = 64;
/// Most hosts that have a section each.
const HOSTS: usize = 32;

/// Row of the picture.
pub(super) struct Lane<'a> {
    /// Text at its left.
    pub(super) label: String,
    /// Name of a host, above its ranks.
    pub(super) is_header: bool,
    /// Hosts of the row, by node.
    pub(super) nodes: (u32, u32),
    /// Ranks of the row.
    pub(super) ranks: Vec<(RowKey, &'a Row)>,
}

/// All rows, from top to bottom.
pub(super) fn lanes(timeline: &Timeline) -> Vec<Lane<'_>> {
    let mut sections: Vec<(u32, Vec<(RowKey, &Row)>)> = Vec::new();
    for (key, row) in &timeline.rows {
        match sections.last_mut() {
            Some((node, ranks)) if *node == key.0 => ranks.push((*key, row)),
            _ => sections.push((key.0, vec![(*key, row)])),
        }
    }
    if sections.len() > HOSTS { hosts(timeline, sections) } else { ranks(timeline, sections) }
}

/// A section for each host.
fn ranks<'a>(timeline: &Timeline, sections: Vec<(u32, Vec<(RowKey, &'a Row)>)>) -> Vec<Lane<'a>> {
    let rows = |fold: usize| sections.iter().map(|(_, ranks)| ranks.len().div_ceil(fold)).sum::<usize>();
    let mut fold = 1;
    while rows(fold) > MOST && fold < timeline.rows.len() {
        fold += 1;
    }
    let has_headers = timeline.hosts.len() > 1;
    let mut lanes = Vec::new();
    for (node, ranks) in sections {
        if has_headers {
            let label = host(timeline, node);
            lanes.push(Lane { label, is_header: true, nodes: (node, node), ranks: Vec::new() });
        }
        for part in ranks.chunks(fold) {
            let numbers = || part.iter().map(|((_, rank), _)| *rank);
            let (first, last) = (numbers().min().unwrap_or(0), numbers().max().unwrap_or(0));
            let label = if first == last { format!("rank {first}") } else { format!("ranks {first}\u{2013}{last}") };
            lanes.push(Lane { label, is_header: false, nodes: (node, node), ranks: part.to_vec() });
        }
    }
    lanes
}

/// A row for each host, or for several of them.
fn hosts<'a>(timeline: &Timeline, sections: Vec<(u32, Vec<(RowKey, &'a Row)>)>) -> Vec<Lane<'a>> {
    let fold = sections.len().div_ceil(MOST);
    let lane = |part: &[(u32, Vec<(RowKey, &'a Row)>)]| {
        let nodes = part.first().zip(part.last()).map_or((0, 0), |((first, _), (last, _))| (*first, *last));
        let (first, last) = (host(timeline, nodes.0), host(timeline, nodes.1));
        let label = if part.len() == 1 { first } else { format!("{first} \u{2026} {last}") };
        let ranks = part.iter().flat_map(|(_, ranks)| ranks.iter().copied()).collect();
        Lane { label, is_header: false, nodes, ranks }
    };
    sections.chunks(fold).map(lane).collect()
}
