//! "Defined Functions": what `show --all` says of a TensorFlow 2 SavedModel. The original loads
//! the model and asks its objects; here the same is read off the object graph. One thing can
//! differ: the original orders a function's variants by names with run-time numbers in them, so
//! that number 9 comes after number 10; here they are in the order of these numbers.

use std::collections::BTreeMap;
use std::io::{self, Write};

use frazil::tf::proto::{
    FunctionDef, MetaGraphDef, SavedModel, SavedObjectGraph, StructuredValue,
    attr_value::Value as Attr, saved_object, structured_value::Kind,
};

use super::python;

/// Lists the functions of the root object, if some MetaGraph has objects at all.
pub fn show(model: &SavedModel, out: &mut dyn Write) -> io::Result<()> {
    let objects = |meta: &'_ MetaGraphDef| meta.object_graph_def.is_some();
    let Some(meta) = model.meta_graphs.iter().find(|meta| objects(meta)) else { return Ok(()) };
    let Some(objects) = &meta.object_graph_def else { return Ok(()) };
    let order = load_order(meta);
    write!(out, "\nDefined Functions:")?;
    for (name, mut concrete) in functions(objects) {
        writeln!(out, "\n  Function Name: '{name}'")?;
        concrete.sort_by_cached_key(|function| {
            (clean(function), order.get(function).copied().unwrap_or(usize::MAX))
        });
        // A function that could not be described when it was saved is not listed.
        let described = concrete.iter().filter_map(|&f| objects.concrete_functions.get(f));
        for (index, function) in described.enumerate() {
            writeln!(out, "    Option #{}\n      Callable with:", index + 1)?;
            let (arguments, named) = signature(function.canonicalized_input_signature.as_ref());
            for (index, argument) in arguments.iter().enumerate() {
                writeln!(out, "        Argument #{}", index + 1)?;
                show_argument(argument, out)?;
            }
            // Of named arguments the original shows the names, letter by letter.
            for (index, name) in named.iter().enumerate() {
                writeln!(out, "        Named Argument #{}", index + 1)?;
                let name = Kind::StringValue((*name).clone());
                show_argument(&StructuredValue { kind: Some(name) }, out)?;
            }
        }
    }
    Ok(())
}

/// The root object's functions by name, each with the names of its variants.
fn functions(objects: &SavedObjectGraph) -> BTreeMap<&str, Vec<&str>> {
    let children = objects.nodes.first().map_or(&[][..], |root| &root.children);
    let mut functions = BTreeMap::new();
    for child in children {
        let node = usize::try_from(child.node_id).ok().and_then(|id| objects.nodes.get(id));
        let concrete = match node.and_then(|node| node.kind.as_ref()) {
            Some(saved_object::Kind::Function(function)) => {
                function.concrete_functions.iter().map(String::as_str).collect()
            }
            Some(saved_object::Kind::BareConcreteFunction(function)) => {
                vec![function.concrete_function_name.as_str()]
            }
            _ => continue,
        };
        functions.insert(child.local_name.as_str(), concrete);
    }
    functions
}

/// The arguments, and the names of the named ones.
fn signature(canonical: Option<&StructuredValue>) -> (&[StructuredValue], Vec<&String>) {
    let Some(Kind::TupleValue(pair)) = canonical.and_then(|value| value.kind.as_ref()) else {
        return (&[], Vec::new());
    };
    let kind = |index: usize| pair.values.get(index).and_then(|value| value.kind.as_ref());
    let arguments = match kind(0) {
        Some(Kind::TupleValue(arguments)) => arguments.values.as_slice(),
        _ => &[],
    };
    let named = match kind(1) {
        Some(Kind::DictValue(named)) => named.fields.keys().collect(),
        _ => Vec::new(),
    };
    (arguments, named)
}

fn show_argument(value: &StructuredValue, out: &mut dyn Write) -> io::Result<()> {
    const INDENT: &str = "          ";
    if let Some(Kind::TensorSpecValue(spec)) = &value.kind {
        let name = if spec.name.is_empty() { "None" } else { &spec.name };
        return writeln!(out, "{INDENT}{name}: {}", python::repr(value));
    }
    writeln!(out, "{INDENT}DType: {}", python::type_name(value))?;
    write!(out, "{INDENT}Value: ")?;
    // The original steps back over the last comma with backspaces.
    if let Some(Kind::DictValue(dict)) = &value.kind {
        write!(out, "{{")?;
        for (key, value) in &dict.fields {
            write!(out, "'{key}': {}, ", python::bare_quotes(value))?;
        }
        return writeln!(out, "\u{8}\u{8}}}");
    }
    match python::items(value) {
        None => writeln!(out, "{}", python::str(value)),
        Some(items) => {
            write!(out, "[")?;
            for item in items {
                write!(out, "{item}, ")?;
            }
            writeln!(out, "\u{8}\u{8}]")
        }
    }
}

/// `f` of `__inference_f_105`.
fn clean(name: &str) -> &str {
    name.strip_prefix("__inference_")
        .and_then(|name| name.rsplit_once('_'))
        .filter(|(_, number)| !number.is_empty() && number.bytes().all(|c| c.is_ascii_digit()))
        .map_or(name, |(name, _)| name)
}

/// The place of each library function in the order in which TensorFlow loads them, which its
/// new names and so the listing follow: callees first, the last of the library before the first.
fn load_order(meta: &MetaGraphDef) -> BTreeMap<&str, usize> {
    let library = meta.graph_def.iter().flat_map(|graph| &graph.library);
    let functions: Vec<&FunctionDef> = library.flat_map(|library| &library.function).collect();
    let names: Vec<&str> = functions
        .iter()
        .map(|f| f.signature.as_ref().map_or("", |signature| signature.name.as_str()))
        .collect();
    let index: BTreeMap<&str, usize> = names.iter().enumerate().map(|(i, &n)| (n, i)).collect();

    let mut callers = vec![Vec::new(); names.len()];
    let mut open_callees = vec![0usize; names.len()];
    for (caller, function) in functions.iter().enumerate() {
        for callee in callees(function, &index) {
            callers[callee].push(caller);
            open_callees[caller] += 1;
        }
    }
    let mut ready: Vec<usize> = (0..names.len()).filter(|&i| open_callees[i] == 0).collect();
    let mut order = BTreeMap::new();
    while let Some(function) = ready.pop() {
        order.insert(names[function], order.len());
        for &caller in &callers[function] {
            open_callees[caller] -= 1;
            if open_callees[caller] == 0 {
                ready.push(caller);
            }
        }
    }
    order
}

/// The library functions that a function calls, each once.
fn callees(function: &FunctionDef, index: &BTreeMap<&str, usize>) -> Vec<usize> {
    let mut found = Vec::new();
    for node in &function.node_def {
        if let Some(&callee) = index.get(node.op.as_str()) {
            found.push(callee);
            continue;
        }
        for attr in node.attr.values() {
            if let Some(Attr::Func(callee)) = &attr.value
                && let Some(&callee) = index.get(callee.name.as_str())
            {
                found.push(callee);
            }
        }
    }
    found.sort_unstable();
    found.dedup();
    found
}
