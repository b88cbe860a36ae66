//! Latin hypercubes with a large smallest distance.

use crate::hash::{below, hash};

/// Most points: each is compared with each.
pub(super) const MOST: u64 = 2000;

/// Exchanges to try for each point. They make the smallest distance 2 to 3 times as large; ten times as many add 2 to 5 %.
const TRIES: u64 = 20;

/// Exchanges slices between points while that makes their smallest distance larger, or the number of such pairs smaller.
///
/// The criterion is that of Johnson, Moore, Ylvisaker, "Minimax and maximin distance designs" (1990). Each try exchanges one
/// coordinate of a point that is closest to another, so the points stay a Latin hypercube.
pub(super) fn spread(key: u64, mut points: Vec<Vec<u32>>) -> Vec<Vec<u32>> {
    let dimensions = points.first().map_or(0, Vec::len);
    if points.len() < 3 || dimensions < 2 {
        return points;
    }
    let mut nearest: Vec<Near> = (0..points.len()).map(|of| find_nearest(&points, of)).collect();
    for attempt in 0..TRIES * points.len() as u64 {
        let closest = (0..points.len()).min_by_key(|of| nearest[*of].distance).expect("there are points");
        let draw = |what, count: usize| {
            usize::try_from(below(hash(&[key, attempt, what]), count as u64)).expect("below a length")
        };
        let (other, dimension) = (draw(0, points.len()), draw(1, dimensions));
        if other == closest {
            continue;
        }
        exchange(&mut points, closest, other, dimension);
        let least = nearest[closest].distance;
        if [closest, other].into_iter().all(|of| is_farther(&points, of, least)) {
            note(&mut nearest, &points, [closest, other]);
        } else {
            exchange(&mut points, closest, other, dimension);
        }
    }
    points
}

/// The nearest other point.
#[derive(Clone, Copy)]
struct Near {
    /// Square of the distance, in slices.
    distance: u64,
    point: usize,
}

fn distance(one: &[u32], other: &[u32]) -> u64 {
    one.iter().zip(other).map(|(a, b)| u64::from(a.abs_diff(*b)).pow(2)).sum()
}

fn find_nearest(points: &[Vec<u32>], of: usize) -> Near {
    let others = (0..points.len()).filter(|other| *other != of);
    let near = others.map(|point| Near { distance: distance(&points[of], &points[point]), point });
    near.min_by_key(|near| near.distance).expect("there are two points")
}

fn is_farther(points: &[Vec<u32>], of: usize, least: u64) -> bool {
    points.iter().enumerate().all(|(other, point)| other == of || distance(&points[of], point) > least)
}

fn exchange(points: &mut [Vec<u32>], one: usize, other: usize, dimension: usize) {
    let slice = points[one][dimension];
    points[one][dimension] = points[other][dimension];
    points[other][dimension] = slice;
}

/// Brings the nearest points up to date after these two moved.
fn note(nearest: &mut [Near], points: &[Vec<u32>], moved: [usize; 2]) {
    for of in 0..points.len() {
        if moved.contains(&of) || moved.contains(&nearest[of].point) {
            nearest[of] = find_nearest(points, of);
        } else {
            for point in moved {
                let distance = distance(&points[of], &points[point]);
                if distance < nearest[of].distance {
                    nearest[of] = Near { distance, point };
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::hash::permuted;

    #[test]
    fn the_smallest_distance_grows() {
        let order = |dimension| move |place| u32::try_from(permuted(dimension, 100, place)).expect("few");
        let points: Vec<Vec<u32>> =
            (0..100).map(|place| (0..5).map(|dimension| order(dimension)(place)).collect()).collect();
        let least = |points: &[Vec<u32>]| (0..100).map(|of| find_nearest(points, of).distance).min().expect("points");
        let before = least(&points);
        let after = least(&spread(1, points));
        // Squares of distances.
        assert!(after > 3 * before, "{before} {after}");
    }
}
