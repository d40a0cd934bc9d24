//! Which tensor of a checkpoint goes into which variable, read off the graph that restores them.
//!
//! As a rule both have the same name. A saver may have others in mind: it can take moving averages
//! for the weights, or parts of one tensor for the parts of a partitioned variable. What it does
//! stands in the graph: `RestoreV2` names the tensors, `Assign` the variables.

use std::collections::{BTreeMap, HashMap, HashSet};

use frazil_tensor::{StoreError, Tensor, TensorInfo, TensorStore};
use frazil_tf::graph_def;
use frazil_tf::proto::{GraphDef, NodeDef, SaverDef};
use frazil_tf::slice::TensorSlice;

use crate::tf::import::split;

/// Between a variable and who assigns it, or a tensor and where it goes, lie no more nodes.
const MOST_STEPS: usize = 64;

/// Where the value of a variable comes from.
#[derive(Clone, Debug, PartialEq, Eq)]
pub struct Source {
    /// The tensor's name in the checkpoint.
    pub key: String,
    /// Which part of it; `None` for all.
    pub slice: Option<TensorSlice>,
}

/// What a saver restores: a source for each variable, by the variable's node. Empty if the graph
/// has no such saver.
pub fn restored(def: &GraphDef, saver: &SaverDef) -> BTreeMap<String, Source> {
    let nodes = Nodes::new(def);
    let name = saver.restore_op_name.trim_start_matches('^');
    let name = name.split(':').next().unwrap_or_default();
    let mut found = BTreeMap::new();
    for assign in nodes.assignments([name]) {
        if let Some((variable, source)) = nodes.restores(assign) {
            found.insert(variable, source);
        }
    }
    found
}

/// The nodes of a graph by name.
pub(super) struct Nodes<'a>(HashMap<&'a str, &'a NodeDef>);

impl<'a> Nodes<'a> {
    pub(super) fn new(def: &'a GraphDef) -> Self {
        Self(def.node.iter().map(|node| (node.name.as_str(), node)).collect())
    }

    pub(super) fn get(&self, name: &str) -> Option<&'a NodeDef> {
        self.0.get(name).copied()
    }

    /// Who computes input `i` of a node, and which of its outputs it is.
    pub(super) fn source(&self, node: &NodeDef, i: usize) -> Option<(&'a NodeDef, u32)> {
        let (name, port) = split(node.input.get(i)?)?;
        Some((self.get(name)?, port?))
    }

    /// The assignments that run when the named nodes do.
    pub(super) fn assignments<'n>(
        &self,
        names: impl IntoIterator<Item = &'n str>,
    ) -> Vec<&'a NodeDef> {
        let mut stack: Vec<&NodeDef> =
            names.into_iter().filter_map(|name| self.get(name)).collect();
        let mut seen: HashSet<&str> = stack.iter().map(|node| node.name.as_str()).collect();
        let mut found = Vec::new();
        while let Some(node) = stack.pop() {
            if matches!(node.op.as_str(), "Assign" | "AssignVariableOp") {
                found.push(node);
            }
            for input in &node.input {
                let source = split(input).and_then(|(name, _)| self.get(name));
                if let Some(source) = source.filter(|source| seen.insert(&source.name)) {
                    stack.push(source);
                }
            }
        }
        found.sort_by(|a, b| a.name.cmp(&b.name));
        found
    }

    /// The variable that is behind input `i` of a node.
    pub(super) fn variable(&self, node: &NodeDef, i: usize) -> Option<&'a NodeDef> {
        let (mut source, _) = self.source(node, i)?;
        for _ in 0..MOST_STEPS {
            match source.op.as_str() {
                "Variable" | "VariableV2" | "VarHandleOp" => return Some(source),
                "Identity" | "Enter" | "RefEnter" | "RefIdentity" | "Switch" | "RefSwitch" => {
                    source = self.source(source, 0)?.0;
                }
                _ => return None,
            }
        }
        None
    }

    /// What an assignment takes out of a checkpoint.
    fn restores(&self, assign: &NodeDef) -> Option<(String, Source)> {
        let variable = self.variable(assign, 0)?.name.clone();
        let (mut value, mut port) = self.source(assign, 1)?;
        for _ in 0..MOST_STEPS {
            if !matches!(value.op.as_str(), "Identity" | "Reshape" | "Cast") {
                break;
            }
            (value, port) = self.source(value, 0)?;
        }
        let text = |i: usize| -> Option<String> {
            let (list, _) = self.source(value, i)?;
            let list = graph_def::const_tensor(list).ok()?;
            let at = if value.op == "RestoreV2" { port as usize } else { 0 };
            String::from_utf8(list.strings().ok()?.get(at)?.to_vec()).ok()
        };
        let (key, spec) = match value.op.as_str() {
            "RestoreV2" | "RestoreSlice" => (text(1)?, text(2)?),
            "Restore" => (text(1)?, String::new()),
            _ => return None,
        };
        let slice = if spec.is_empty() { None } else { Some(TensorSlice::parse(&spec)?.1) };
        Some((variable, Source { key, slice }))
    }
}

/// A checkpoint's tensors by the variables of a graph.
pub struct Variables<S> {
    checkpoint: S,
    sources: BTreeMap<String, Source>,
    infos: Vec<TensorInfo>,
}

impl<S: TensorStore> Variables<S> {
    /// The variables that `sources` names, as far as the checkpoint has their tensors.
    pub fn new(checkpoint: S, sources: BTreeMap<String, Source>) -> Self {
        let infos = sources
            .iter()
            .filter_map(|(name, source)| {
                let info = checkpoint.info(&source.key)?;
                let shape = match &source.slice {
                    None => info.shape.clone(),
                    Some(slice) => slice.shape(&info.shape)?,
                };
                Some(TensorInfo { name: name.clone(), dtype: info.dtype, shape })
            })
            .collect();
        Self { checkpoint, sources, infos }
    }

    /// Those that a saver restores, and by their own names all that it does not.
    pub fn of(def: &GraphDef, saver: &SaverDef, checkpoint: S) -> Self {
        let mut sources = restored(def, saver);
        for info in checkpoint.infos() {
            let by_name = || Source { key: info.name.clone(), slice: None };
            sources.entry(info.name.clone()).or_insert_with(by_name);
        }
        Self::new(checkpoint, sources)
    }
}

impl<S: TensorStore> TensorStore for Variables<S> {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        let source = self
            .sources
            .get(name)
            .ok_or_else(|| frazil_tensor::Error::NoSuchTensor(name.to_owned()))?;
        let tensor = self.checkpoint.tensor(&source.key)?;
        match &source.slice {
            None => Ok(tensor),
            Some(slice) => Ok(slice.cut(&source.key, &tensor)?),
        }
    }
}

/// Tensors in memory, before those of another store where both have one.
pub struct Overlay<'a> {
    below: &'a dyn TensorStore,
    above: BTreeMap<String, Tensor>,
    infos: Vec<TensorInfo>,
}

impl<'a> Overlay<'a> {
    /// `above` before `below`.
    pub fn new(below: &'a dyn TensorStore, above: BTreeMap<String, Tensor>) -> Self {
        let mut infos: BTreeMap<&str, TensorInfo> =
            below.infos().iter().map(|info| (info.name.as_str(), info.clone())).collect();
        for (name, tensor) in &above {
            let (name_, dtype) = (name.clone(), tensor.dtype());
            let info = TensorInfo { name: name_, dtype, shape: tensor.shape().clone() };
            infos.insert(name, info);
        }
        let infos = infos.into_values().collect();
        Self { below, above, infos }
    }
}

impl TensorStore for Overlay<'_> {
    fn infos(&self) -> &[TensorInfo] {
        &self.infos
    }

    fn tensor(&self, name: &str) -> Result<Tensor, StoreError> {
        match self.above.get(name) {
            Some(tensor) => Ok(tensor.clone()),
            None => self.below.tensor(name),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use frazil_tensor::Shape;
    use frazil_tf::pbtxt;

    /// A checkpoint with `w: [3, 2]`.
    struct Weights(Vec<TensorInfo>);

    impl TensorStore for Weights {
        fn infos(&self) -> &[TensorInfo] {
            &self.0
        }

        fn tensor(&self, _: &str) -> Result<Tensor, StoreError> {
            Ok(Tensor::from_vec([3, 2], vec![0f32, 1., 2., 3., 4., 5.])?)
        }
    }

    fn weights() -> Weights {
        let (name, dtype) = ("w".to_owned(), frazil_tensor::DType::F32);
        Weights(vec![TensorInfo { name, dtype, shape: [3, 2].into() }])
    }

    fn texts(name: &str, list: [&str; 2]) -> String {
        format!(
            r#"node {{ name: "{name}" op: "Const" attr {{ key: "dtype" value {{ type: DT_STRING }} }}
            attr {{ key: "value" value {{ tensor {{ dtype: DT_STRING
            tensor_shape {{ dim {{ size: 2 }} }} string_val: "{}" string_val: "{}" }} }} }} }}"#,
            list[0], list[1]
        )
    }

    #[test]
    fn parts_and_other_names() {
        let text = format!(
            r#"{} {}
            node {{ name: "a" op: "VariableV2" }} node {{ name: "h" op: "VarHandleOp" }}
            node {{ name: "r" op: "RestoreV2" input: "p" input: "names" input: "slices" }}
            node {{ name: "sa" op: "Assign" input: "a" input: "r" }}
            node {{ name: "i" op: "Identity" input: "r:1" }}
            node {{ name: "sh" op: "AssignVariableOp" input: "h" input: "i" }}
            node {{ name: "all" op: "NoOp" input: "^sa" input: "^sh" }}"#,
            texts("names", ["w", "w"]),
            texts("slices", ["3 2 1,2:-", ""])
        );
        let def: GraphDef = pbtxt::parse(&text).unwrap();
        let saver = SaverDef { restore_op_name: "all".into(), ..SaverDef::default() };
        let sources = restored(&def, &saver);
        assert_eq!(sources["h"], Source { key: "w".into(), slice: None });
        let store = Variables::new(weights(), sources);
        assert_eq!(store.info("a").unwrap().shape, Shape::from([2, 2]));
        let part = store.tensor("a").unwrap();
        assert_eq!(&*part.values::<f32>().unwrap(), &[2., 3., 4., 5.]);
        assert!(store.info("w").is_none() && store.tensor("x").is_err());
        // By name where the saver says nothing.
        let store = Variables::of(&def, &saver, weights());
        let names: Vec<&str> = store.infos().iter().map(|info| info.name.as_str()).collect();
        assert_eq!(names, ["a", "h", "w"]);
        let none = SaverDef { restore_op_name: "nowhere".into(), ..SaverDef::default() };
        assert!(restored(&def, &none).is_empty());
    }
}
