//! Questions of the agent that holds a store about the owners of connections: passed on to the hosts of these connections.
//!
//! Agents have no edges to each other, so the questions go through ours. No machine receives the questions: they are about connections.

use super::nodes::Nodes;
use rlaunch_base::capped::Capped;
use rlaunch_base::id::NodeId;
use rlaunch_protocol::master_store::Guard;
use rlaunch_protocol::wire::peer_identity::{Address, Answer, Comer, Question, Verdict};
use rlaunch_protocol::wire::to_node::ToNode;
use std::collections::BTreeMap;

/// Which host has which address.
#[derive(Debug, Default)]
pub(super) struct Directory {
    hosts: BTreeMap<Address, Vec<NodeId>>,
}

impl Directory {
    /// A host has said by which addresses it may be seen.
    pub(super) fn learn(&mut self, node: NodeId, addresses: &[Address]) {
        for address in addresses {
            let hosts = self.hosts.entry(*address).or_default();
            if !hosts.contains(&node) {
                hosts.push(node);
            }
        }
    }

    /// A connection from an address of a host is accepted.
    fn let_in(&self, nodes: &mut Nodes, question: &Question) {
        let verdict = |comer: &Comer| {
            let is_ours = self.hosts.contains_key(&comer.from.address);
            Verdict { comer: *comer, member: is_ours.then(|| comer.from.address.number()), foreign: !is_ours }
        };
        send_verdicts(nodes, question.asker, question.comers.iter().map(verdict));
    }

    /// Each host is asked about those that come from it. A connection from an address that no host has is answered at once: it is not of
    /// the job.
    fn pass_on(&self, nodes: &mut Nodes, question: Question) {
        for (host, comers) in self.by_host(&question) {
            match host {
                Some(host) => {
                    for comers in Capped::chunks(comers) {
                        let question = ToNode::FindOwners(Question { comers, ..question });
                        send(nodes, host, &question);
                    }
                }
                None => {
                    let foreign = |comer| Verdict { comer, member: None, foreign: true };
                    send_verdicts(nodes, question.asker, comers.into_iter().map(foreign));
                }
            }
        }
    }

    /// Whether a verdict is about a connection that comes from this host and can come from no other.
    fn is_of(&self, node: NodeId, verdict: &Verdict) -> bool {
        self.hosts.get(&verdict.comer.from.address).is_some_and(|hosts| hosts.as_slice() == [node])
    }

    /// The host to be asked about each connection; an address that several have, as those of bridges to containers, has no owner.
    fn by_host(&self, question: &Question) -> BTreeMap<Option<NodeId>, Vec<Comer>> {
        let mut all: BTreeMap<Option<NodeId>, Vec<Comer>> = BTreeMap::new();
        for comer in &*question.comers {
            let host = match self.hosts.get(&comer.from.address).map(Vec::as_slice) {
                Some([host]) => Some(*host),
                Some(_) | None => None,
            };
            all.entry(host).or_default().push(*comer);
        }
        all
    }
}

/// Asks those hosts, unless the address is all that matters.
pub(super) fn ask(nodes: &mut Nodes, directory: &Directory, asker: NodeId, question: Question) {
    // The agent's own name for itself does not count.
    let question = Question { asker, ..question };
    match question.guard {
        Guard::Hosts => directory.let_in(nodes, &question),
        Guard::Job | Guard::Off => directory.pass_on(nodes, question),
    }
}

fn send_verdicts(nodes: &mut Nodes, asker: NodeId, verdicts: impl Iterator<Item = Verdict>) {
    for verdicts in Capped::chunks(verdicts) {
        send(nodes, asker, &ToNode::OwnersFound(Answer { asker, verdicts }));
    }
}

/// Passes an answer on to the node that has asked. A host can answer for its own addresses only.
pub(super) fn answer(nodes: &mut Nodes, directory: &Directory, node: NodeId, answer: Answer) {
    let own = answer.verdicts.into_vec().into_iter().filter(|verdict| directory.is_of(node, verdict));
    for verdicts in Capped::chunks(own) {
        send(nodes, answer.asker, &ToNode::OwnersFound(Answer { asker: answer.asker, verdicts }));
    }
}

fn send(nodes: &mut Nodes, node: NodeId, message: &ToNode) {
    if !nodes.send(node, message) {
        tracing::debug!("{message:?} for node {node} is not sent: its edge has ended");
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::net::SocketAddr;

    fn comer(text: &str) -> Comer {
        Comer { from: text.parse::<SocketAddr>().unwrap().into(), number: 0 }
    }

    #[test]
    fn each_host_is_asked_about_addresses_of_that_host() {
        let mut directory = Directory::default();
        let (a, b) = (NodeId::new(1), NodeId::new(2));
        let address = |text: &str| comer(text).from.address;
        let docker = comer("172.17.0.1:1");
        directory.learn(a, &[address("10.0.0.1:1"), docker.from.address]);
        directory.learn(b, &[address("10.0.0.2:1"), docker.from.address]);
        directory.learn(b, &[address("10.0.0.2:1")]);
        let all = ["10.0.0.2:5", "10.0.0.1:7", "10.0.0.9:1", "172.17.0.1:1", "[::ffff:10.0.0.2]:6"].map(comer);
        let comers = Capped::chunks(all).remove(0);
        let all = directory.by_host(&Question { asker: a, to: comer("10.0.0.1:9").from, comers, guard: Guard::Job });
        let expected = [
            (None, vec![comer("10.0.0.9:1"), docker]),
            (Some(a), vec![comer("10.0.0.1:7")]),
            (Some(b), vec![comer("10.0.0.2:5"), comer("10.0.0.2:6")]),
        ];
        assert_eq!(all, BTreeMap::from(expected));
    }

    #[test]
    fn answers_of_a_host_count_only_for_addresses_of_that_host() {
        let mut directory = Directory::default();
        let (a, b) = (NodeId::new(1), NodeId::new(2));
        let docker = comer("172.17.0.1:1");
        directory.learn(a, &[comer("10.0.0.1:1").from.address, docker.from.address]);
        directory.learn(b, &[comer("10.0.0.2:1").from.address, docker.from.address]);
        let says = |node, comer| directory.is_of(node, &Verdict { comer, member: Some(1), foreign: false });
        assert!(says(a, comer("10.0.0.1:7")) && says(b, comer("[::ffff:10.0.0.2]:6")));
        assert!(!says(b, comer("10.0.0.1:7")), "a host does not answer for another host");
        assert!(!says(a, docker) && !says(b, docker), "one that several have is nobody's");
        assert!(!says(a, comer("10.0.0.9:1")), "nor is one that none has");
    }
}
