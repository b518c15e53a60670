//! Files whose names are made of the time and of keys: one for each name.
//!
//! There may be more instances than a process may have open files: the file that was used longest
//! ago is closed when another is needed, and opened again, at its end, for what comes next. An instance
//! that comes to the name of an earlier one goes on in its file, too; files of earlier runs are written
//! over.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use flowgauge_kit::file_name::Name;
use flowgauge_kit::writing::{Stop, account, stop};
use flowgauge_record::WriterThread;
use flowgauge_stack::{
    Account, Component, Failure, Items, Outlet, Packets, PerKey, ResultValue, Selection,
};
use flowgauge_wire::Nanos;
use lru::LruCache;
use slab::Slab;

use super::{ToFile, finished};

/// Files open at once; well below the usual limit of 1024, and bounded in memory: a capture file that
/// is open has a buffer of 320 KiB.
const MAX_OPEN: usize = 128;

/// Names of this run that are known; with more, a file that is there is taken for one of this run.
const MAX_KNOWN: usize = 1 << 20;

pub(super) struct Named {
    name: Name,
    /// Makes what writes to a file, at its end if it is there.
    make: Box<dyn Fn(String, bool) -> ToFile + Send>,
    /// By key: which of `files`.
    keys: PerKey<Place>,
    files: Slab<Shared>,
    /// Those that are open.
    open: LruCache<usize, Box<ToFile>>,
    by_name: HashMap<String, usize>,
    known: HashSet<u64>,
    instances: u64,
    /// Items in files that are closed.
    written: u64,
    order: Vec<u64>,
    /// That of all files.
    thread: Option<WriterThread>,
}

#[derive(Default)]
struct Place(Option<usize>);

/// A file that some keys write to.
struct Shared {
    name: String,
    keys: u32,
}

impl Named {
    pub(super) fn new(
        name: Name,
        make: Box<dyn Fn(String, bool) -> ToFile + Send>,
        thread: Option<WriterThread>,
    ) -> Named {
        Named {
            name,
            make,
            keys: PerKey::default(),
            files: Slab::new(),
            open: LruCache::unbounded(),
            by_name: HashMap::new(),
            known: HashSet::new(),
            instances: 0,
            written: 0,
            order: Vec::new(),
            thread,
        }
    }

    /// The file of a key, open.
    fn file(&mut self, key: u32, time: Nanos, out: &dyn Outlet) -> Result<&mut ToFile, Stop> {
        let place = match self.keys.get(key) {
            Some(Place(Some(place))) => *place,
            _ => self.begin(key, time, out),
        };
        if !self.open.contains(&place) {
            self.make_room()?;
            self.open(place);
        }
        let file = self.open.get_mut(&place).map(Box::as_mut);
        file.ok_or_else(|| Stop::Failed(Failure::new("a file was lost")))
    }

    /// A key that has no name yet.
    #[cold]
    fn begin(&mut self, key: u32, time: Nanos, out: &dyn Outlet) -> usize {
        self.instances += 1;
        let name = self
            .name
            .evaluate(time, self.instances, || out.key_names(key));
        let place = match self.by_name.get(&name) {
            Some(place) => *place,
            None => {
                let file = Shared {
                    name: name.clone(),
                    keys: 0,
                };
                let place = self.files.insert(file);
                self.by_name.insert(name, place);
                place
            }
        };
        if let Some(file) = self.files.get_mut(place) {
            file.keys += 1;
        }
        *self.keys.of(key) = Place(Some(place));
        place
    }

    fn open(&mut self, place: usize) {
        let Some(Shared { name, .. }) = self.files.get(place) else {
            return;
        };
        let mut hasher = DefaultHasher::new();
        name.hash(&mut hasher);
        let hash = hasher.finish();
        let is_ours = self.known.contains(&hash) || self.known.len() >= MAX_KNOWN;
        if !is_ours {
            self.known.insert(hash);
        }
        let file = Box::new((self.make)(name.clone(), is_ours));
        self.open.push(place, file);
    }

    /// Closes the file that was used longest ago, if as many are open as may be.
    fn make_room(&mut self) -> Result<(), Stop> {
        if self.open.len() < MAX_OPEN {
            return Ok(());
        }
        let longest = self.open.pop_lru();
        longest.map_or(Ok(()), |(_, file)| self.close_file(file))
    }

    fn close_file(&mut self, mut file: Box<ToFile>) -> Result<(), Stop> {
        let result = file.close();
        self.written += file.written();
        result
    }

    /// A key has ended: so has its file, if no other key has it.
    fn end(&mut self, key: u32) -> Result<(), Stop> {
        let Some(Place(Some(place))) = self.keys.take(key) else {
            return Ok(());
        };
        let Some(file) = self.files.get_mut(place) else {
            return Ok(());
        };
        file.keys -= 1;
        if file.keys > 0 {
            return Ok(());
        }
        self.by_name.remove(&file.name);
        self.files.remove(place);
        let open = self.open.pop(&place);
        open.map_or(Ok(()), |file| self.close_file(file))
    }

    fn packets(&mut self, packets: &Packets<'_>, out: &dyn Outlet) -> Result<(), Stop> {
        let mut order = core::mem::take(&mut self.order);
        let mut result = Ok(());
        packets.by_key(&mut order, |key, places| {
            if result.is_err() {
                return;
            }
            let mut selected = Selection::NONE;
            places
                .iter()
                .for_each(|&place| selected.insert(place as usize));
            let first = places
                .first()
                .and_then(|&place| packets.decoded.packets.get(place as usize));
            let time = first.map_or(Nanos(0), |first| first.time);
            let file = self.file(key, time, out);
            result = file.and_then(|file| {
                file.packets(&Packets {
                    selected,
                    ..*packets
                })
            });
        });
        self.order = order;
        result
    }

    fn take(&mut self, items: &Items<'_>, out: &dyn Outlet) -> Result<(), Stop> {
        match items {
            Items::Packets(packets) => self.packets(packets, out),
            Items::Chunks(chunks) => {
                let mut groups = chunks.chunk_by(|one, next| one.key == next.key);
                groups.try_for_each(|group| match group.first() {
                    Some(first) => self.file(first.key, first.time, out)?.chunks(group),
                    None => Ok(()),
                })
            }
            Items::Records(records) => {
                let mut groups = records.chunk_by(|one, next| one.key == next.key);
                groups.try_for_each(|group| match group.first() {
                    Some(first) => self.file(first.key, first.time, out)?.records(group),
                    None => Ok(()),
                })
            }
            _ => Ok(()),
        }
    }
}

impl Component for Named {
    fn start(&mut self) -> Result<(), Failure> {
        self.name.check_folder()
    }

    fn process(&mut self, items: &mut Items<'_>, out: &mut dyn Outlet) {
        let result = self.take(items, out);
        stop(result, out);
    }

    fn close(&mut self, key: u32, out: &mut dyn Outlet) {
        let result = self.end(key);
        stop(result, out);
    }

    fn has_timer(&self) -> bool {
        true
    }

    fn tick(&mut self, now: Nanos, out: &mut dyn Outlet) {
        for (_, file) in self.open.iter_mut() {
            file.tick(now, out);
        }
    }

    fn settle(&mut self, out: &mut dyn Outlet) -> bool {
        self.open.iter_mut().all(|(_, file)| file.settle(out))
    }

    fn begin_finish(&mut self) {
        self.thread.iter().for_each(WriterThread::begin_finish);
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        while let Some((_, file)) = self.open.pop_lru() {
            let result = self.close_file(file);
            stop(result, out);
        }
        stop(finished(self.thread.as_ref(), "-"), out);
    }

    fn result(&self) -> Option<ResultValue> {
        let written: u64 = self.open.iter().map(|(_, file)| file.written()).sum();
        let lost = self.thread.as_ref().map_or(0, WriterThread::lost);
        Some(ResultValue::Sum(self.written + written - lost))
    }

    fn account(&self) -> Option<Box<Account>> {
        account(self.thread.as_ref(), "item", "files")
    }
}
