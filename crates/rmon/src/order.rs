//! Rows in the order of their index, and found by their time mark.
//!
//! A treap (Seidel and Aragon, "Randomized search trees", 1996) whose nodes stand in the rows. Each node knows the
//! newest stamp below it, so that the next row changed since some time is found in O(log n), whatever lies between.

use core::cmp::Ordering;

use flowgauge_wire::scattered;

/// No row.
pub(crate) const NONE: u32 = u32::MAX;

/// Instead of the parent: the row is not in the order.
const OUT: u32 = u32::MAX - 1;

/// The place of a row in an order.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Node {
    left: u32,
    right: u32,
    parent: u32,
    /// The newest stamp of this row and of those below.
    newest: u32,
}

impl Default for Node {
    fn default() -> Node {
        Node {
            left: NONE,
            right: NONE,
            parent: OUT,
            newest: 0,
        }
    }
}

impl Node {
    /// Whether the row is in the order.
    pub(crate) fn is_in(&self) -> bool {
        self.parent != OUT
    }
}

/// Rows that stand in an order, by their number.
pub(crate) trait Ordered {
    /// The node of a row.
    fn node(&self, row: u32) -> &Node;
    /// The node of a row, to be changed.
    fn node_mut(&mut self, row: u32) -> &mut Node;
    /// When a row was changed last.
    fn stamp(&self, row: u32) -> u32;
    /// How two rows stand to each other.
    fn compare(&self, one: u32, other: u32) -> Ordering;
}

/// An order of rows.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Order {
    root: u32,
    secret: u64,
}

impl Order {
    /// An empty one. The `secret` keeps the shape of the tree from those who choose keys and their sequence.
    pub(crate) const fn new(secret: u64) -> Order {
        Order { root: NONE, secret }
    }

    fn priority(&self, row: u32) -> u64 {
        scattered(u64::from(row) ^ self.secret)
    }

    /// Begins anew with these rows, which are sorted.
    pub(crate) fn build(&mut self, rows: &mut impl Ordered, sorted: impl IntoIterator<Item = u32>) {
        self.root = NONE;
        let mut last = NONE;
        for row in sorted {
            let priority = self.priority(row);
            let (mut parent, mut left) = (last, NONE);
            while parent != NONE && self.priority(parent) < priority {
                // Nothing more comes below it.
                Self::renew(rows, parent);
                (left, parent) = (parent, rows.node(parent).parent);
            }
            *rows.node_mut(row) = Node {
                left,
                right: NONE,
                parent,
                newest: 0,
            };
            if left != NONE {
                rows.node_mut(left).parent = row;
            }
            match parent {
                NONE => self.root = row,
                parent => rows.node_mut(parent).right = row,
            }
            last = row;
        }
        while last != NONE {
            Self::renew(rows, last);
            last = rows.node(last).parent;
        }
    }

    /// Puts in a row that is not in it.
    pub(crate) fn insert(&mut self, rows: &mut impl Ordered, row: u32) {
        let (mut parent, mut at, mut left) = (NONE, self.root, false);
        while at != NONE {
            parent = at;
            left = rows.compare(row, at) == Ordering::Less;
            let node = rows.node(at);
            at = if left { node.left } else { node.right };
        }
        *rows.node_mut(row) = Node {
            parent,
            newest: rows.stamp(row),
            ..Node::default()
        };
        match parent {
            NONE => self.root = row,
            _ if left => rows.node_mut(parent).left = row,
            _ => rows.node_mut(parent).right = row,
        }
        self.touch(rows, row);
        let priority = self.priority(row);
        loop {
            let parent = rows.node(row).parent;
            if parent == NONE || self.priority(parent) >= priority {
                break;
            }
            self.rise(rows, row);
        }
    }

    /// Takes a row out.
    pub(crate) fn remove(&mut self, rows: &mut impl Ordered, row: u32) {
        loop {
            let Node { left, right, .. } = *rows.node(row);
            let child = match (left, right) {
                (NONE, NONE) => break,
                (NONE, only) | (only, NONE) => only,
                (one, other) if self.priority(one) > self.priority(other) => one,
                (_, other) => other,
            };
            self.rise(rows, child);
        }
        let mut at = rows.node(row).parent;
        self.replace(rows, at, row, NONE);
        *rows.node_mut(row) = Node::default();
        while at != NONE {
            Self::renew(rows, at);
            at = rows.node(at).parent;
        }
    }

    /// Follows the stamp of a row, which has grown.
    pub(crate) fn touch(&self, rows: &mut impl Ordered, row: u32) {
        if !rows.node(row).is_in() {
            return;
        }
        let stamp = rows.stamp(row);
        let mut at = row;
        while at != NONE {
            let node = rows.node_mut(at);
            if node.newest >= stamp && at != row {
                break;
            }
            node.newest = node.newest.max(stamp);
            at = node.parent;
        }
    }

    /// The first row of those that `position` calls greater that was changed at `since` or later.
    pub(crate) fn after<R: Ordered>(
        &self,
        rows: &R,
        since: u32,
        mut position: impl FnMut(&R, u32) -> Ordering,
    ) -> Option<u32> {
        let (mut at, mut last, mut greater) = (self.root, NONE, false);
        while at != NONE {
            (last, greater) = (at, position(rows, at) == Ordering::Greater);
            let node = rows.node(at);
            at = if greater { node.left } else { node.right };
        }
        // Upwards from where the search ended: rows that are greater, each with all to its right.
        while last != NONE {
            let node = rows.node(last);
            if greater {
                if rows.stamp(last) >= since {
                    return Some(last);
                }
                if let Some(found) = Self::leftmost(rows, node.right, since) {
                    return Some(found);
                }
            }
            greater = node.parent != NONE && rows.node(node.parent).left == last;
            last = node.parent;
        }
        None
    }

    /// The first row at or below `at` that was changed at `since` or later.
    fn leftmost(rows: &impl Ordered, mut at: u32, since: u32) -> Option<u32> {
        if at == NONE || rows.node(at).newest < since {
            return None;
        }
        loop {
            let node = rows.node(at);
            if node.left != NONE && rows.node(node.left).newest >= since {
                at = node.left;
            } else if rows.stamp(at) >= since {
                return Some(at);
            } else if node.right != NONE {
                at = node.right;
            } else {
                return None;
            }
        }
    }

    /// Rotates a row above its parent.
    fn rise(&mut self, rows: &mut impl Ordered, row: u32) {
        let parent = rows.node(row).parent;
        let above = rows.node(parent).parent;
        let inner = if rows.node(parent).left == row {
            let inner = core::mem::replace(&mut rows.node_mut(row).right, parent);
            rows.node_mut(parent).left = inner;
            inner
        } else {
            let inner = core::mem::replace(&mut rows.node_mut(row).left, parent);
            rows.node_mut(parent).right = inner;
            inner
        };
        if inner != NONE {
            rows.node_mut(inner).parent = parent;
        }
        rows.node_mut(parent).parent = row;
        self.replace(rows, above, parent, row);
        rows.node_mut(row).parent = above;
        Self::renew(rows, parent);
        Self::renew(rows, row);
    }

    /// Puts `new` where `old` is below `parent`.
    fn replace(&mut self, rows: &mut impl Ordered, parent: u32, old: u32, new: u32) {
        if parent == NONE {
            self.root = new;
            return;
        }
        let node = rows.node_mut(parent);
        if node.left == old {
            node.left = new;
        } else {
            node.right = new;
        }
    }

    /// Finds the newest stamp anew.
    fn renew(rows: &mut impl Ordered, row: u32) {
        let Node { left, right, .. } = *rows.node(row);
        let below = [left, right].map(|child| match child {
            NONE => 0,
            child => rows.node(child).newest,
        });
        rows.node_mut(row).newest = rows.stamp(row).max(below[0]).max(below[1]);
    }
}

#[cfg(test)]
mod tests {
    use core::cell::Cell;

    use proptest::prelude::*;

    use super::*;

    #[derive(Default)]
    struct Rows {
        rows: Vec<(u32, u32, Node)>,
        visits: Cell<usize>,
    }

    impl Ordered for Rows {
        fn node(&self, row: u32) -> &Node {
            &self.rows[row as usize].2
        }
        fn node_mut(&mut self, row: u32) -> &mut Node {
            &mut self.rows[row as usize].2
        }
        fn stamp(&self, row: u32) -> u32 {
            self.visits.set(self.visits.get() + 1);
            self.rows[row as usize].1
        }
        fn compare(&self, one: u32, other: u32) -> Ordering {
            self.rows[one as usize].0.cmp(&self.rows[other as usize].0)
        }
    }

    fn after(order: &Order, rows: &Rows, key: u32, since: u32) -> Option<u32> {
        let found = order.after(rows, since, |rows, row| {
            rows.visits.set(rows.visits.get() + 1);
            rows.rows[row as usize].0.cmp(&key)
        });
        found.map(|row| rows.rows[row as usize].0)
    }

    proptest! {
        #[test]
        fn rows_are_found_as_in_a_list(steps in proptest::collection::vec((0u8..4, 0u32..60, 1u32..50), 1..300)) {
            let mut rows = Rows::default();
            let mut order = Order::new(7);
            let mut model: Vec<(u32, u32, u32)> = Vec::new(); // key, stamp, row
            for (step, key, number) in steps {
                let known = model.iter().position(|row| row.0 == key);
                match (step, known) {
                    (0 | 1, None) => {
                        let row = rows.rows.len() as u32;
                        rows.rows.push((key, number, Node::default()));
                        order.insert(&mut rows, row);
                        model.push((key, number, row));
                        model.sort_unstable();
                    }
                    (0 | 1, Some(at)) => {
                        let (_, stamp, row) = &mut model[at];
                        *stamp += number;
                        rows.rows[*row as usize].1 = *stamp;
                        order.touch(&mut rows, *row);
                    }
                    (2, Some(at)) => {
                        let (_, _, row) = model.remove(at);
                        order.remove(&mut rows, row);
                    }
                    _ => {}
                }
                let expected = model.iter().find(|row| row.0 > key && row.1 >= number).map(|row| row.0);
                prop_assert_eq!(after(&order, &rows, key, number), expected);
            }
        }
    }

    #[test]
    fn an_order_is_built_of_sorted_rows() {
        let mut rows = Rows::default();
        let mut order = Order::new(3);
        rows.rows = (0..5000)
            .map(|key| (key, 1 + key % 97, Node::default()))
            .collect();
        order.build(&mut rows, 0..5000);
        for row in (0..5000).step_by(7) {
            order.remove(&mut rows, row);
        }
        for (key, since) in [(0, 1), (13, 90), (4000, 97), (4998, 1), (6, 7)] {
            let mut expected = (key + 1..5000).filter(|key| key % 7 != 0 && 1 + key % 97 >= since);
            assert_eq!(after(&order, &rows, key, since), expected.next());
        }
    }

    #[test]
    fn few_rows_are_visited_for_the_next_changed_one() {
        const ROWS: u32 = 100_000;
        let mut rows = Rows::default();
        let mut order = Order::new(99);
        for key in 0..ROWS {
            rows.rows.push((key, 1, Node::default()));
            order.insert(&mut rows, key);
        }
        for key in (0..ROWS).step_by(1000) {
            rows.rows[key as usize].1 = 5;
            order.touch(&mut rows, key);
        }
        rows.visits.set(0);
        let (mut found, mut key) = (1, 0);
        while let Some(next) = after(&order, &rows, key, 5) {
            assert_eq!(next % 1000, 0);
            (found, key) = (found + 1, next);
        }
        assert_eq!(found, 100);
        // Twice the expected depth of a treap (2 ln n = 23) for each, with room for chance.
        assert!(rows.visits.get() < 100 * 150, "{}", rows.visits.get());
    }
}
