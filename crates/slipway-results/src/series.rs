//! Time series as objects.
//!
//! The header is `SWSERIES`; then come the first bytes of all values, then the second ones, and so on to the eighth, each
//! value a little-endian binary64. Neighbouring values share their high bytes, so the split makes them compress well.

/// The first bytes of each series.
const HEADER: &[u8; 8] = b"SWSERIES";
/// Bytes of a value.
const WIDTH: usize = size_of::<f64>();

/// Content that is no series.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum SeriesError {
    /// The header is another one.
    #[error("read a time series: the object is none")]
    Header,
    /// The last values lack bytes.
    #[error("read a time series: it is cut off after {0} bytes")]
    CutOff(usize),
}

/// The content of an object.
#[must_use]
pub fn encode(values: &[f64]) -> Vec<u8> {
    let mut content = Vec::with_capacity(HEADER.len() + values.len() * WIDTH);
    content.extend_from_slice(HEADER);
    for byte in 0..WIDTH {
        content.extend(values.iter().map(|value| value.to_le_bytes()[byte]));
    }
    content
}

/// The values that a content stands for.
///
/// # Errors
/// Where the content is no series, or a part of one.
pub fn decode(content: &[u8]) -> Result<Vec<f64>, SeriesError> {
    let bytes = content.strip_prefix(HEADER).ok_or(SeriesError::Header)?;
    if !bytes.len().is_multiple_of(WIDTH) {
        return Err(SeriesError::CutOff(content.len()));
    }
    let count = bytes.len() / WIDTH;
    let value = |index| f64::from_le_bytes(std::array::from_fn(|byte| bytes[byte * count + index]));
    Ok((0..count).map(value).collect())
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    proptest! {
        #[test]
        fn values_are_read_back_bit_by_bit(bits in prop::collection::vec(any::<u64>(), 0..300)) {
            let values: Vec<f64> = bits.iter().copied().map(f64::from_bits).collect();
            let back: Vec<u64> = decode(&encode(&values)).unwrap().into_iter().map(f64::to_bits).collect();
            prop_assert_eq!(back, bits);
        }

        #[test]
        fn any_content_is_read_or_refused(content in prop::collection::vec(any::<u8>(), 0..300)) {
            if let Ok(values) = decode(&content) {
                prop_assert_eq!(encode(&values), content);
            }
        }
    }

    #[test]
    fn a_part_of_a_series_is_refused() {
        let whole = encode(&[1.0, 2.0]);
        assert_eq!(decode(&whole[..20]), Err(SeriesError::CutOff(20)));
        assert_eq!(decode(&whole[1..]), Err(SeriesError::Header));
    }
}
