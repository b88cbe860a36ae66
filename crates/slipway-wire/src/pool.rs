//! Memory for frames that wait.

use slipway_sys::tap::FRAME_BYTES;

/// Greatest size of all waiting frames together, in bytes: a container that floods its link must not take the machine's
/// memory.
pub(crate) const MEMORY: usize = 1 << 30;
/// Size of the memory that stays allocated when nothing waits, in bytes.
const SPARE: usize = 32 << 20;
/// Sizes of buffers: acknowledgements, packets, jumbo packets, the largest segments.
const SIZES: [usize; 4] = [256, 2048, 16_384, FRAME_BYTES];

/// Buffers that are used again: no frame costs an allocation once traffic flows.
#[derive(Debug, Default)]
pub(crate) struct Pool {
    spare: [Vec<Vec<u8>>; SIZES.len()],
    spare_bytes: usize,
    used_bytes: usize,
}

impl Pool {
    /// A copy of `frame`. `None` where [`MEMORY`] is used up, or the frame is larger than any is.
    pub(crate) fn copy(&mut self, frame: &[u8]) -> Option<Vec<u8>> {
        let class = SIZES.iter().position(|&size| frame.len() <= size)?;
        let size = SIZES[class];
        if self.used_bytes + size > MEMORY {
            return None;
        }
        self.used_bytes += size;
        let mut buffer = match self.spare[class].pop() {
            Some(buffer) => {
                self.spare_bytes -= size;
                buffer
            }
            None => Vec::with_capacity(size),
        };
        buffer.clear();
        buffer.extend_from_slice(frame);
        Some(buffer)
    }

    /// Takes a buffer back that [`Self::copy`] gave.
    pub(crate) fn give(&mut self, buffer: Vec<u8>) {
        let Some(class) = SIZES.iter().position(|&size| buffer.len() <= size) else { return };
        let size = SIZES[class];
        self.used_bytes = self.used_bytes.saturating_sub(size);
        if self.spare_bytes + size <= SPARE {
            self.spare_bytes += size;
            self.spare[class].push(buffer);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn buffers_come_again_and_memory_is_bounded() {
        let mut pool = Pool::default();
        let first = pool.copy(&[1; 1500]).expect("room");
        let place = first.as_ptr();
        pool.give(first);
        let second = pool.copy(&[2; 300]).expect("room");
        assert_eq!(second.as_ptr(), place);
        assert!(pool.copy(&vec![0; FRAME_BYTES + 1]).is_none());
        // Bounded by what is counted, without touching a gigabyte.
        pool.used_bytes = MEMORY - 100;
        assert!(pool.copy(&[0; 60]).is_none());
    }
}
