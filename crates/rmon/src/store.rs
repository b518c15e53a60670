//! What hosts and matrices have in common: rows of network addresses, and below each its applications' rows.
//!
//! ```text
//!  row (protocol, address...)  --> application ip --> application tcp --> application http      by LocalIndex
//!   |  found by hash, in one or two orders of its index, least recently used goes first
//! ```
//!
//! The order of the application layer's tables is that of the network layer's with the application's LocalIndex
//! behind it, so one order serves both.

use core::cmp::{Ordering, Reverse};
use core::hash::{BuildHasher, Hash};
use std::collections::BinaryHeap;

use flowgauge_sys::prefetch::prefetch_address;
use flowgauge_wire::FoldedState;
use hashbrown::HashTable;

use crate::order::{NONE, Node, Order, Ordered};

/// What tells rows apart.
pub(crate) trait Key: Copy + Eq + Hash {
    /// Addresses in it.
    const ADDRESSES: usize;
    /// LocalIndex of its network protocol.
    fn network(&self) -> u32;
    /// The index in one of the orders, from LocalIndex on (RFC 2578, 7.7).
    fn index(&self, order: usize) -> impl Iterator<Item = u32>;
    /// The order of indexes, as [`Iterator::cmp`] would tell it.
    fn compare(&self, other: &Self, order: usize) -> Ordering;
    /// A number that is in the same order, as far as it goes: of two that are equal nothing is known.
    fn start(&self, order: usize) -> u64;
}

/// A row of the network layer with `N` counters in `O` orders.
#[derive(Clone, Debug)]
pub(crate) struct Row<K, const N: usize, const O: usize> {
    pub(crate) key: K,
    pub(crate) counters: [u64; N],
    /// Larger for rows used later, or made later.
    pub(crate) used: u64,
    pub(crate) created: u32,
    /// When it was changed last.
    pub(crate) stamp: u32,
    /// Odd while the row is there; another one for each that was in this place.
    generation: u32,
    /// The first application's row, or the next free place.
    first: u32,
    nodes: [Node; O],
}

/// A row of the application layer: the first `A` of the counters.
#[derive(Clone, Debug)]
pub(crate) struct Application<const A: usize> {
    pub(crate) counters: [u64; A],
    used: u64,
    /// LocalIndex.
    pub(crate) protocol: u32,
    row: u32,
    /// The next application's row, or the next free place.
    next: u32,
    pub(crate) created: u32,
    pub(crate) stamp: u32,
    generation: u32,
}

/// A row that was there: whether it still is, says its generation.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub(crate) struct Handle {
    row: u32,
    generation: u32,
}

impl Handle {
    /// No row.
    pub(crate) const NONE: Handle = Handle {
        row: NONE,
        generation: 0,
    };
}

/// When a row is used.
#[derive(Clone, Copy, Debug)]
pub(crate) struct Moment {
    /// The tick.
    pub(crate) stamp: u32,
    /// The number of the packet and the row's place in it, larger for later uses.
    pub(crate) used: u64,
}

/// How many rows there were and may be (RFC 4502: Inserts, Deletes, MaxDesiredEntries, DroppedFrames).
#[derive(Clone, Debug, Default, PartialEq, Eq)]
pub(crate) struct Account {
    pub(crate) inserts: u64,
    pub(crate) deletes: u64,
    pub(crate) dropped: u64,
    /// Entries at most; -1 means as many as `limit` allows.
    pub(crate) desired: i32,
    /// Entries at most, whatever is desired.
    pub(crate) limit: u32,
}

impl Account {
    pub(crate) fn new(desired: i32, limit: u32) -> Account {
        Account {
            desired,
            limit,
            ..Account::default()
        }
    }

    /// Entries at most.
    pub(crate) fn most(&self) -> u64 {
        u64::try_from(self.desired).map_or(self.limit, |most| self.limit.min(most as u32)) as u64
    }

    /// Whether `more` entries have no room.
    pub(crate) fn is_full(&self, more: u64) -> bool {
        self.inserts - self.deletes + more > self.most()
    }
}

/// Who was used least recently. A queue of what is known; entries that were used since go back into it when they come
/// to its front, so that using a row costs nothing.
#[derive(Clone, Debug, Default)]
struct Recency {
    /// Last use as far as known, place, generation.
    queue: Option<BinaryHeap<Reverse<(Use, u32, u32)>>>,
}

/// When something was used: [`Moment::used`], and what comes first of what was used at once.
type Use = (u64, u32);

impl Recency {
    fn push(&mut self, used: Use, row: u32, generation: u32) {
        if let Some(queue) = &mut self.queue {
            queue.push(Reverse((used, row, generation)));
        }
    }

    /// The least recently used one. `of` tells generation and use of each place, `places` of them.
    fn oldest(&mut self, places: usize, live: u64, of: impl Fn(u32) -> (u32, Use)) -> Option<u32> {
        let stale = |queue: &BinaryHeap<_>| queue.len() as u64 > 2 * live + 1024;
        if self.queue.as_ref().is_none_or(stale) {
            let rows = (0..places as u32).map(|row| (of(row), row));
            let live = rows.filter(|((generation, _), _)| generation % 2 == 1);
            self.queue = Some(
                live.map(|((generation, used), row)| Reverse((used, row, generation)))
                    .collect(),
            );
        }
        let queue = self.queue.as_mut()?;
        while let Some(Reverse((known, row, generation))) = queue.pop() {
            match of(row) {
                (now, _) if now != generation => {}
                (_, used) if used > known => queue.push(Reverse((used, row, generation))),
                _ => return Some(row),
            }
        }
        None
    }
}

/// Rows of addresses with `N` counters, `A` of them per application, in `O` orders.
#[derive(Clone, Debug)]
pub(crate) struct Store<K, const N: usize, const A: usize, const O: usize> {
    rows: Vec<Row<K, N, O>>,
    applications: Vec<Application<A>>,
    free_row: u32,
    free_application: u32,
    index: HashTable<u32>,
    orders: [Order; O],
    /// Rows that are yet to be put in each order, which is done when somebody looks; `None` if all rows are to be, as
    /// nobody has looked for long.
    fresh: [Option<Vec<u32>>; O],
    recent_rows: Recency,
    recent_applications: Recency,
    /// Whether the oldest row goes first, instead of the least recently used one.
    first_in_first_out: bool,
    /// Of the network layer; each row counts once per order.
    pub(crate) network: Account,
    /// Of the application layer.
    pub(crate) application: Account,
}

/// Counters at some time, by place of the row, with its generation.
#[derive(Clone, Debug, Default)]
pub(crate) struct Snapshot<const N: usize, const A: usize> {
    rows: Vec<(u32, [u64; N])>,
    applications: Vec<(u32, [u64; A])>,
}

/// What was counted since; all of a row that was not there.
fn difference<const N: usize>(
    known: Option<&(u32, [u64; N])>,
    generation: u32,
    counters: &[u64; N],
) -> [u64; N] {
    let known = known.filter(|(before, _)| *before == generation);
    let before = known.map_or([0; N], |(_, counters)| *counters);
    core::array::from_fn(|at| counters[at] - before[at])
}

/// The rows as one of the orders sees them.
struct View<'a, K, const N: usize, const O: usize> {
    rows: &'a mut [Row<K, N, O>],
    order: usize,
}

impl<K: Key, const N: usize, const O: usize> Ordered for View<'_, K, N, O> {
    fn node(&self, row: u32) -> &Node {
        &self.rows[row as usize].nodes[self.order]
    }
    fn node_mut(&mut self, row: u32) -> &mut Node {
        &mut self.rows[row as usize].nodes[self.order]
    }
    fn stamp(&self, row: u32) -> u32 {
        self.rows[row as usize].stamp
    }
    fn compare(&self, one: u32, other: u32) -> Ordering {
        let key = |row: u32| &self.rows[row as usize].key;
        key(one).compare(key(other), self.order)
    }
}

impl<K: Key, const N: usize, const A: usize, const O: usize> Store<K, N, A, O> {
    /// An empty one with these bounds.
    pub(crate) fn new(network: Account, application: Account) -> Self {
        let secret = |order: usize| FoldedState::default().hash_one(order);
        Store {
            rows: Vec::new(),
            applications: Vec::new(),
            free_row: NONE,
            free_application: NONE,
            index: HashTable::new(),
            orders: core::array::from_fn(|order| Order::new(secret(order))),
            fresh: [const { None }; O],
            recent_rows: Recency::default(),
            recent_applications: Recency::default(),
            first_in_first_out: false,
            network,
            application,
        }
    }

    /// One whose oldest row goes first: [`Moment::used`] is told when a row is made.
    pub(crate) fn first_in_first_out(network: Account) -> Self {
        Store {
            first_in_first_out: true,
            ..Store::new(network, Account::default())
        }
    }

    /// Whether so many new rows, with so many applications in all, take others' places.
    pub(crate) fn is_full(&self, rows: usize, applications: usize) -> bool {
        self.network.is_full((O * rows) as u64)
            || self.application.is_full((O * applications) as u64)
    }

    fn place(&self, key: &K) -> Option<u32> {
        self.place_of(key, FoldedState::default().hash_one(key))
    }

    fn place_of(&self, key: &K, hash: u64) -> Option<u32> {
        let same = |row: &u32| self.rows[*row as usize].key == *key;
        self.index.find(hash, same).copied()
    }

    /// Has the CPU fetch the row with this key, and its first applications, if it is there. Tells where it is for
    /// [`Store::resolve`].
    pub(crate) fn prefetch_key(&self, key: &K) -> Handle {
        let Some(row) = self.place(key) else {
            return Handle::NONE;
        };
        let handle = Handle { row, generation: 0 };
        self.prefetch(handle, 0);
        self.prefetch(handle, 1);
        handle
    }

    /// Has the CPU fetch a row; at the next step, when that is there, its first applications.
    pub(crate) fn prefetch(&self, handle: Handle, step: usize) {
        let fetch = |start: *const u8, lines: usize| {
            (0..lines).for_each(|line| prefetch_address(start.wrapping_add(64 * line)));
        };
        if step == 0 {
            let start = self.rows.as_ptr().wrapping_add(handle.row as usize);
            fetch(start.cast(), size_of::<Row<K, N, O>>().div_ceil(64));
        } else if let Some(row) = self.rows.get(handle.row as usize) {
            let start = self.applications.as_ptr().wrapping_add(row.first as usize);
            fetch(start.cast(), 3);
        }
    }

    /// The row with this key.
    pub(crate) fn find(&self, key: &K) -> Option<&Row<K, N, O>> {
        self.rows.get(self.place(key)? as usize)
    }

    /// The row with this key, which is made if need be; and those of its `applications`, in order of their
    /// LocalIndex. It is looked for in the `likely` place first. [`Handle::NONE`] if there is no room for it: the bound is 0.
    pub(crate) fn resolve(
        &mut self,
        key: &K,
        applications: &[u32],
        at: Moment,
        likely: Handle,
    ) -> Handle {
        let found = self.rows.get(likely.row as usize);
        let found = match found.is_some_and(|row| row.is_live() && row.key == *key) {
            true => Some(likely.row),
            false => {
                let hash = FoldedState::default().hash_one(key);
                let known = self.place_of(key, hash);
                known.or_else(|| self.insert(key, hash, at))
            }
        };
        let Some(row) = found else {
            return Handle::NONE;
        };
        let generation = self.rows[row as usize].generation;
        if !self.first_in_first_out {
            self.rows[row as usize].used = at.used;
        }
        self.resolve_applications(row, applications, at);
        Handle { row, generation }
    }

    fn insert(&mut self, key: &K, hash: u64, at: Moment) -> Option<u32> {
        while self.network.is_full(O as u64) {
            let oldest = self.oldest_row()?;
            self.delete(oldest);
        }
        let row = match self.free_row {
            NONE => {
                reserve(&mut self.rows);
                self.rows.push(Row {
                    key: *key,
                    counters: [0; N],
                    used: 0,
                    created: 0,
                    stamp: 0,
                    generation: 0,
                    first: NONE,
                    nodes: [Node::default(); O],
                });
                self.rows.len() as u32 - 1
            }
            free => {
                self.free_row = self.rows[free as usize].first;
                free
            }
        };
        let place = &mut self.rows[row as usize];
        place.key = *key;
        place.counters = [0; N];
        place.used = at.used;
        place.created = at.stamp;
        place.stamp = at.stamp;
        place.generation = place.generation.wrapping_add(1);
        place.first = NONE;
        self.recent_rows.push((at.used, 0), row, place.generation);
        let rows = &self.rows;
        let of = |row: &u32| FoldedState::default().hash_one(rows[*row as usize].key);
        self.index.insert_unique(hash, row, of);
        for fresh in &mut self.fresh {
            match fresh {
                // Then all at once is faster.
                Some(rows) if rows.len() > 64 + self.index.len() / 8 => *fresh = None,
                Some(rows) => rows.push(row),
                None => {}
            }
        }
        self.network.inserts += O as u64;
        Some(row)
    }

    fn resolve_applications(&mut self, row: u32, protocols: &[u32], at: Moment) {
        let (mut before, mut next) = (NONE, self.rows[row as usize].first);
        for &protocol in protocols {
            while let Some(application) = self.applications.get_mut(next as usize) {
                if application.protocol >= protocol {
                    break;
                }
                (before, next) = (next, application.next);
            }
            if let Some(found) = self.applications.get_mut(next as usize)
                && found.protocol == protocol
            {
                found.used = at.used;
                continue;
            }
            while self.application.is_full(O as u64) {
                let Some(oldest) = self.oldest_application() else {
                    return;
                };
                self.delete_application(oldest);
                (before, _) = self.application_place(row, protocol);
            }
            before = self.insert_application(row, before, protocol, at);
            next = self.applications[before as usize].next;
        }
    }

    /// The application's row below `row`, and the one before it.
    fn application_place(&self, row: u32, protocol: u32) -> (u32, Option<u32>) {
        let (mut before, mut at) = (NONE, self.rows[row as usize].first);
        while at != NONE {
            let application = &self.applications[at as usize];
            if application.protocol >= protocol {
                return (before, (application.protocol == protocol).then_some(at));
            }
            (before, at) = (at, application.next);
        }
        (before, None)
    }

    fn insert_application(&mut self, row: u32, before: u32, protocol: u32, at: Moment) -> u32 {
        let place = match self.free_application {
            NONE => {
                reserve(&mut self.applications);
                self.applications.push(Application {
                    counters: [0; A],
                    used: 0,
                    protocol: 0,
                    row: NONE,
                    next: NONE,
                    created: 0,
                    stamp: 0,
                    generation: 0,
                });
                self.applications.len() as u32 - 1
            }
            free => {
                self.free_application = self.applications[free as usize].next;
                free
            }
        };
        let link = match before {
            NONE => &mut self.rows[row as usize].first,
            before => &mut self.applications[before as usize].next,
        };
        let next = core::mem::replace(link, place);
        let application = &mut self.applications[place as usize];
        let generation = application.generation.wrapping_add(1);
        *application = Application {
            counters: [0; A],
            used: at.used,
            protocol,
            row,
            next,
            created: at.stamp,
            stamp: at.stamp,
            generation,
        };
        self.recent_applications
            .push((at.used, protocol), place, generation);
        self.application.inserts += O as u64;
        place
    }

    /// Adds to the counters of a row, if it is still there, and of its applications.
    pub(crate) fn add(
        &mut self,
        handle: Handle,
        applications: &[u32],
        counters: &[u64; N],
        at: Moment,
    ) {
        let Some(row) = live(&mut self.rows, handle) else {
            return;
        };
        add(&mut row.counters, counters);
        if !self.first_in_first_out {
            row.used = row.used.max(at.used);
        }
        let newer = at.stamp > row.stamp;
        row.stamp = row.stamp.max(at.stamp);
        let (mut next, mut wanted) = (row.first, applications.iter().peekable());
        while next != NONE {
            let application = &mut self.applications[next as usize];
            while wanted
                .next_if(|&&protocol| protocol < application.protocol)
                .is_some()
            {}
            if wanted.next_if_eq(&&application.protocol).is_some() {
                add(&mut application.counters, counters);
                application.used = application.used.max(at.used);
                application.stamp = application.stamp.max(at.stamp);
            }
            if wanted.peek().is_none() {
                break;
            }
            next = application.next;
        }
        if newer {
            for order in 0..O {
                let rows = &mut self.rows;
                self.orders[order].touch(&mut View { rows, order }, handle.row);
            }
        }
    }

    /// Sets the counters of a row. Returns whether they were others.
    pub(crate) fn set(&mut self, handle: Handle, counters: [u64; N], stamp: u32) -> bool {
        let Some(row) = live(&mut self.rows, handle).filter(|row| row.counters != counters) else {
            return false;
        };
        (row.counters, row.stamp) = (counters, stamp);
        for order in 0..O {
            let rows = &mut self.rows;
            self.orders[order].touch(&mut View { rows, order }, handle.row);
        }
        true
    }

    /// Notes the use of a row.
    pub(crate) fn touch(&mut self, handle: Handle, used: u64) {
        if let Some(row) = live(&mut self.rows, handle) {
            row.used = row.used.max(used);
        }
    }

    /// Counts frames that have no row, as none is desired.
    pub(crate) fn drop_frames(&mut self, frames: u64) {
        for account in [&mut self.network, &mut self.application] {
            if account.most() < O as u64 {
                account.dropped += frames;
            }
        }
    }

    /// Entries deleted.
    pub(crate) fn deletes(&self) -> u64 {
        self.network.deletes + self.application.deletes
    }

    fn oldest_row(&mut self) -> Option<u32> {
        let rows = &self.rows;
        let of = |row: u32| {
            let row = &rows[row as usize];
            (row.generation, (row.used, 0))
        };
        let live = self.index.len() as u64;
        self.recent_rows.oldest(rows.len(), live, of)
    }

    fn oldest_application(&mut self) -> Option<u32> {
        let of = |at: u32| {
            let application = &self.applications[at as usize];
            let used = (application.used, application.protocol);
            (application.generation, used)
        };
        let live = self.application.inserts - self.application.deletes;
        self.recent_applications
            .oldest(self.applications.len(), live, of)
    }

    fn delete(&mut self, row: u32) {
        while self.rows[row as usize].first != NONE {
            self.delete_application(self.rows[row as usize].first);
        }
        for order in 0..O {
            if self.rows[row as usize].nodes[order].is_in() {
                let rows = &mut self.rows;
                self.orders[order].remove(&mut View { rows, order }, row);
            }
        }
        let hash = FoldedState::default().hash_one(self.rows[row as usize].key);
        if let Ok(entry) = self.index.find_entry(hash, |other| *other == row) {
            entry.remove();
        }
        let place = &mut self.rows[row as usize];
        place.generation = place.generation.wrapping_add(1);
        place.first = self.free_row;
        self.free_row = row;
        self.network.deletes += O as u64;
    }

    fn delete_application(&mut self, at: u32) {
        let Application {
            row,
            protocol,
            next,
            ..
        } = self.applications[at as usize];
        let (before, _) = self.application_place(row, protocol);
        match before {
            NONE => self.rows[row as usize].first = next,
            before => self.applications[before as usize].next = next,
        }
        let application = &mut self.applications[at as usize];
        application.generation = application.generation.wrapping_add(1);
        application.next = self.free_application;
        self.free_application = at;
        self.application.deletes += O as u64;
    }

    /// Lets rows be changed at the first stamp, or before any if they were so up to `before`.
    pub(crate) fn purge(&mut self, before: u32) {
        let renew = |stamp: &mut u32| *stamp = u32::from(*stamp > before);
        self.rows.iter_mut().for_each(|row| renew(&mut row.stamp));
        let applications = self.applications.iter_mut();
        applications.for_each(|application| renew(&mut application.stamp));
        self.fresh = [const { None }; O];
    }

    /// Deletes the rows of a protocol: those of its addresses, and those of it as an application.
    pub(crate) fn delete_protocol(&mut self, protocol: u32) {
        for row in 0..self.rows.len() as u32 {
            let place = &self.rows[row as usize];
            if !place.is_live() {
                continue;
            }
            if place.key.network() == protocol {
                self.delete(row);
            } else if let (_, Some(at)) = self.application_place(row, protocol) {
                self.delete_application(at);
            }
        }
    }

    /// Deletes the rows with these keys.
    pub(crate) fn delete_where(&mut self, mut goes: impl FnMut(&K) -> bool) {
        for row in 0..self.rows.len() as u32 {
            let place = &self.rows[row as usize];
            if place.is_live() && goes(&place.key) {
                self.delete(row);
            }
        }
    }

    /// Deletes the least recently used rows until the bounds hold.
    pub(crate) fn shrink(&mut self) {
        while self.network.is_full(0) {
            let Some(oldest) = self.oldest_row() else {
                break;
            };
            self.delete(oldest);
        }
        while self.application.is_full(0) {
            let Some(oldest) = self.oldest_application() else {
                break;
            };
            self.delete_application(oldest);
        }
    }

    /// All rows, in no order.
    pub(crate) fn rows(&self) -> impl Iterator<Item = &Row<K, N, O>> {
        self.rows.iter().filter(|row| row.is_live())
    }

    /// The counters of all rows, to tell later what was counted since.
    pub(crate) fn snapshot(&self) -> Snapshot<N, A> {
        let rows = self.rows.iter();
        Snapshot {
            rows: rows.map(|row| (row.generation, row.counters)).collect(),
            applications: Vec::new(),
        }
    }

    /// Those of all applications.
    pub(crate) fn snapshot_of_applications(&self) -> Snapshot<N, A> {
        let all = self.applications.iter();
        Snapshot {
            rows: Vec::new(),
            applications: all.map(|it| (it.generation, it.counters)).collect(),
        }
    }

    /// What was counted since then: of each row, or of each application with its row.
    pub(crate) fn since<'a>(
        &'a self,
        snapshot: &'a Snapshot<N, A>,
    ) -> impl Iterator<Item = (&'a Row<K, N, O>, [u64; N])> {
        let rows = self
            .rows
            .iter()
            .enumerate()
            .filter(|(_, row)| row.is_live());
        rows.map(|(place, row)| {
            let known = snapshot.rows.get(place);
            (row, difference(known, row.generation, &row.counters))
        })
    }

    /// What was counted since then of the row with this key.
    pub(crate) fn row_since(&self, snapshot: &Snapshot<N, A>, key: &K) -> [u64; N] {
        let Some(place) = self.place(key) else {
            return [0; N];
        };
        let row = &self.rows[place as usize];
        let known = snapshot.rows.get(place as usize);
        difference(known, row.generation, &row.counters)
    }

    /// What was counted since then of an application of the row with this key.
    pub(crate) fn application_since(
        &self,
        snapshot: &Snapshot<N, A>,
        key: &K,
        protocol: u32,
    ) -> [u64; A] {
        let row = self.place(key);
        let place = row.and_then(|row| self.application_place(row, protocol).1);
        let Some(place) = place else {
            return [0; A];
        };
        let application = &self.applications[place as usize];
        let known = snapshot.applications.get(place as usize);
        difference(known, application.generation, &application.counters)
    }

    /// See [`Store::since`].
    pub(crate) fn applications_since<'a>(
        &'a self,
        snapshot: &'a Snapshot<N, A>,
    ) -> impl Iterator<Item = (&'a Row<K, N, O>, u32, [u64; A])> {
        let all = self.applications.iter().enumerate();
        let live = all.filter(|(_, application)| application.generation % 2 == 1);
        live.filter_map(|(place, application)| {
            let known = snapshot.applications.get(place);
            let counters = difference(known, application.generation, &application.counters);
            let row = self.rows.get(application.row as usize)?;
            Some((row, application.protocol, counters))
        })
    }

    /// A row's applications, by their LocalIndex.
    pub(crate) fn applications(&self, row: &Row<K, N, O>) -> impl Iterator<Item = &Application<A>> {
        let at = |at: u32| self.applications.get(at as usize);
        core::iter::successors(at(row.first), move |application| at(application.next))
    }

    /// The first row, in one of the orders, whose index is behind `index` (or is it, with `include`) and that was
    /// changed at `since` or later.
    pub(crate) fn next(
        &mut self,
        order: usize,
        index: &[u32],
        include: bool,
        since: u32,
    ) -> Option<&Row<K, N, O>> {
        self.put_in_order(order);
        let tree = self.orders[order];
        let view = View {
            rows: &mut self.rows,
            order,
        };
        let found = tree.after(&view, since, |view, row| {
            let key = &view.rows[row as usize].key;
            let position = key.index(order).cmp(index.iter().copied());
            match position {
                Ordering::Equal if include => Ordering::Greater,
                position => position,
            }
        })?;
        self.rows.get(found as usize)
    }

    /// Puts rows in an order in which they are not yet: new ones one by one, or all at once.
    fn put_in_order(&mut self, order: usize) {
        let Some(fresh) = self.fresh[order].replace(Vec::new()) else {
            // With the beginnings of their keys: sorting seldom looks at anything else then.
            let start = |row: &u32| (self.rows[*row as usize].key.start(order), *row);
            let mut sorted: Vec<(u64, u32)> = self.index.iter().map(start).collect();
            sorted.sort_unstable_by(|one, other| {
                let key = |row: u32| &self.rows[row as usize].key;
                let whole = || key(one.1).compare(key(other.1), order);
                one.0.cmp(&other.0).then_with(whole)
            });
            let sorted = sorted.into_iter().map(|(_, row)| row);
            let rows = &mut self.rows;
            self.orders[order].build(&mut View { rows, order }, sorted);
            return;
        };
        for row in fresh {
            let place = &self.rows[row as usize];
            if place.is_live() && !place.nodes[order].is_in() {
                let rows = &mut self.rows;
                self.orders[order].insert(&mut View { rows, order }, row);
            }
        }
    }

    /// The same of the applications' rows, whose index ends with the application's LocalIndex.
    pub(crate) fn next_application(
        &mut self,
        order: usize,
        index: &[u32],
        include: bool,
        since: u32,
    ) -> Option<(&Row<K, N, O>, &Application<A>)> {
        // Where the index is one below a row's, that row is asked for the applications from there on.
        let (from, least) = match Self::split(index) {
            Some((row, &[protocol])) if include => (row, protocol),
            Some((row, behind)) => (row, behind[0].saturating_add(1)),
            None => (index, 0),
        };
        let (below, mut include) = (from.len() < index.len(), true);
        let mut from = from.to_vec();
        let mut least = Some(least).filter(|_| below);
        loop {
            let row = self.next(order, &from, include, since)?;
            let (key, mut at) = (row.key, row.first);
            let least = match least.take() {
                Some(least) if key.index(order).eq(from.iter().copied()) => least,
                _ => 0,
            };
            while let Some(application) = self.applications.get(at as usize) {
                if application.protocol >= least && application.stamp >= since {
                    let row = &self.rows[application.row as usize];
                    return Some((row, &self.applications[at as usize]));
                }
                at = application.next;
            }
            from = key.index(order).collect();
            include = false;
        }
    }

    /// An index longer than a row's, as that of a row and what is behind.
    fn split(index: &[u32]) -> Option<(&[u32], &[u32])> {
        let mut length = 1;
        for _ in 0..K::ADDRESSES {
            length += 1 + usize::try_from(*index.get(length)?).ok()?;
        }
        index
            .split_at_checked(length)
            .filter(|(_, behind)| !behind.is_empty())
    }
}

impl<K, const N: usize, const O: usize> Row<K, N, O> {
    fn is_live(&self) -> bool {
        self.generation % 2 == 1
    }
}

/// The row of a handle, if it is still there.
fn live<K, const N: usize, const O: usize>(
    rows: &mut [Row<K, N, O>],
    handle: Handle,
) -> Option<&mut Row<K, N, O>> {
    let row = rows.get_mut(handle.row as usize)?;
    (row.generation == handle.generation).then_some(row)
}

fn add<const A: usize>(counters: &mut [u64; A], more: &[u64]) {
    for (counter, more) in counters.iter_mut().zip(more) {
        *counter += more;
    }
}

/// Grows by an eighth: tables are large, and twice what is needed would be too much.
fn reserve<T>(places: &mut Vec<T>) {
    if places.len() == places.capacity() {
        places.reserve_exact((places.len() / 8).max(64));
    }
}
