//! Regions that share pages, programs that unmap what they have registered, and forks.

#![allow(unsafe_code)]

use super::super::memory::{load, store};
use super::*;

/// So many pages, and pieces of them.
fn memory(pages: usize) -> Mapping {
    let memory = Mapping::private(pages * PAGE).unwrap();
    store(&vec![7; pages * PAGE], memory.piece(0, pages * PAGE).unwrap());
    memory
}

fn byte(memory: &Mapping, offset: usize) -> u8 {
    load::<1>(memory.piece(offset, 1).unwrap())[0]
}

/// The bytes of a part's file at an offset.
fn in_file(taken: &Taken, part: usize, offset: u64) -> u8 {
    let mut byte = [0];
    rustix::io::pread(taken.files()[part], &mut byte, taken.parts()[part].offset + offset).unwrap();
    byte[0]
}

#[test]
fn regions_in_one_page_are_on_one_file_until_the_last_has_ended() {
    let memory = memory(1);
    let one = take(memory.piece(100, 50).unwrap()).unwrap();
    let other = take(memory.piece(200, 50).unwrap()).unwrap();
    for taken in [&one, &other] {
        assert_eq!(taken.parts(), [Part { offset: 0, length: PAGE as u64 }]);
    }
    assert!(Arc::ptr_eq(&one.files[0], &other.files[0]));
    store(&[1], memory.piece(210, 1).unwrap());
    assert_eq!(in_file(&one, 0, 210), 1);
    let file = Arc::clone(&one.files[0]);
    drop(one);
    store(&[2], memory.piece(210, 1).unwrap());
    assert_eq!(in_file(&other, 0, 210), 2, "the other region is still there");
    drop(other);
    rustix::io::pwrite(&*file, &[3], 210).unwrap();
    assert_eq!((byte(&memory, 210), byte(&memory, 0)), (2, 7), "what the file says is the program's no more");
}

#[test]
fn a_region_takes_what_is_there_and_fills_the_gaps() {
    let memory = memory(6);
    let early = take(memory.piece(PAGE + 5, PAGE).unwrap()).unwrap();
    assert_eq!(early.parts(), [Part { offset: 0, length: 2 * PAGE as u64 }]);
    let all = take(memory.piece(2 * PAGE + 9, 3 * PAGE).unwrap()).unwrap();
    let page = PAGE as u64;
    assert_eq!(all.parts(), [Part { offset: page, length: page }, Part { offset: 0, length: 3 * page }]);
    store(&[1], memory.piece(3 * PAGE, 1).unwrap());
    store(&[2], memory.piece(2 * PAGE, 1).unwrap());
    assert_eq!((in_file(&all, 1, 0), in_file(&all, 0, 0)), (1, 2));
    drop(early);
    assert_eq!(in_file(&all, 0, 0), 2);
    drop(all);
    assert_eq!((byte(&memory, 3 * PAGE), byte(&memory, 2 * PAGE), byte(&memory, 6 * PAGE - 1)), (1, 2, 7));
}

#[test]
fn what_is_not_the_programs_own_or_lies_on_too_many_files_is_not_taken() {
    let mut local = [0_u8; 64];
    assert!(take(Piece { at: local.as_mut_ptr() as usize, length: local.len() }).is_none(), "a stack");
    let file = memfd_create("other", MemfdFlags::CLOEXEC).unwrap();
    ftruncate(&file, 2 * PAGE as u64).unwrap();
    let shared = Mapping::new(&file, 2 * PAGE, true).unwrap();
    assert!(take(shared.piece(10, 10).unwrap()).is_none(), "a file");
    assert!(take(Piece { at: usize::MAX - 10, length: 10 }).is_none());
    let memory = memory(2 * FILES + 1);
    let each: Vec<_> = (0..=FILES).map(|it| take(memory.piece(2 * it * PAGE, 1).unwrap()).unwrap()).collect();
    assert!(take(memory.piece(0, 2 * FILES * PAGE).unwrap()).is_none());
    drop(each);
    assert!(take(memory.piece(0, 2 * FILES * PAGE).unwrap()).is_some());
}

#[test]
fn memory_that_comes_in_the_place_of_unmapped_pages_has_a_file_of_its_own() {
    use rustix::mm::{MapFlags, ProtFlags, mmap_anonymous, munmap};
    let memory = memory(4);
    let at = memory.piece(0, 1).unwrap().at as *mut _;
    let early = take(memory.piece(0, 4 * PAGE).unwrap()).unwrap();
    // SAFETY: the pages are this test's.
    unsafe {
        munmap(at, 4 * PAGE).unwrap();
        let flags = MapFlags::PRIVATE | MapFlags::FIXED;
        mmap_anonymous(at, 4 * PAGE, ProtFlags::READ | ProtFlags::WRITE, flags).unwrap();
    }
    let late = take(memory.piece(0, 4 * PAGE).unwrap()).unwrap();
    assert!(!Arc::ptr_eq(&early.files[0], &late.files[0]));
    store(&[5], memory.piece(0, 1).unwrap());
    drop(early);
    store(&[6], memory.piece(1, 1).unwrap());
    assert_eq!((in_file(&late, 0, 0), in_file(&late, 0, 1)), (5, 6));
}

#[test]
fn a_child_has_its_own_neighbours_of_a_region() {
    assert!(crate::plugin::forks::are_watched());
    let memory = memory(3);
    let taken = take(memory.piece(100, 2 * PAGE).unwrap()).unwrap();
    let neighbours = [0, 3 * PAGE - 1].map(|offset| memory.piece(offset, 1).unwrap());
    // SAFETY: the child touches memory of this test alone, and ends.
    let child = unsafe { libc::fork() };
    if child == 0 {
        let saw = neighbours.map(|it| load::<1>(it)[0]);
        for neighbour in neighbours {
            store(&[9], neighbour);
        }
        // SAFETY: ends the child at once.
        unsafe { libc::_exit((saw != [7, 7]).into()) };
    }
    let mut status = 0;
    // SAFETY: the child is this test's.
    assert_eq!(unsafe { libc::waitpid(child, &raw mut status, 0) }, child);
    assert_eq!((status, neighbours.map(|it| load::<1>(it)[0])), (0, [7, 7]));
    store(&[8], neighbours[0]);
    assert_eq!(in_file(&taken, 0, 0), 8, "the parent's pages are the gateway's as before");
}
