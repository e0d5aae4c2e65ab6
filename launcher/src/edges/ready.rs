//! Edges that have to be polled. Each edge has a waker of its own: a job of a thousand hosts does not poll all edges whenever one has
//! something to say. No edge is forgotten when a round has no time for more (tokio's budget).

use rlaunch_base::id::NodeId;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::task::{Context, Wake, Waker};

/// The edges of a job.
pub(super) struct Ready {
    shared: Arc<Shared>,
    wakers: Vec<Waker>,
}

#[derive(Default)]
struct Shared(Mutex<State>);

#[derive(Default)]
struct State {
    nodes: Vec<NodeId>,
    /// By node: it is among them.
    marked: Vec<bool>,
    /// Wakes the machine thread.
    parent: Option<Waker>,
}

/// An edge, as its stream knows it.
struct Edge {
    id: NodeId,
    shared: Arc<Shared>,
}

impl Ready {
    pub(super) fn new(nodes: usize) -> Self {
        let shared = Arc::new(Shared::default());
        shared.lock().marked.resize(nodes, false);
        let edge = |id| Waker::from(Arc::new(Edge { id, shared: Arc::clone(&shared) }));
        Self { wakers: (0..).map(NodeId::new).take(nodes).map(edge).collect(), shared }
    }

    /// Nodes whose edges were ready, or marked, since the last call. From now on `cx` is woken for more.
    pub(super) fn take(&self, cx: &Context<'_>) -> Vec<NodeId> {
        let mut state = self.shared.lock();
        if !state.parent.as_ref().is_some_and(|parent| parent.will_wake(cx.waker())) {
            state.parent = Some(cx.waker().clone());
        }
        let nodes = std::mem::take(&mut state.nodes);
        for node in &nodes {
            if let Some(marked) = state.marked.get_mut(node.index()) {
                *marked = false;
            }
        }
        nodes
    }

    /// To be looked at in the next round.
    pub(super) fn mark(&self, id: NodeId) {
        if let Some(waker) = self.wakers.get(id.index()) {
            waker.wake_by_ref();
        }
    }

    /// The context with which an edge is polled.
    pub(super) fn context(&self, id: NodeId) -> Option<Context<'_>> {
        self.wakers.get(id.index()).map(Context::from_waker)
    }
}

impl Shared {
    fn lock(&self) -> MutexGuard<'_, State> {
        self.0.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

impl Wake for Edge {
    fn wake(self: Arc<Self>) {
        self.wake_by_ref();
    }

    fn wake_by_ref(self: &Arc<Self>) {
        let mut state = self.shared.lock();
        let State { nodes, marked, parent } = &mut *state;
        if let Some(marked) = marked.get_mut(self.id.index())
            && !std::mem::replace(marked, true)
        {
            nodes.push(self.id);
            let parent = parent.clone();
            drop(state);
            if let Some(parent) = parent {
                parent.wake();
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use std::sync::atomic::{AtomicU32, Ordering};

    #[derive(Default)]
    struct Count(AtomicU32);

    impl Wake for Count {
        fn wake(self: Arc<Self>) {
            self.0.fetch_add(1, Ordering::Relaxed);
        }
    }

    #[test]
    fn edge_is_named_once_and_wakes_once_until_polled() {
        let count = Arc::new(Count::default());
        let waker = Waker::from(Arc::clone(&count));
        let cx = Context::from_waker(&waker);
        let ready = Ready::new(3);
        let (a, b) = (NodeId::new(0), NodeId::new(2));
        ready.mark(b);
        assert_eq!(ready.take(&cx), [b], "also before anybody waited");
        for id in [a, b, a, NodeId::new(7)] {
            ready.mark(id);
        }
        ready.context(b).unwrap().waker().wake_by_ref();
        assert_eq!(count.0.load(Ordering::Relaxed), 2);
        assert_eq!((ready.take(&cx), ready.take(&cx)), (vec![a, b], vec![]));
        ready.mark(a);
        assert_eq!((ready.take(&cx), count.0.load(Ordering::Relaxed)), (vec![a], 3));
    }
}
