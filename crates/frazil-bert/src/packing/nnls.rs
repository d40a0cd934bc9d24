//! Non-negative least squares by Lawson and Hanson's active sets, for matrices whose columns are
//! too many to write down.
//!
//! The method asks one thing of a matrix: which column has the largest product with the residual.
//! Whoever can answer that without listing columns need not list them. Of the columns in use a
//! QR factorisation with an explicit Q is kept and updated, one column in or out at a time; normal
//! equations would square a condition that is bad enough. Left out: anything sparse. The columns
//! in use soon fill a square of the number of rows, and a dense one of a thousand rows is small.

/// A matrix by its columns.
pub(super) trait Columns {
    /// What tells columns apart.
    type Id: PartialEq + Clone;

    /// The column whose product with `residual` is the largest, and that product.
    fn best(&mut self, residual: &[f64]) -> Option<(Self::Id, f64)>;

    /// Rows and values of a column that are not 0.
    fn entries(&self, id: &Self::Id) -> Vec<(usize, f64)>;
}

/// A product with the residual this much smaller than the first one is nothing.
const NOTHING: f64 = 1e-10;

/// Finds the x without negative entries for which |Ax - b| is the smallest: columns, and their
/// coefficients that are not 0.
pub(super) fn solve<C: Columns>(columns: &mut C, b: &[f64]) -> Vec<(C::Id, f64)> {
    let mut factors = Factors::new(b);
    let mut ids: Vec<C::Id> = Vec::new();
    let mut x: Vec<f64> = Vec::new();
    let mut residual = b.to_vec();
    let (mut steps, mut first) = (0, None);
    // In exact numbers the method ends; this ends it in any others.
    let most = 30 * b.len();
    while steps < most && ids.len() < b.len() {
        let Some((id, product)) = columns.best(&residual) else { break };
        let first = *first.get_or_insert(product);
        if product <= first * NOTHING || product <= 0.0 || ids.contains(&id) {
            break;
        }
        if !factors.push(&columns.entries(&id)) {
            break; // it depends on those in use: all that is left is rounding
        }
        steps += 1;
        ids.push(id);
        x.push(0.0);
        let mut is_new = true;
        loop {
            let z = factors.solve();
            let last = z.len().saturating_sub(1);
            if is_new && z.get(last).is_none_or(|z| *z <= 0.0) {
                // Only rounding lets a column that promised descent go up.
                factors.remove(last);
                ids.pop();
                x.pop();
                steps = most;
                break;
            }
            is_new = false;
            let bounded = x.iter().zip(&z).filter(|(_, z)| **z <= 0.0);
            let reach = bounded.map(|(x, z)| x / (x - z)).fold(f64::INFINITY, f64::min);
            if reach == f64::INFINITY {
                x = z;
                break;
            }
            let mut at_bound = Vec::new();
            for (i, (x, z)) in x.iter_mut().zip(&z).enumerate() {
                let stays = *z > 0.0 || *x / (*x - z) > reach;
                *x += reach * (z - *x);
                if !stays || *x <= 0.0 {
                    at_bound.push(i);
                }
            }
            for i in at_bound.into_iter().rev() {
                factors.remove(i);
                ids.remove(i);
                x.remove(i);
            }
        }
        residual.copy_from_slice(b);
        for (id, x) in ids.iter().zip(&x) {
            for (row, value) in columns.entries(id) {
                residual[row] -= value * x;
            }
        }
    }
    ids.into_iter().zip(x).filter(|(_, x)| *x > 0.0).collect()
}

/// Rows of Q that stand side by side: a sum over one row waits for itself, those over eight go together.
const LANES: usize = 8;

/// QR of the columns in use: A = QR, Q square of the number of rows.
struct Factors {
    rows: usize,
    /// Eight rows after eight rows, each eight by their columns.
    q: Vec<[f64; LANES]>,
    /// The columns of R, each as long as its place and one.
    r: Vec<Vec<f64>>,
    /// Qᵀb
    target: Vec<f64>,
}

impl Factors {
    fn new(b: &[f64]) -> Self {
        let rows = b.len();
        let mut q = vec![[0.0; LANES]; rows.div_ceil(LANES) * rows];
        (0..rows).for_each(|i| q[i / LANES * rows + i][i % LANES] = 1.0);
        Self { rows, q, r: Vec::new(), target: b.to_vec() }
    }

    /// Takes a column in, unless it depends on those that are.
    fn push(&mut self, entries: &[(usize, f64)]) -> bool {
        let used = self.r.len();
        let mut v = vec![0.0; self.rows]; // Qᵀa
        for &(row, value) in entries {
            let q = &self.q[row / LANES * self.rows..][..self.rows];
            v.iter_mut().zip(q).for_each(|(v, q)| *v += value * q[row % LANES]);
        }
        let length = |v: &[f64]| v.iter().map(|v| v * v).sum::<f64>().sqrt();
        let (whole, tail) = (length(&v), length(&v[used..]));
        if tail <= whole * 1e-12 {
            return false;
        }
        // A reflection that leaves of the tail its first entry only.
        let head = if v[used] > 0.0 { -tail } else { tail };
        let mut mirror = v[used..].to_vec();
        mirror[0] -= head;
        let scale = 2.0 / mirror.iter().map(|m| m * m).sum::<f64>();
        self.q
            .chunks_exact_mut(self.rows)
            .for_each(|rows| reflect(&mut rows[used..], &mirror, scale));
        let (target, _) = self.target[used..].as_chunks_mut();
        reflect::<1>(target, &mirror, scale);
        v.truncate(used);
        v.push(head);
        self.r.push(v);
        true
    }

    /// Lets a column go: rotations make R a triangle again.
    fn remove(&mut self, place: usize) {
        self.r.remove(place);
        let mut turns = Vec::with_capacity(self.r.len() - place);
        for j in place..self.r.len() {
            let (a, b) = (self.r[j][j], self.r[j][j + 1]);
            let length = a.hypot(b);
            let (cos, sin) = (a / length, b / length);
            for column in &mut self.r[j..] {
                turn::<1>(column.as_chunks_mut().0, j, cos, sin);
            }
            self.r[j].truncate(j + 1);
            turn::<1>(self.target.as_chunks_mut().0, j, cos, sin);
            turns.push((cos, sin));
        }
        for rows in self.q.chunks_exact_mut(self.rows) {
            for (j, &(cos, sin)) in (place..).zip(&turns) {
                turn(rows, j, cos, sin);
            }
        }
    }

    /// The coefficients for which the columns in use come nearest to b.
    fn solve(&self) -> Vec<f64> {
        let mut x = self.target[..self.r.len()].to_vec();
        for (j, column) in self.r.iter().enumerate().rev() {
            x[j] /= column[j];
            let known = x[j];
            x[..j].iter_mut().zip(column).for_each(|(x, r)| *x -= known * r);
        }
        x
    }
}

/// Mirrors rows that stand side by side.
fn reflect<const N: usize>(rows: &mut [[f64; N]], mirror: &[f64], scale: f64) {
    let mut dots = [0.0; N];
    for (entries, m) in rows.iter().zip(mirror) {
        dots.iter_mut().zip(entries).for_each(|(dot, x)| *dot += x * m);
    }
    for (entries, m) in rows.iter_mut().zip(mirror) {
        entries.iter_mut().zip(&dots).for_each(|(x, dot)| *x -= scale * dot * m);
    }
}

/// Turns the plane of an entry and the next.
fn turn<const N: usize>(rows: &mut [[f64; N]], at: usize, cos: f64, sin: f64) {
    let (before, after) = rows.split_at_mut(at + 1);
    for (a, b) in before[at].iter_mut().zip(&mut after[0]) {
        (*a, *b) = (cos * *a + sin * *b, cos * *b - sin * *a);
    }
}

#[cfg(test)]
mod tests {
    use proptest::prelude::*;

    use super::*;

    /// A matrix that is written down.
    struct Dense(Vec<Vec<f64>>);

    fn dot(a: &[f64], b: &[f64]) -> f64 {
        a.iter().zip(b).map(|(a, b)| a * b).sum()
    }

    impl Columns for Dense {
        type Id = usize;

        fn best(&mut self, residual: &[f64]) -> Option<(usize, f64)> {
            let products = self.0.iter().map(|column| dot(column, residual));
            products.enumerate().max_by(|a, b| a.1.total_cmp(&b.1))
        }

        fn entries(&self, id: &usize) -> Vec<(usize, f64)> {
            self.0[*id].iter().copied().enumerate().collect()
        }
    }

    fn residual(matrix: &[Vec<f64>], x: &[(usize, f64)], b: &[f64]) -> Vec<f64> {
        let mut residual = b.to_vec();
        for (column, x) in x {
            residual.iter_mut().zip(&matrix[*column]).for_each(|(r, a)| *r -= a * x);
        }
        residual
    }

    #[test]
    fn a_case_by_hand() {
        // The free solution is (-1, 2); without negative numbers, (0, 1.4).
        let matrix = vec![vec![1.0, 1.0], vec![1.0, 2.0]];
        let x = solve(&mut Dense(matrix), &[1.0, 3.0]);
        assert_eq!(x.len(), 1);
        assert!(x[0].0 == 1 && (x[0].1 - 1.4).abs() < 1e-12);
        assert!(solve(&mut Dense(vec![vec![1.0]]), &[-1.0]).is_empty());
        assert!(solve(&mut Dense(Vec::new()), &[1.0]).is_empty());
    }

    proptest! {
        /// What makes a solution the best: no column could still help, and those in use are done.
        #[test]
        fn no_column_could_help(
            rows in 1..8_usize,
            numbers in prop::collection::vec(-9..10_i32, 8 * 20),
            columns in 1..20_usize,
            b in prop::collection::vec(-50..51_i32, 8),
        ) {
            let b: Vec<f64> = b[..rows].iter().map(|b| f64::from(*b)).collect();
            let matrix: Vec<Vec<f64>> = numbers.chunks(8).take(columns)
                .map(|column| column[..rows].iter().map(|a| f64::from(*a)).collect()).collect();
            let x = solve(&mut Dense(matrix.clone()), &b);
            let residual = residual(&matrix, &x, &b);
            for (index, column) in matrix.iter().enumerate() {
                let product = dot(column, &residual);
                prop_assert!(product < 1e-6, "column {index}: {product}");
                if let Some((_, x)) = x.iter().find(|(used, _)| *used == index) {
                    prop_assert!(*x > 0.0 && product.abs() < 1e-6);
                }
            }
        }
    }
}
