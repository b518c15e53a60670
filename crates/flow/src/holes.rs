//! Missing parts of a direction's sequence space.

use crate::extra::HOLES;

/// `a - b` in sequence space.
#[inline(always)]
pub(crate) const fn delta(a: u32, b: u32) -> i32 {
    a.wrapping_sub(b) as i32
}

/// Ranges of sequence space; empty ones are unused places.
pub(crate) type Holes = [(u32, u32); HOLES];

/// Adds a hole behind the others; with all places taken the oldest is forgotten.
pub(crate) fn remember_hole(holes: &mut Holes, from: u32, to: u32) {
    let free = holes.iter().position(|&(from, to)| from == to);
    if free.is_none() {
        holes.rotate_left(1);
    }
    holes[free.unwrap_or(HOLES - 1)] = (from, to);
}

/// Takes `[from, to)` out of the holes; returns whether it touched one.
pub(crate) fn fill_holes(holes: &mut Holes, from: u32, to: u32) -> bool {
    let mut touched = false;
    let mut split = None;
    for hole in holes.iter_mut() {
        let (start, end) = *hole;
        if start == end || delta(to, start) <= 0 || delta(end, from) <= 0 {
            continue;
        }
        touched = true;
        let left = delta(from, start) > 0;
        let right = delta(end, to) > 0;
        *hole = match (left, right) {
            (false, false) => (0, 0),
            (true, false) => (start, from),
            (false, true) => (to, end),
            (true, true) => {
                split = Some((to, end));
                (start, from)
            }
        };
    }
    if let Some((start, end)) = split {
        remember_hole(holes, start, end);
    }
    touched
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn fills_from_the_sides_the_middle_and_across_the_wrap() {
        let top = u32::MAX - 4;
        let mut holes = [(0, 0); HOLES];
        remember_hole(&mut holes, top, 10);
        assert!(!fill_holes(&mut holes, 10, 20));
        assert!(!fill_holes(&mut holes, top - 5, top));
        assert!(fill_holes(&mut holes, 0, 2));
        assert!(holes.contains(&(top, 0)) && holes.contains(&(2, 10)));
        assert!(fill_holes(&mut holes, top - 1, 3));
        assert!(fill_holes(&mut holes, 3, 10));
        assert!(!fill_holes(&mut holes, top, 10));
    }

    #[test]
    fn the_oldest_is_forgotten() {
        let mut holes = [(0, 0); HOLES];
        for at in 1..=HOLES as u32 + 1 {
            remember_hole(&mut holes, at * 100, at * 100 + 10);
        }
        assert!(!fill_holes(&mut holes, 100, 110));
        assert!(fill_holes(&mut holes, 200, 210));
    }
}
