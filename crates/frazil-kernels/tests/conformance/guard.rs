//! Slices with forbidden pages around them: whoever reads or writes one number too many ends the
//! program. In a vector of Rust's that mostly goes unnoticed: the memory behind it is there.

#![allow(unsafe_code, reason = "pages are asked of the system, and seen as numbers")]

use std::cell::Cell;
use std::marker::PhantomData;
use std::ops::{Deref, DerefMut};

/// Where a slice touches a forbidden page: its other end may be in the middle of a page.
#[derive(Clone, Copy, Debug, PartialEq, Eq)]
pub enum Edge {
    Begin,
    End,
}

thread_local! {
    static EDGE: Cell<Edge> = const { Cell::new(Edge::End) };
}

/// All slices of this thread from now on touch a forbidden page there.
pub fn set_edge(edge: Edge) {
    EDGE.set(edge);
}

/// A copy of numbers between forbidden pages.
pub struct Guarded<T> {
    pages: Pages,
    offset: usize,
    len: usize,
    numbers: PhantomData<T>,
}

/// Numbers of which any bytes are some: the pages begin as zeros.
pub trait Plain: Copy {}
impl Plain for f32 {}
impl Plain for i32 {}
impl Plain for u32 {}
impl Plain for u8 {}
impl Plain for i8 {}

/// Moves numbers between forbidden pages.
pub fn guard<T: Plain>(numbers: impl AsRef<[T]>) -> Guarded<T> {
    let numbers = numbers.as_ref();
    let bytes = size_of_val(numbers);
    let pages = Pages::new(bytes.div_ceil(PAGE).max(1));
    let offset = match EDGE.get() {
        Edge::Begin => 0,
        // Sizes of numbers divide the size of a page: what ends there is aligned.
        Edge::End => pages.open - bytes,
    };
    let mut guarded = Guarded { pages, offset, len: numbers.len(), numbers: PhantomData };
    guarded.copy_from_slice(numbers);
    guarded
}

/// `len` times the same number between forbidden pages.
pub fn filled<T: Plain>(number: T, len: usize) -> Guarded<T> {
    guard(vec![number; len])
}

impl<T: Plain> Deref for Guarded<T> {
    type Target = [T];

    fn deref(&self) -> &[T] {
        let begin = self.pages.begin.wrapping_add(self.offset);
        // SAFETY: `len` numbers lie there, aligned, within pages that live as long as `self`.
        unsafe { std::slice::from_raw_parts(begin.cast(), self.len) }
    }
}

impl<T: Plain> DerefMut for Guarded<T> {
    fn deref_mut(&mut self) -> &mut [T] {
        let begin = self.pages.begin.wrapping_add(self.offset);
        // SAFETY: as in `deref`, and borrowed for writing.
        unsafe { std::slice::from_raw_parts_mut(begin.cast(), self.len) }
    }
}

/// The size of a page on the systems that have vectors.
const PAGE: usize = 4096;

#[cfg(target_os = "linux")]
mod pages {
    use super::PAGE;

    /// Pages to write to, with a forbidden one before and behind them.
    pub struct Pages {
        /// The first open byte.
        pub begin: *mut u8,
        /// Open bytes.
        pub open: usize,
    }

    impl Pages {
        pub fn new(count: usize) -> Self {
            let (open, all) = (count * PAGE, (count + 2) * PAGE);
            let flags = libc::MAP_PRIVATE | libc::MAP_ANONYMOUS;
            // SAFETY: new memory, where the system likes; nothing is replaced.
            let map =
                unsafe { libc::mmap(std::ptr::null_mut(), all, libc::PROT_NONE, flags, -1, 0) };
            assert!(map != libc::MAP_FAILED, "the system has pages");
            let begin = map.cast::<u8>().wrapping_add(PAGE);
            // SAFETY: all pages but the first and the last of the map above.
            let opened =
                unsafe { libc::mprotect(begin.cast(), open, libc::PROT_READ | libc::PROT_WRITE) };
            assert_eq!(opened, 0, "one's own pages can be opened");
            Self { begin, open }
        }
    }

    impl Drop for Pages {
        fn drop(&mut self) {
            let map = self.begin.wrapping_sub(PAGE);
            // SAFETY: the map that `new` made, which nobody refers to any more.
            unsafe { libc::munmap(map.cast(), self.open + 2 * PAGE) };
        }
    }
}

/// Without Linux's pages: plain memory.
#[cfg(not(target_os = "linux"))]
mod pages {
    use super::PAGE;

    pub struct Pages {
        pub begin: *mut u8,
        pub open: usize,
        _lines: Vec<[u64; PAGE / 8]>,
    }

    impl Pages {
        pub fn new(count: usize) -> Self {
            let mut lines = vec![[0; PAGE / 8]; count];
            Self { begin: lines.as_mut_ptr().cast(), open: count * PAGE, _lines: lines }
        }
    }
}

use pages::Pages;

/// Does `touch` to a guarded slice in a process of its own; tells whether that was the end of it.
#[cfg(target_os = "linux")]
fn ends_the_program(edge: Edge, touch: fn(*mut f32, usize)) -> bool {
    set_edge(edge);
    let mut slice = filled(1.0f32, 7);
    set_edge(Edge::End);
    // SAFETY: the child does nothing but touch memory and leave: no lock, no allocation.
    match unsafe { libc::fork() } {
        0 => {
            // SAFETY: Rust's own handler of the signal takes a lock, which somebody may hold.
            unsafe { libc::signal(libc::SIGSEGV, libc::SIG_DFL) };
            touch(slice.as_mut_ptr(), slice.len());
            // SAFETY: leaves the child at once.
            unsafe { libc::_exit(0) }
        }
        child => {
            let mut status = 0;
            // SAFETY: waits for one's own child.
            assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
            libc::WIFSIGNALED(status) && libc::WTERMSIG(status) == libc::SIGSEGV
        }
    }
}

#[cfg(target_os = "linux")]
#[test]
fn one_number_too_many_is_noticed() {
    let inside = |at: *mut f32, len: usize| {
        // SAFETY: the last number.
        unsafe { at.wrapping_add(len - 1).write_volatile(2.0) }
    };
    let read_beyond = |at: *mut f32, len: usize| {
        // SAFETY: none; the page is forbidden, and the child ends.
        _ = unsafe { at.wrapping_add(len).read_volatile() };
    };
    let write_beyond = |at: *mut f32, len: usize| {
        // SAFETY: none; the page is forbidden, and the child ends.
        unsafe { at.wrapping_add(len).write_volatile(2.0) }
    };
    let read_before = |at: *mut f32, _: usize| {
        // SAFETY: none; the page is forbidden, and the child ends.
        _ = unsafe { at.wrapping_sub(1).read_volatile() };
    };
    assert!(!ends_the_program(Edge::Begin, inside) && !ends_the_program(Edge::End, inside));
    assert!(ends_the_program(Edge::End, read_beyond) && ends_the_program(Edge::End, write_beyond));
    assert!(ends_the_program(Edge::Begin, read_before));
}
