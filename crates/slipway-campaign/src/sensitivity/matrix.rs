//! Inverses of correlation matrices.

/// Variables that follow from the others to this many digits leave a pivot below it.
const LEAST_PIVOT: f64 = 1e-10;

/// The inverse of a symmetric positive matrix with ones on its diagonal, by Gauss and Jordan; `None` where one of its
/// variables follows from those before it.
pub(super) fn inverse(mut matrix: Vec<Vec<f64>>) -> Option<Vec<Vec<f64>>> {
    let size = matrix.len();
    // In place: the column of a pivot becomes that of the inverse. Positive matrices need no exchange of rows.
    for pivot in 0..size {
        let by = matrix[pivot][pivot];
        if by < LEAST_PIVOT {
            return None;
        }
        matrix[pivot][pivot] = 1.0;
        matrix[pivot].iter_mut().for_each(|value| *value /= by);
        let above = matrix[pivot].clone();
        for (_, row) in matrix.iter_mut().enumerate().filter(|(row, _)| *row != pivot) {
            let times = std::mem::take(&mut row[pivot]);
            row.iter_mut().zip(&above).for_each(|(value, above)| *value -= times * above);
        }
    }
    Some(matrix)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn an_inverse_undoes_its_matrix() {
        let matrix = vec![vec![1.0, 0.5, 0.2], vec![0.5, 1.0, -0.3], vec![0.2, -0.3, 1.0]];
        let found = inverse(matrix.clone()).expect("a positive matrix");
        for (row, values) in matrix.iter().enumerate() {
            // The inverse of a symmetric matrix is symmetric, so its rows are its columns.
            for (column, others) in found.iter().enumerate() {
                let product: f64 = values.iter().zip(others).map(|(a, b)| a * b).sum();
                assert!((product - f64::from(u8::from(row == column))).abs() < 1e-14);
            }
        }
        assert_eq!(inverse(vec![vec![1.0, 1.0], vec![1.0, 1.0]]), None);
    }
}
