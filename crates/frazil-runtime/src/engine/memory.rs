//! Which step reads and writes what, and from that: which values can share a block of memory.

use super::program::{Attention, Place, Program, Quantized, Sequences, Step, Stride, View, Work};

/// Leaves out plain steps that nobody reads: what they would have told was known without them.
pub(super) fn drop_unread(program: &mut Program) {
    let mut read = vec![false; program.tensors];
    let note = |place: &Place, read: &mut [bool]| {
        if let Place::Tensor(at) = place {
            read[*at] = true;
        }
    };
    program.outputs.iter().for_each(|(_, place)| note(place, &mut read));
    let mut kept = Vec::with_capacity(program.steps.len());
    while let Some(step) = program.steps.pop() {
        let unread = match &step.work {
            Work::Plain { outputs, .. } => !outputs.iter().any(|&at| read[at]),
            _ => false,
        };
        if !unread {
            step.work.places(&mut |place| note(place, &mut read));
            kept.push(step);
        }
    }
    kept.reverse();
    program.steps = kept;
}

/// Finds the step that is the last to write each output.
pub(super) fn find_ready(program: &mut Program) {
    let mut ready = Vec::new();
    for (output, (_, place)) in program.outputs.iter().enumerate() {
        let writes = |step: &Step| match (place, &step.work) {
            (Place::View(view), work) => {
                let mut found = false;
                work.written(&mut |written| found |= written.storage == view.storage);
                found
            }
            (Place::Tensor(at), Work::Plain { outputs, .. }) => outputs.contains(at),
            _ => false,
        };
        // What no step writes is there from the beginning.
        ready.push((program.steps.iter().rposition(writes).unwrap_or(0), output));
    }
    ready.sort_unstable();
    program.ready = ready;
}

/// Gives every storage a block: one that nobody needs any more, or a new one.
pub(super) fn assign_blocks(program: &mut Program) {
    let mut last: Vec<usize> = vec![0; program.storages.len()];
    for (at, step) in program.steps.iter().enumerate() {
        step.work.views(&mut |view| last[view.storage] = at);
    }
    for (_, place) in &program.outputs {
        if let Place::View(view) = place {
            last[view.storage] = usize::MAX;
        }
    }
    let trains = program.parameters > 0;
    // Per block: until when it is taken, and what it was made for.
    let mut blocks: Vec<(usize, Stride)> = Vec::new();
    let mut given: Vec<bool> = vec![false; program.storages.len()];
    let written = |step: &Step| {
        let mut storages = Vec::new();
        step.work.written(&mut |view| storages.push(view.storage));
        storages
    };
    let written: Vec<Vec<usize>> = program.steps.iter().map(written).collect();
    for (at, out) in
        written.iter().enumerate().flat_map(|(at, all)| all.iter().map(move |&out| (at, out)))
    {
        if std::mem::replace(&mut given[out], true) {
            continue;
        }
        let stride = program.storages[out].stride;
        let free = |(until, _): &(usize, Stride)| *until < at;
        // The same kind first; then anything, since blocks grow.
        let found = blocks
            .iter()
            .position(|block| free(block) && block.1 == stride)
            .or_else(|| blocks.iter().position(free))
            // Gradients of weights stay to the end: they would take the large blocks of layers out of
            // circulation.
            .filter(|_| !(trains && last[out] == usize::MAX));
        let block = found.unwrap_or_else(|| {
            blocks.push((0, stride));
            blocks.len() - 1
        });
        blocks[block] = (last[out], stride);
        program.storages[out].block = block;
    }
    program.blocks = blocks.len();
}

impl Work {
    /// What the step writes, if it is a view.
    pub(crate) fn out(&self) -> Option<&View> {
        match self {
            Work::Embed(embed) => Some(&embed.out),
            Work::Attention(attention) => Some(attention.out.view()),
            Work::Linear { out, .. } | Work::LinearI8 { out, .. } => Some(out.view()),
            Work::LayerNorm { out, .. }
            | Work::Map { out, .. }
            | Work::Add { out, .. }
            | Work::Softmax { out, .. }
            | Work::Gather { out, .. }
            | Work::Column { out, .. }
            | Work::Dequantize { out, .. }
            | Work::UnpackRows { out, .. } => Some(out),
            Work::Quantize { out, .. } => Some(&out.view),
            Work::PackRows { .. }
            | Work::Head { .. }
            | Work::Count { .. }
            | Work::Watch { .. }
            | Work::Train(_)
            | Work::Plain { .. } => None,
        }
    }

    /// Everything that the step writes.
    fn written(&self, seen: &mut impl FnMut(&View)) {
        self.out().into_iter().for_each(&mut *seen);
        let bytes = match self {
            Work::Embed(embed) => embed.bytes.as_ref(),
            Work::LayerNorm { bytes, .. } | Work::LinearI8 { bytes, .. } => bytes.as_ref(),
            Work::Quantize { out, .. } => Some(out),
            _ => None,
        };
        bytes.into_iter().flat_map(Quantized::views).for_each(&mut *seen);
        if let Work::Train(train) = self {
            train.written(seen);
        }
    }

    /// Every view that the step reads or writes.
    pub(crate) fn views(&self, seen: &mut impl FnMut(&View)) {
        self.written(seen);
        if let Work::LinearI8 { x, .. } | Work::Dequantize { x, .. } = self {
            x.views().for_each(&mut *seen);
        }
        self.places(&mut |place| {
            if let Place::View(view) = place {
                seen(view);
            }
        });
    }

    /// Every place that the step reads.
    fn places(&self, seen: &mut impl FnMut(&Place)) {
        match self {
            Work::PackRows { mask, .. } => seen(mask),
            Work::Embed(embed) => {
                seen(&embed.ids);
                seen(&embed.segments);
                embed.index.iter().for_each(seen);
            }
            Work::Linear { x, residual, .. } => {
                seen(x);
                residual.iter().for_each(seen);
            }
            Work::LinearI8 { residual, .. } => residual.iter().for_each(seen),
            Work::LayerNorm { x, .. }
            | Work::Map { x, .. }
            | Work::Softmax { x, .. }
            | Work::Column { x, .. }
            | Work::Watch { x, .. }
            | Work::Quantize { x, .. } => seen(x),
            Work::Head { list, .. } => seen(list),
            Work::Count { .. } | Work::Dequantize { .. } => {}
            Work::Attention(attention) => attention.places(seen),
            Work::Train(train) => train.places(seen),
            Work::Add { a, b, .. } => {
                seen(a);
                seen(b);
            }
            Work::Gather { x, rows, .. } => {
                seen(x);
                seen(rows);
            }
            Work::UnpackRows { x, index, .. } => {
                seen(x);
                seen(index);
            }
            Work::Plain { inputs, .. } => inputs.iter().for_each(seen),
        }
    }
}

impl Attention {
    /// Every place that it reads.
    pub(crate) fn places(&self, seen: &mut dyn FnMut(&Place)) {
        [&self.q, &self.k, &self.v].into_iter().for_each(&mut *seen);
        match &self.sequences {
            Sequences::Mask(mask) => seen(mask),
            Sequences::Packed { queries, keys } => {
                seen(queries);
                seen(keys);
            }
        }
    }
}
