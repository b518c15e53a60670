//! Lists of packets by class.

/// Lists: one for each port, and [`NO_PORT`].
pub const CLASSES: usize = NO_PORT as usize + 1;

/// The class of packets without a port.
pub const NO_PORT: u32 = 1 << 16;

/// No packet.
const NONE: u32 = u32::MAX;

/// The packets of a class.
#[derive(Clone, Copy, Debug)]
struct List {
    class: u32,
    head: u32,
    tail: u32,
}

/// The order in which gathered packets are delivered: class after class, each in the order of arrival.
///
/// Packets are numbered from 0 as they are [added](Index::push). Adding one, taking one and [`Index::clear`] cost the same for any
/// number of classes.
#[derive(Clone, Debug)]
pub struct Index {
    /// For each class the place of its list; that of another one, or none, where it has no packets.
    places: Box<[u32; CLASSES]>,
    /// Lists of classes that have packets, in the order of their first ones.
    lists: Vec<List>,
    /// For each packet the one that follows it in its class.
    next: Vec<u32>,
    /// How many classes delivery has come to.
    begun: usize,
    /// The packet that is delivered next; `NONE` where the class in turn is exhausted.
    current: u32,
    taken: usize,
    /// The class of the last packet that was added.
    last: u32,
    runs: usize,
}

impl Index {
    /// An index with room for so many packets. (It takes more: then it grows.)
    pub fn new(capacity: usize) -> Index {
        let places: Box<[u32]> = vec![0; CLASSES].into_boxed_slice();
        let Ok(places) = places.try_into() else {
            unreachable!("so many were made");
        };
        Index {
            places,
            lists: Vec::with_capacity(capacity.min(CLASSES)),
            next: Vec::with_capacity(capacity),
            begun: 0,
            current: NONE,
            taken: 0,
            last: NONE,
            runs: 0,
        }
    }

    /// Adds the next packet, of this class ([`NO_PORT`] if it is none). All are added before the first is taken.
    #[inline]
    pub fn push(&mut self, class: u32) {
        let class = class.min(NO_PORT);
        let number = self.next.len() as u32;
        self.next.push(NONE);
        self.runs += usize::from(class != self.last);
        self.last = class;
        let place = &mut self.places[class as usize];
        match self.lists.get_mut(*place as usize) {
            Some(list) if list.class == class => {
                if let Some(before) = self.next.get_mut(list.tail as usize) {
                    *before = number;
                }
                list.tail = number;
            }
            _ => {
                *place = self.lists.len() as u32;
                self.lists.push(List {
                    class,
                    head: number,
                    tail: number,
                });
            }
        }
    }

    /// Takes the packet whose turn it is.
    #[inline]
    pub fn pop(&mut self) -> Option<usize> {
        if self.current == NONE {
            self.current = self.lists.get(self.begun)?.head;
            self.begun += 1;
        }
        let number = self.current as usize;
        self.current = *self.next.get(number)?;
        self.taken += 1;
        Some(number)
    }

    /// The packet that is taken next if it is of the class of the last one.
    #[inline]
    pub fn following(&self) -> Option<usize> {
        (self.current != NONE).then_some(self.current as usize)
    }

    /// How many packets are left to take.
    #[inline]
    pub fn left(&self) -> usize {
        self.next.len() - self.taken
    }

    /// How many packets were added.
    #[inline]
    pub fn len(&self) -> usize {
        self.next.len()
    }

    /// Whether no packet was added.
    pub fn is_empty(&self) -> bool {
        self.next.is_empty()
    }

    /// How many classes the packets are in.
    pub fn classes(&self) -> usize {
        self.lists.len()
    }

    /// How often the class changed from packet to packet as they arrived, the first one included.
    pub fn runs(&self) -> usize {
        self.runs
    }

    /// Forgets all packets, keeps the memory.
    pub fn clear(&mut self) {
        self.lists.clear();
        self.next.clear();
        (self.begun, self.current, self.taken) = (0, NONE, 0);
        (self.last, self.runs) = (NONE, 0);
    }
}
