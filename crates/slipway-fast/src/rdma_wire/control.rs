//! Control commands of libibverbs.

use super::{u16_at, u64_at};

/// Bytes of `struct ib_uverbs_ioctl_hdr`, without attributes.
pub(crate) const HEADER: usize = 24;
/// Bytes of `struct ib_uverbs_attr`.
const ATTRIBUTE: usize = 16;
/// Longest control command, in bytes: a page, as in the kernel (`ib_uverbs_ioctl`).
pub(crate) const LONGEST_CONTROL: usize = 4096;

/// A control command of libibverbs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Control {
    /// A command without an answer, which only asks whether commands work.
    Probe,
    /// `ibv_create_comp_channel(3)`.
    CreateCompletionChannel {
        /// Address of the descriptor's number, an `u32`.
        answer_at: u64,
    },
    /// `ibv_query_gid_ex(3)`.
    QueryGidEntry,
}

impl Control {
    /// Parses a command. `None` for others, and for what is no command.
    pub(crate) fn read(bytes: &[u8]) -> Option<Self> {
        const DEVICE: u16 = 0;
        const INVOKE_WRITE: u16 = 0;
        const QUERY_GID_ENTRY: u16 = 6;
        const CORE_OUT: u16 = 1;
        const WRITE_CMD: u16 = 2;
        // IB_USER_VERBS_CMD_CREATE_COMP_CHANNEL (`ib_user_verbs.h`).
        const CREATE_COMP_CHANNEL: u64 = 17;
        let [object, method, count] = [2, 4, 6].map(|at| u16_at(bytes, at));
        if object? != DEVICE {
            return None;
        }
        let attribute = |index: u16| {
            let at = HEADER + usize::from(index) * ATTRIBUTE;
            Some((u16_at(bytes, at)?, u16_at(bytes, at + 2)?, u64_at(bytes, at + 8)?))
        };
        let of = |id: u16| (0..count?).filter_map(attribute).find(|(found, ..)| *found == id);
        match method? {
            INVOKE_WRITE => match (of(WRITE_CMD)?.2, of(CORE_OUT)) {
                (CREATE_COMP_CHANNEL, Some((_, length, at))) if length >= 4 => {
                    Some(Self::CreateCompletionChannel { answer_at: at })
                }
                (_, None) => Some(Self::Probe),
                _ => None,
            },
            QUERY_GID_ENTRY => Some(Self::QueryGidEntry),
            _ => None,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn control(method: u16, attributes: &[(u16, u16, u64)]) -> Vec<u8> {
        let mut bytes = vec![0; HEADER];
        bytes[4..6].copy_from_slice(&method.to_ne_bytes());
        bytes[6..8].copy_from_slice(&u16::try_from(attributes.len()).expect("few").to_ne_bytes());
        for (id, length, data) in attributes {
            bytes.extend([id.to_ne_bytes(), length.to_ne_bytes(), [0; 2], [0; 2]].concat());
            bytes.extend(data.to_ne_bytes());
        }
        bytes
    }

    #[test]
    fn libibverbs_commands_are_known() {
        assert_eq!(Control::read(&control(0, &[(2, 8, 1)])), Some(Control::Probe));
        let create = control(0, &[(0, 8, 5), (1, 4, 77), (2, 8, 17)]);
        assert_eq!(Control::read(&create), Some(Control::CreateCompletionChannel { answer_at: 77 }));
        assert_eq!(Control::read(&control(6, &[])), Some(Control::QueryGidEntry));
        assert_eq!(Control::read(&control(3, &[])), None);
    }

    proptest::proptest! {
        #[test]
        fn no_bytes_are_too_bad(bytes: Vec<u8>) {
            let _ = Control::read(&bytes);
        }
    }
}
