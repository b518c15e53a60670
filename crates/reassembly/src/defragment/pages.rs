//! Memory for the bytes of incomplete datagrams, shared by all of them.

/// Bytes in a page. A fragment takes the pages its bytes lie in, wherever in the datagram that is.
pub(super) const PAGE: usize = 1024;
/// Pages that are allocated together: 64 KiB.
const SLAB: usize = 64;
/// "No page."
pub(super) const NONE: u32 = u32::MAX;

/// Pages by number. Grows by slabs and never shrinks; a freed page is the next one given out, while
/// it is still in the cache.
#[derive(Clone, Debug, Default)]
pub(super) struct Pages {
    slabs: Vec<Box<[u8]>>,
    free: Vec<u32>,
    used: usize,
}

impl Pages {
    /// A page, whatever was in it last.
    pub(super) fn allocate(&mut self) -> u32 {
        self.used += 1;
        if let Some(page) = self.free.pop() {
            return page;
        }
        let first = (self.slabs.len() * SLAB) as u32;
        self.slabs.push(vec![0; SLAB * PAGE].into_boxed_slice());
        self.free.extend((first + 1..first + SLAB as u32).rev());
        first
    }

    pub(super) fn free(&mut self, page: u32) {
        self.used -= 1;
        self.free.push(page);
    }

    /// The bytes of a page; none of [`NONE`].
    pub(super) fn bytes(&self, page: u32) -> &[u8] {
        let (slab, at) = place(page);
        self.slabs
            .get(slab)
            .and_then(|slab| slab.get(at..at + PAGE))
            .unwrap_or(&[])
    }

    pub(super) fn bytes_mut(&mut self, page: u32) -> &mut [u8] {
        let (slab, at) = place(page);
        self.slabs
            .get_mut(slab)
            .and_then(|slab| slab.get_mut(at..at + PAGE))
            .unwrap_or(&mut [])
    }

    /// Bytes of pages in use.
    pub(super) fn used_bytes(&self) -> u64 {
        (self.used * PAGE) as u64
    }
}

fn place(page: u32) -> (usize, usize) {
    let page = page as usize;
    (page / SLAB, page % SLAB * PAGE)
}
