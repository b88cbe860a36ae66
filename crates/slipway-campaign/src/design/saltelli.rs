//! Saltelli's matrices.

use super::cube::Cube;

/// For each point of a sequence of twice the dimensions, whose halves are rows of matrices A and B: the row of A, A with one
/// column of B for each column, with `second_order` also B with one column of A, and the row of B.
///
/// Saltelli, "Making best use of model evaluations to compute sensitivity indices" (2002). The order is that of SALib.
#[derive(Debug)]
pub struct Saltelli<C> {
    base: C,
    dimensions: usize,
    second_order: bool,
}

impl<C: Cube> Saltelli<C> {
    /// The design that comes from a sequence of twice as many dimensions.
    #[must_use]
    pub fn new(base: C, dimensions: usize, second_order: bool) -> Self {
        Self { base, dimensions, second_order }
    }
}

/// Points that come from one base sample.
#[must_use]
pub fn block(dimensions: usize, second_order: bool) -> u64 {
    let columns = dimensions as u64;
    if second_order { 2 * columns + 2 } else { columns + 2 }
}

impl<C: Cube> Cube for Saltelli<C> {
    fn count(&self) -> u64 {
        self.base.count() * block(self.dimensions, self.second_order)
    }

    fn at(&self, index: u64) -> Vec<f64> {
        let block = block(self.dimensions, self.second_order);
        let columns = self.dimensions as u64;
        let mut row = self.base.at(index / block);
        let mut exchanged = row.split_off(self.dimensions);
        let place = index % block;
        if place == block - 1 || place > columns {
            std::mem::swap(&mut row, &mut exchanged);
        }
        if place > 0 && place < block - 1 {
            let column = usize::try_from((place - 1) % columns).expect("a column");
            row[column] = exchanged[column];
        }
        row
    }
}
