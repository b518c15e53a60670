//! Byte buffers of many streams, that grow in few steps and serve again.

/// The smallest: a segment, and some more.
const FIRST: usize = 2 << 10;
/// How many times larger the next one is.
const STEP: usize = 4;
/// Bytes of unused buffers of a size that are kept.
const KEPT: usize = 4 << 20;

/// Buffers that are not in use, by size. A buffer is at most [`STEP`] times as large as what was put into
/// it, but for the smallest.
pub(crate) struct Buffers {
    /// Bytes that any of them holds at most.
    most: usize,
    free: Vec<Vec<Vec<u8>>>,
}

impl Buffers {
    /// For buffers that hold `most` bytes at most.
    pub(crate) fn new(most: usize) -> Buffers {
        let sizes = (0..).map(|class| size(class, most));
        let classes = 1 + sizes.take_while(|size| *size < most).count();
        Buffers {
            most,
            free: (0..classes).map(|_| Vec::new()).collect(),
        }
    }

    /// Adds bytes to a buffer. It may be a new one, without memory.
    #[inline]
    pub(crate) fn extend(&mut self, buffer: &mut Vec<u8>, bytes: &[u8]) {
        if buffer.capacity() - buffer.len() < bytes.len() {
            self.grow(buffer, buffer.len() + bytes.len());
        }
        buffer.extend_from_slice(bytes);
    }

    /// A buffer is not needed any more.
    pub(crate) fn give_back(&mut self, buffer: &mut Vec<u8>) {
        let mut buffer = core::mem::take(buffer);
        let most = self.most;
        let mut classes = self.free.iter_mut().enumerate();
        let of_size = classes.find(|(class, _)| size(*class, most) == buffer.capacity());
        if let Some((_, free)) = of_size.filter(|(_, free)| free.len() < KEPT / buffer.capacity()) {
            buffer.clear();
            free.push(buffer);
        }
    }

    #[cold]
    fn grow(&mut self, buffer: &mut Vec<u8>, needed: usize) {
        let class = (0..self.free.len()).find(|class| size(*class, self.most) >= needed);
        let Some((class, free)) = class.and_then(|it| Some((it, self.free.get_mut(it)?))) else {
            return;
        };
        let larger = free.pop();
        let mut larger = larger.unwrap_or_else(|| Vec::with_capacity(size(class, self.most)));
        larger.extend_from_slice(buffer);
        core::mem::swap(buffer, &mut larger);
        self.give_back(&mut larger);
    }
}

/// The size of the buffers of a class.
fn size(class: usize, most: usize) -> usize {
    let step = u32::try_from(class)
        .ok()
        .and_then(|class| STEP.checked_pow(class));
    step.and_then(|step| FIRST.checked_mul(step))
        .unwrap_or(most)
        .min(most)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_buffer_grows_as_far_as_it_has_to_and_serves_again() {
        let mut buffers = Buffers::new(16 << 10);
        let (mut one, mut other) = (Vec::new(), Vec::new());
        buffers.extend(&mut one, &[1; 1460]);
        assert_eq!(one.capacity(), 2 << 10);
        for _ in 0..10 {
            buffers.extend(&mut one, &[1; 1460]);
        }
        assert_eq!((one.len(), one.capacity()), (11 * 1460, 16 << 10));
        assert!(one.iter().all(|byte| *byte == 1));
        let place = one.as_ptr();
        buffers.give_back(&mut one);
        assert_eq!(one.capacity(), 0);
        buffers.extend(&mut other, &[2; 9000]);
        assert_eq!((other.as_ptr(), other.len()), (place, 9000));
        assert!(other.iter().all(|byte| *byte == 2));
    }

    #[test]
    fn of_any_size_unused_ones_are_bounded() {
        for most in [1, 100, 2 << 10, 5000, 1 << 20, 16 << 20] {
            let mut buffers = Buffers::new(most);
            let mut all: Vec<Vec<u8>> = Vec::new();
            for _ in 0..5 {
                let mut buffer = Vec::new();
                buffers.extend(&mut buffer, &vec![0; most]);
                assert!(buffer.capacity() >= most && buffer.capacity() < most + STEP);
                all.push(buffer);
            }
            all.iter_mut().for_each(|it| buffers.give_back(it));
            let kept: usize = buffers.free.iter().flatten().map(Vec::capacity).sum();
            assert!(kept <= buffers.free.len() * KEPT, "{kept} of {most}");
        }
    }
}
