//! Windows: TensorFlow's `Slice` and `StridedSlice` as ONNX's `Slice`, `Gather` and `Unsqueeze`.

use frazil_graph::op::StridedSlice;
use frazil_graph::{Node, Value};

use super::attr;
use super::builder::{Builder, Refusal};

type Emitted = Result<(), Refusal>;

/// To the end, whatever the extent.
const END: i64 = i64::MAX;
/// To the beginning, going backwards.
const BEFORE_BEGINNING: i64 = i64::MIN + 1;

/// A window by begin and size; -1 is the rest of the axis.
pub(super) fn slice(b: &mut Builder<'_>, node: &Node) -> Emitted {
    let x = b.data(node.inputs[0])?;
    let (begin, size) = (node.inputs[1], node.inputs[2]);
    let rank = match b.rank(node.inputs[0]) {
        Some(rank) => rank,
        None => b.known_ints(begin, "begin")?.len(),
    };
    // Only the axes of which not all is taken; what is taken of them may be known when it runs.
    let begins: Vec<Option<i64>> = elements(b, begin, rank);
    let sizes: Vec<Option<i64>> = elements(b, size, rank);
    let open = |size: Option<i64>| size == Some(-1);
    let axes: Vec<usize> =
        (0..rank).filter(|&i| !(begins[i] == Some(0) && open(sizes[i]))).collect();
    if axes.is_empty() {
        return b.finish("Identity", &[&x], vec![]);
    }
    let names: Vec<i64> = axes.iter().map(|&axis| axis as i64).collect();
    let starts = chosen(b, "starts", begin, &begins, &axes)?;
    let known: Option<Vec<i64>> = axes
        .iter()
        .map(|&i| if open(sizes[i]) { Some(END) } else { begins[i]?.checked_add(sizes[i]?) })
        .collect();
    let ends = match known {
        Some(ends) => b.list("ends", &ends)?,
        None => {
            let sizes_taken = chosen(b, "sizes", size, &sizes, &axes)?;
            let ends = if axes.iter().all(|&i| begins[i] == Some(0)) {
                sizes_taken.clone()
            } else {
                b.emit("ends", "Add", &[&starts, &sizes_taken], vec![])
            };
            // A size that only the run knows may be -1 as well, unless inference has it.
            let never_open = axes.iter().all(|&i| is_extent(b, size, i));
            if never_open {
                ends
            } else {
                let minus = b.list("open", &[-1])?;
                let open = b.emit("is_open", "Equal", &[&sizes_taken, &minus], vec![]);
                let end = b.list("end", &[END])?;
                b.emit("ends_or_all", "Where", &[&open, &end, &ends], vec![])
            }
        }
    };
    let axes = b.list("axes", &names)?;
    b.finish("Slice", &[&x, &starts, &ends, &axes], vec![])
}

/// What is known of a list's elements.
fn elements(b: &Builder<'_>, list: Value, count: usize) -> Vec<Option<i64>> {
    if let Some(ints) = b.ints(list).filter(|ints| ints.len() == count) {
        return ints.into_iter().map(Some).collect();
    }
    match &b.facts[list].elements {
        Some(elements) if elements.len() == count => {
            elements.iter().map(|element| element.as_known()).collect()
        }
        _ => vec![None; count],
    }
}

/// Whether an element is known to be an extent, a number or a polynomial that is never negative,
/// other than -1.
fn is_extent(b: &Builder<'_>, list: Value, i: usize) -> bool {
    let elements = b.facts[list].elements.as_ref();
    elements.and_then(|elements| elements.get(i)).is_some_and(|element| !element.is(-1))
}

/// The elements of a list that belong to `axes`: as constants or picked at run time.
fn chosen(
    b: &mut Builder<'_>,
    part: &str,
    list: Value,
    known: &[Option<i64>],
    axes: &[usize],
) -> Result<String, Refusal> {
    if let Some(all) = axes.iter().map(|&i| known[i]).collect::<Option<Vec<i64>>>() {
        return b.list(part, &all);
    }
    let name = b.index(list)?;
    if axes.len() == known.len() {
        return Ok(name);
    }
    let picks: Vec<i64> = axes.iter().map(|&i| i as i64).collect();
    let picks = b.list("picks", &picks)?;
    Ok(b.emit(part, "Gather", &[&name, &picks], vec![attr::int("axis", 0)]))
}

/// One entry of a strided slice that names an axis.
struct Entry {
    /// Its place in begin, end and strides.
    place: usize,
    /// The axis of x; negative where it counts from the end.
    axis: i64,
    shrink: bool,
}

/// Ranges become one `Slice`, then every index a `Gather`, then new axes an `Unsqueeze`.
pub(super) fn strided_slice(b: &mut Builder<'_>, node: &Node, op: StridedSlice) -> Emitted {
    let &[x, begin, end, strides] = node.inputs.as_slice() else {
        return Err("four inputs are wanted".to_owned());
    };
    let steps = b.known_ints(strides, "strides")?;
    let count = steps.len();
    if count > 32 {
        return Err(format!("{count} entries are more than masks have bits"));
    }
    let begins = elements(b, begin, count);
    let ends = elements(b, end, count);
    let (entries, new_axes) = layout(b, x, op, count)?;

    let mut name = b.data(x)?;
    let ranges: Vec<&Entry> = entries
        .iter()
        .filter(|entry| !entry.shrink && !takes_all(op, entry.place, &begins, &steps))
        .collect();
    let picks: Vec<&Entry> = entries.iter().filter(|entry| entry.shrink).collect();
    let mut left =
        usize::from(!ranges.is_empty()) + picks.len() + usize::from(!new_axes.is_empty());
    if left == 0 {
        return b.finish("Identity", &[&name], vec![]);
    }
    // The last of the operations gives the node's result.
    let mut step = |b: &mut Builder<'_>,
                    part: &str,
                    kind: &str,
                    inputs: &[&str],
                    attributes: Vec<_>|
     -> Result<String, Refusal> {
        left -= 1;
        if left == 0 {
            b.finish(kind, inputs, attributes)?;
            return Ok(String::new());
        }
        Ok(b.emit(part, kind, inputs, attributes))
    };
    if !ranges.is_empty() {
        let start = |entry: &Entry| bound(op.begin_mask, entry, &begins, &steps, (0, END));
        let stop =
            |entry: &Entry| bound(op.end_mask, entry, &ends, &steps, (END, BEFORE_BEGINNING));
        let starts = bounds(b, "starts", begin, &ranges, start)?;
        let stops = bounds(b, "ends", end, &ranges, stop)?;
        let axes: Vec<i64> = ranges.iter().map(|entry| entry.axis).collect();
        let taken: Vec<i64> = ranges.iter().map(|entry| steps[entry.place]).collect();
        let axes = b.list("axes", &axes)?;
        let mut inputs = vec![name.as_str(), &starts, &stops, &axes];
        let strides;
        if taken.iter().any(|&step| step != 1) {
            strides = b.list("strides", &taken)?;
            inputs.push(&strides);
        }
        name = step(b, "window", "Slice", &inputs, vec![])?;
    }
    // From the last axis to the first, so that those before keep their places; axes that count
    // from the end are all behind the others, and there the last must go last.
    let (from_start, from_end): (Vec<&Entry>, Vec<&Entry>) =
        picks.iter().partition(|entry| entry.axis >= 0);
    for entry in from_end.into_iter().chain(from_start.into_iter().rev()) {
        let index = match begins[entry.place] {
            Some(index) => {
                let index = frazil_tensor::Tensor::from_vec([], vec![index]);
                b.small("index", &index.map_err(|e| e.to_string())?)?
            }
            None => {
                let list = b.index(begin)?;
                let place = frazil_tensor::Tensor::from_vec([], vec![entry.place as i64]);
                let place = b.small("place", &place.map_err(|e| e.to_string())?)?;
                b.emit("index", "Gather", &[&list, &place], vec![attr::int("axis", 0)])
            }
        };
        let axis = vec![attr::int("axis", entry.axis)];
        name = step(b, "picked", "Gather", &[&name, &index], axis)?;
    }
    if !new_axes.is_empty() {
        let axes = b.list("new_axes", &new_axes)?;
        step(b, "new", "Unsqueeze", &[&name, &axes], vec![])?;
    }
    Ok(())
}

/// Which axis each entry names, and where in the result new axes go.
fn layout(
    b: &Builder<'_>,
    x: Value,
    op: StridedSlice,
    count: usize,
) -> Result<(Vec<Entry>, Vec<i64>), Refusal> {
    let bit = |mask: u32, i: usize| mask >> i & 1 == 1;
    let ellipsis = (0..count).find(|&i| bit(op.ellipsis_mask, i));
    let names_axis = |i: usize| !bit(op.new_axis_mask, i) && !bit(op.ellipsis_mask, i);
    let behind = |i: usize| (i + 1..count).filter(|&j| names_axis(j)).count() as i64;
    let mut entries = Vec::new();
    let mut new_axes = Vec::new();
    let (mut axis, mut place) = (0i64, 0i64);
    for i in 0..count {
        let after_ellipsis = ellipsis.is_some_and(|at| i > at);
        if Some(i) == ellipsis {
            // How many axes that is matters only if something follows it.
            if (i + 1..count).any(|j| bit(op.new_axis_mask, j)) {
                let named = (0..count).filter(|&j| names_axis(j)).count();
                let all = b.known_rank(x)?.saturating_sub(named);
                place += all as i64;
            }
        } else if bit(op.new_axis_mask, i) {
            new_axes.push(place);
            place += 1;
        } else {
            let shrink = bit(op.shrink_axis_mask, i);
            let named = if after_ellipsis { -1 - behind(i) } else { axis };
            entries.push(Entry { place: i, axis: named, shrink });
            axis += 1;
            place += i64::from(!shrink);
        }
    }
    Ok((entries, new_axes))
}

fn takes_all(op: StridedSlice, i: usize, begins: &[Option<i64>], steps: &[i64]) -> bool {
    let from_start = op.begin_mask >> i & 1 == 1 || begins[i] == Some(0);
    from_start && op.end_mask >> i & 1 == 1 && steps[i] == 1
}

/// A bound that is known: `Err` holds the place of one that only the run knows.
fn bound(
    mask: u32,
    entry: &Entry,
    known: &[Option<i64>],
    steps: &[i64],
    (forwards, backwards): (i64, i64),
) -> Result<i64, usize> {
    if mask >> entry.place & 1 == 1 {
        return Ok(if steps[entry.place] > 0 { forwards } else { backwards });
    }
    known[entry.place].ok_or(entry.place)
}

/// The bounds of all ranges as one list.
fn bounds(
    b: &mut Builder<'_>,
    part: &str,
    list: Value,
    ranges: &[&Entry],
    bound: impl Fn(&Entry) -> Result<i64, usize>,
) -> Result<String, Refusal> {
    let all: Vec<Result<i64, usize>> = ranges.iter().map(|entry| bound(entry)).collect();
    if let Ok(known) = all.iter().copied().collect::<Result<Vec<i64>, usize>>() {
        return b.list(part, &known);
    }
    let name = b.index(list)?;
    let in_order = all.iter().enumerate().all(|(i, bound)| *bound == Err(i));
    if in_order && b.facts[list].known_dims() == Some(vec![all.len() as i64]) {
        return Ok(name);
    }
    let mut pieces = Vec::new();
    for bound in all {
        pieces.push(match bound {
            Ok(known) => b.list("bound", &[known])?,
            Err(place) => {
                let place = b.list("place", &[place as i64])?;
                b.emit("bound", "Gather", &[&name, &place], vec![attr::int("axis", 0)])
            }
        });
    }
    if let [one] = pieces.as_slice() {
        return Ok(one.clone());
    }
    let pieces: Vec<&str> = pieces.iter().map(String::as_str).collect();
    Ok(b.emit(part, "Concat", &pieces, vec![attr::int("axis", 0)]))
}
