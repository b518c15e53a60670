//! Files whose names are made of the time and of keys: one for each name.
//!
//! There may be more instances than a process may have open files: the file that was used longest
//! ago is closed when another is needed, and opened again, at its end, for what comes next. An instance
//! that comes to the name of an earlier one goes on in its file, too; files of earlier runs are written
//! over.

use std::collections::{HashMap, HashSet};
use std::hash::{DefaultHasher, Hash as _, Hasher as _};

use flowgauge_kit::file_name::Name;
use flowgauge_stack::{Component, Failure, Items, Outlet, Packets, PerKey, ResultValue, Selection};
use flowgauge_wire::Nanos;

use super::{Stop, ToFile, stop};

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
    files: Vec<Option<Open>>,
    free: Vec<usize>,
    by_name: HashMap<String, usize>,
    known: HashSet<u64>,
    instances: u64,
    open: usize,
    /// Counts uses.
    clock: u64,
    /// Items in files that are closed.
    written: u64,
    order: Vec<u64>,
}

#[derive(Default)]
struct Place(Option<usize>);

/// A file that some keys write to.
struct Open {
    name: String,
    file: Option<Box<ToFile>>,
    keys: u32,
    used: u64,
}

impl Named {
    pub(super) fn new(name: Name, make: Box<dyn Fn(String, bool) -> ToFile + Send>) -> Named {
        Named {
            name,
            make,
            keys: PerKey::default(),
            files: Vec::new(),
            free: Vec::new(),
            by_name: HashMap::new(),
            known: HashSet::new(),
            instances: 0,
            open: 0,
            clock: 0,
            written: 0,
            order: Vec::new(),
        }
    }

    /// The file of a key, open.
    fn file(&mut self, key: u32, time: Nanos, out: &dyn Outlet) -> Result<&mut ToFile, Stop> {
        let place = match self.keys.get(key) {
            Some(Place(Some(place))) => *place,
            _ => self.begin(key, time, out),
        };
        self.clock += 1;
        if self
            .files
            .get(place)
            .and_then(Option::as_ref)
            .is_none_or(|it| it.file.is_none())
        {
            self.make_room()?;
            self.open(place);
        }
        let clock = self.clock;
        let open = self.files.get_mut(place).and_then(Option::as_mut);
        let file = open.and_then(|open| {
            open.used = clock;
            open.file.as_deref_mut()
        });
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
                let place = self.free.pop().unwrap_or(self.files.len());
                self.by_name.insert(name.clone(), place);
                let open = Open {
                    name,
                    file: None,
                    keys: 0,
                    used: 0,
                };
                match self.files.get_mut(place) {
                    Some(slot) => *slot = Some(open),
                    None => self.files.push(Some(open)),
                }
                place
            }
        };
        if let Some(Some(open)) = self.files.get_mut(place) {
            open.keys += 1;
        }
        *self.keys.of(key) = Place(Some(place));
        place
    }

    fn open(&mut self, place: usize) {
        let Some(Some(open)) = self.files.get_mut(place) else {
            return;
        };
        let mut hasher = DefaultHasher::new();
        open.name.hash(&mut hasher);
        let hash = hasher.finish();
        let is_ours = self.known.contains(&hash) || self.known.len() >= MAX_KNOWN;
        if !is_ours {
            self.known.insert(hash);
        }
        open.file = Some(Box::new((self.make)(open.name.clone(), is_ours)));
        self.open += 1;
    }

    /// Closes the file that was used longest ago, if as many are open as may be.
    fn make_room(&mut self) -> Result<(), Stop> {
        if self.open < MAX_OPEN {
            return Ok(());
        }
        let files = self.files.iter().enumerate();
        let open = files.filter_map(|(place, it)| {
            let open = it.as_ref().filter(|open| open.file.is_some())?;
            Some((open.used, place))
        });
        match open.min() {
            Some((_, place)) => self.close_file(place),
            None => Ok(()),
        }
    }

    fn close_file(&mut self, place: usize) -> Result<(), Stop> {
        let open = self.files.get_mut(place).and_then(Option::as_mut);
        let Some(mut file) = open.and_then(|open| open.file.take()) else {
            return Ok(());
        };
        self.open -= 1;
        let result = file.close();
        self.written += file.written();
        result
    }

    /// A key has ended: so has its file, if no other key has it.
    fn end(&mut self, key: u32) -> Result<(), Stop> {
        let Some(Place(Some(place))) = self.keys.take(key) else {
            return Ok(());
        };
        let Some(Some(open)) = self.files.get_mut(place) else {
            return Ok(());
        };
        open.keys -= 1;
        if open.keys > 0 {
            return Ok(());
        }
        let name = open.name.clone();
        let result = self.close_file(place);
        self.by_name.remove(&name);
        self.files[place] = None;
        self.free.push(place);
        result
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
        for file in self.files.iter_mut().flatten() {
            if let Some(file) = &mut file.file {
                file.tick(now, out);
            }
        }
    }

    fn finish(&mut self, out: &mut dyn Outlet) {
        for place in 0..self.files.len() {
            let result = self.close_file(place);
            stop(result, out);
        }
    }

    fn result(&self) -> Option<ResultValue> {
        let open = self.files.iter().flatten();
        let open = open.filter_map(|open| open.file.as_ref());
        let written: u64 = open.map(|file| file.written()).sum();
        Some(ResultValue::Sum(self.written + written))
    }
}
