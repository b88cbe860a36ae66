//! Lists of points in Parquet files: the program reads any bytes, or refuses them by one error.

use std::process::{Command, Output};
use std::sync::{Arc, LazyLock};

use arrow::array::{ArrayRef, BooleanArray, Float64Array, Int64Array, RecordBatch, StringArray};
use parquet::arrow::ArrowWriter;
use parquet::basic::{Compression, ZstdLevel};
use parquet::file::properties::WriterProperties;
use proptest::prelude::*;
use proptest::sample::Index;
use slipway_campaign::design::Rows;

const NAMES: [&str; 4] = ["depth", "count", "facade", "on"];

/// A file with a column of each kind.
static LIST: LazyLock<Vec<u8>> = LazyLock::new(|| {
    let columns: [ArrayRef; 4] = [
        Arc::new((0..40).map(|row| f64::from(row) / 8.0).collect::<Float64Array>()),
        Arc::new((0..40).collect::<Int64Array>()),
        Arc::new((0..40).map(|row| Some(["North", "South"][row % 2])).collect::<StringArray>()),
        Arc::new((0..40).map(|row| Some(row % 3 == 0)).collect::<BooleanArray>()),
    ];
    let batch = RecordBatch::try_from_iter(NAMES.into_iter().zip(columns)).unwrap();
    let settings = WriterProperties::builder().set_compression(Compression::ZSTD(ZstdLevel::default())).build();
    let mut writer = ArrowWriter::try_new(Vec::new(), batch.schema(), Some(settings)).unwrap();
    writer.write(&batch).unwrap();
    writer.into_inner().unwrap()
});

fn read(bytes: &[u8]) -> Output {
    let file = tempfile::NamedTempFile::new().unwrap();
    std::fs::write(file.path(), bytes).unwrap();
    Command::new(env!("CARGO_BIN_EXE_slipway-query")).arg("list").arg(file.path()).args(NAMES).output().unwrap()
}

#[test]
fn a_list_is_read() {
    let rows: Rows = serde_json::from_slice(&read(&LIST).stdout).unwrap();
    assert_eq!((rows.columns.len(), rows.rows.len()), (4, 40));
}

proptest! {
    #![proptest_config(ProptestConfig::with_cases(200))]

    #[test]
    fn a_damaged_list_is_read_or_refused(
        changes in prop::collection::vec((any::<Index>(), any::<u8>()), 0..6),
        cut in prop::option::of(any::<Index>()),
    ) {
        let mut bytes = LIST.clone();
        for (at, byte) in changes {
            let at = at.index(bytes.len());
            bytes[at] = byte;
        }
        if let Some(cut) = cut {
            bytes.truncate(cut.index(bytes.len()));
        }
        let output = read(&bytes);
        let words = String::from_utf8_lossy(&output.stderr).into_owned();
        if output.status.success() {
            let list: Rows = serde_json::from_slice(&output.stdout).unwrap();
            prop_assert!(list.rows.iter().all(|row| row.len() == list.columns.len()));
        } else {
            prop_assert!(output.status.code().is_some() && words.starts_with("slipway: failed to "), "{output:?}");
            prop_assert!(!words.contains("panicked"), "{words}");
        }
    }
}
