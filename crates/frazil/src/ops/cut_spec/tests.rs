//! The grammar as tables: what is meant, and what is refused with which words.

use super::*;

fn k(extents: &[u64]) -> Option<Vec<DimSpec>> {
    Some(extents.iter().map(|&extent| DimSpec::Known(extent)).collect())
}

fn scalar(text: &str) -> Option<FrozenValue> {
    Some(FrozenValue::Scalar(text.into()))
}

fn list(texts: &[&str]) -> Option<FrozenValue> {
    Some(FrozenValue::List(texts.iter().map(|&text| text.into()).collect()))
}

fn named(name: &str) -> InputSpec {
    InputSpec { name: name.into(), ..InputSpec::default() }
}

const ANY: DimSpec = DimSpec::Dynamic;

fn between(least: u64, most: Option<u64>) -> DimSpec {
    DimSpec::Between { least, most }
}

#[test]
fn inputs_one_by_one() {
    let known = DimSpec::Known;
    let cases: Vec<(&str, InputSpec)> = vec![
        ("inp1", named("inp1")),
        ("  inp1 ", named("inp1")),
        ("bert/pooler/dense/Tanh", named("bert/pooler/dense/Tanh")),
        ("inp1:0", InputSpec { port: Some(0), ..named("inp1") }),
        ("inp1:12", InputSpec { port: Some(12), ..named("inp1") }),
        ("3:inp1", InputSpec { in_port: Some(3), ..named("inp1") }),
        ("42", named("42")),
        ("42:1", InputSpec { in_port: Some(42), ..named("1") }),
        ("inp1{i32}", InputSpec { dtype: Some(DType::I32), ..named("inp1") }),
        ("inp1{i64}", InputSpec { dtype: Some(DType::I64), ..named("inp1") }),
        ("inp1{f64}", InputSpec { dtype: Some(DType::F64), ..named("inp1") }),
        ("inp1{f32}", InputSpec { dtype: Some(DType::F32), ..named("inp1") }),
        ("inp1{f16}", InputSpec { dtype: Some(DType::F16), ..named("inp1") }),
        ("inp1{u8}", InputSpec { dtype: Some(DType::U8), ..named("inp1") }),
        ("inp1{boolean}", InputSpec { dtype: Some(DType::Bool), ..named("inp1") }),
        ("inp1{ int32 }", InputSpec { dtype: Some(DType::I32), ..named("inp1") }),
        ("inp1[1 128]", InputSpec { shape: k(&[1, 128]), ..named("inp1") }),
        ("inp1[1,128]", InputSpec { shape: k(&[1, 128]), ..named("inp1") }),
        ("inp1[1, 128]", InputSpec { shape: k(&[1, 128]), ..named("inp1") }),
        ("inp1(1 128)", InputSpec { shape: k(&[1, 128]), ..named("inp1") }),
        ("inp1 [ 1  128 ]", InputSpec { shape: k(&[1, 128]), ..named("inp1") }),
        ("inp1[3]", InputSpec { shape: k(&[3]), ..named("inp1") }),
        ("inp1[]", InputSpec { shape: k(&[]), ..named("inp1") }),
        ("inp1[ ]", InputSpec { shape: k(&[]), ..named("inp1") }),
        ("inp1[? 128]", InputSpec { shape: Some(vec![ANY, known(128)]), ..named("inp1") }),
        ("inp1[-1 128]", InputSpec { shape: Some(vec![ANY, known(128)]), ..named("inp1") }),
        ("inp1[?,-1,..]", InputSpec { shape: Some(vec![ANY; 3]), ..named("inp1") }),
        (
            "inp1[1..8 128]",
            InputSpec { shape: Some(vec![between(1, Some(8)), known(128)]), ..named("inp1") },
        ),
        (
            "inp1[1.. ..8 0..9]",
            InputSpec {
                shape: Some(vec![between(1, None), between(0, Some(8)), between(0, Some(9))]),
                ..named("inp1")
            },
        ),
        ("inp1[4..4]", InputSpec { shape: k(&[4]), ..named("inp1") }),
        (
            "IteratorGetNext:0{i32}[1 128]",
            InputSpec {
                port: Some(0),
                dtype: Some(DType::I32),
                shape: k(&[1, 128]),
                ..named("IteratorGetNext")
            },
        ),
        (
            "IteratorGetNext:4[1 128]{i32}",
            InputSpec {
                port: Some(4),
                dtype: Some(DType::I32),
                shape: k(&[1, 128]),
                ..named("IteratorGetNext")
            },
        ),
        (
            "0:inp1[3]{f32}",
            InputSpec {
                in_port: Some(0),
                dtype: Some(DType::F32),
                shape: k(&[3]),
                ..named("inp1")
            },
        ),
        ("inp1->5", InputSpec { value: scalar("5"), ..named("inp1") }),
        ("inp1->-5.5e-1", InputSpec { value: scalar("-5.5e-1"), ..named("inp1") }),
        ("inp1->True", InputSpec { value: scalar("True"), ..named("inp1") }),
        ("inp1->[1 2 3]", InputSpec { value: list(&["1", "2", "3"]), ..named("inp1") }),
        ("inp1->[1,2, 3]", InputSpec { value: list(&["1", "2", "3"]), ..named("inp1") }),
        ("inp1->[5]", InputSpec { value: list(&["5"]), ..named("inp1") }),
        ("inp1->[[1 2] [3 4]]", InputSpec { value: list(&["1", "2", "3", "4"]), ..named("inp1") }),
        ("inp1[]->5", InputSpec { shape: k(&[]), value: scalar("5"), ..named("inp1") }),
        ("inp1[1]->5", InputSpec { shape: k(&[1]), value: scalar("5"), ..named("inp1") }),
        (
            "inp1:1[4]{f32}->[1.0 2.0 3.0 4.0]",
            InputSpec {
                port: Some(1),
                shape: k(&[4]),
                dtype: Some(DType::F32),
                value: list(&["1.0", "2.0", "3.0", "4.0"]),
                ..named("inp1")
            },
        ),
        (
            "phase_train{boolean}->False",
            InputSpec { dtype: Some(DType::Bool), value: scalar("False"), ..named("phase_train") },
        ),
    ];
    for (text, wanted) in cases {
        assert_eq!(parse_inputs(text), Ok(vec![wanted]), "{text}");
    }
}

#[test]
fn lists_keep_their_order() {
    let places = |text: &str| -> Vec<String> {
        parse_inputs(text).unwrap().iter().map(InputSpec::place).collect()
    };
    assert_eq!(
        places(
            "IteratorGetNext:0{i32}[1 128],IteratorGetNext:1{i32}[1 128],IteratorGetNext:4{i32}[1 128]"
        ),
        ["IteratorGetNext:0", "IteratorGetNext:1", "IteratorGetNext:4"]
    );
    assert_eq!(
        places("Placeholder{i32},Placeholder_1{i32},Placeholder_2{i32}"),
        ["Placeholder", "Placeholder_1", "Placeholder_2"]
    );
    assert_eq!(places("b[1,2], 1:a[3,4]->[1,2,3,4,5,6,7,8,9,10,11,12] ,c(?,2)"), ["b", "1:a", "c"]);
    let outputs = parse_outputs("b,a:1, 0:c,a:0").unwrap();
    let outputs: Vec<String> = outputs.iter().map(OutputSpec::place).collect();
    assert_eq!(outputs, ["b", "a:1", "0:c", "a:0"]);
}

#[test]
fn shapes_one_by_one() {
    let known = DimSpec::Known;
    let cases: Vec<(&str, Vec<Vec<DimSpec>>)> = vec![
        ("[1,22,333,123]", vec![k(&[1, 22, 333, 123]).unwrap()]),
        ("(1,22,333,123)", vec![k(&[1, 22, 333, 123]).unwrap()]),
        ("(1,22,333,123), (-1,45,7,1)", {
            vec![k(&[1, 22, 333, 123]).unwrap(), vec![ANY, known(45), known(7), known(1)]]
        }),
        ("[1,2],(3,4)", vec![k(&[1, 2]).unwrap(), k(&[3, 4]).unwrap()]),
        ("[1,22,333,123],[?,45,7,1]", {
            vec![k(&[1, 22, 333, 123]).unwrap(), vec![ANY, known(45), known(7), known(1)]]
        }),
        ("[1 128]", vec![k(&[1, 128]).unwrap()]),
        ("[1..10,..34,5..,..]", {
            vec![vec![between(1, Some(10)), between(0, Some(34)), between(5, None), ANY]]
        }),
        ("(12)", vec![k(&[12]).unwrap()]),
        ("[]", vec![vec![]]),
    ];
    for (text, wanted) in cases {
        assert_eq!(parse_shapes(text), Ok(wanted), "{text}");
    }
}

#[test]
fn what_is_not_an_input() {
    let cases = [
        ("", "`--input` has an empty item in ``"),
        (",", "`--input` has an empty item in `,`"),
        ("a,", "`--input` has an empty item in `a,`"),
        ("a,,b", "`--input` has an empty item in `a,,b`"),
        ("[1 2]", "`--input` has an empty item in `[1 2]`"),
        (":0", "`--input` has an empty item in `:0`"),
        ("0:", "`--input` has an empty item in `0:`"),
        ("a->", "`--input` has an empty item in `a->`"),
        ("a->[]", "`--input` has an empty item in `a->[]`"),
        ("a[1 2", "`--input`: the brackets of `a[1 2` do not match"),
        ("a1 2]", "`--input`: the brackets of `a1 2]` do not match"),
        ("a[1 2)", "`--input`: the brackets of `a[1 2)` do not match"),
        ("a{i32", "`--input`: the brackets of `a{i32` do not match"),
        ("a->[1 2", "`--input`: the brackets of `a->[1 2` do not match"),
        ("a->1 2]", "`--input`: the brackets of `a->1 2]` do not match"),
        ("a[1]b", "`--input`: `b` has no meaning in `a[1]b`"),
        ("a[1]:0", "`--input`: `:0` has no meaning in `a[1]:0`"),
        ("a b", "`--input`: ` ` has no meaning in `a b`"),
        ("a:b", "`--input`: `b` has no meaning in `a:b`"),
        ("a:-1", "`--input`: `-1` has no meaning in `a:-1`"),
        ("a:0:1", "`--input`: `0:1` has no meaning in `a:0:1`"),
        ("a:4294967296", "`--input`: `4294967296` has no meaning in `a:4294967296`"),
        ("a->1 2", "`--input`: `1 2` has no meaning in `a->1 2`"),
        ("a->{1}", "`--input`: `{1}` has no meaning in `a->{1}`"),
        ("a->[1] 2", "`--input`: `2` has no meaning in `a->[1] 2`"),
        ("a->[1](2)", "`--input`: `(2)` has no meaning in `a->[1](2)`"),
        ("a->[1 (2)]", "`--input`: `(2)` has no meaning in `a->[1 (2)]`"),
        ("a->1->2", "`--input`: `a->1->2` has more than one value"),
        ("a[1][2]", "`--input`: `a[1][2]` has more than one shape"),
        ("a(1)[1]", "`--input`: `a(1)[1]` has more than one shape"),
        ("a{i32}{i32}", "`--input`: `a{i32}{i32}` has more than one type"),
        ("0:a:1", "`--input`: `0:a:1` has a port before and behind the name"),
        ("a{}", "`--input`: `` in `a{}` is no element type"),
        ("a{i33}", "`--input`: `i33` in `a{i33}` is no element type"),
        ("a{string}", "`--input`: `string` in `a{string}` is no element type"),
        ("a[0]", "`--input`: shape `0` cannot be parsed: `0` is not positive"),
        ("a[-2]", "`--input`: shape `-2` cannot be parsed: `-2` is no extent"),
        ("a[1,,2]", "`--input`: shape `1,,2` cannot be parsed: `` is no extent"),
        ("a[1,2,]", "`--input`: shape `1,2,` cannot be parsed: `` is no extent"),
        ("a[+1]", "`--input`: shape `+1` cannot be parsed: `+1` is no extent"),
        ("a[1.5]", "`--input`: shape `1.5` cannot be parsed: `1.5` is no extent"),
        ("a[x]", "`--input`: shape `x` cannot be parsed: `x` is no extent"),
        ("a[1...3]", "`--input`: shape `1...3` cannot be parsed: `1...3` is no extent"),
        ("a[a..3]", "`--input`: shape `a..3` cannot be parsed: `a..3` is no extent"),
        ("a[-1..3]", "`--input`: shape `-1..3` cannot be parsed: `-1..3` is no extent"),
        ("a[1..b]", "`--input`: shape `1..b` cannot be parsed: `1..b` is no extent"),
        ("a[..0]", "`--input`: shape `..0` cannot be parsed: `..0` is no extent"),
        (
            "a[3..2]",
            "`--input`: shape `3..2` cannot be parsed: `3..2` has its bounds the wrong way round",
        ),
        (
            "a[9223372036854775808]",
            "`--input`: shape `9223372036854775808` cannot be parsed: `9223372036854775808` is too \
             large",
        ),
        ("a,b,a", "`--input` names `a` twice"),
        ("a:1,a:1", "`--input` names `a:1` twice"),
    ];
    for (text, wanted) in cases {
        let error = parse_inputs(text).unwrap_err();
        assert_eq!(error.to_string(), wanted, "{text}");
        assert!(error.hint().is_some(), "{text}");
    }
}

#[test]
fn what_is_not_a_shape_or_an_output() {
    for text in [
        "",
        "1,2",
        "[1,2",
        "1,2]",
        "[1,2],",
        ",[1,2]",
        "[1,2][3]",
        "[1,2) ",
        "(1;2)",
        "{1,2}",
        "[1,2]x",
        "x[1,2]",
        "[a]",
        "[1, -2]",
        "[12,4,1],[4,6,8",
        "[[1]]",
        "[1,2]->[3]",
        "[-1-]",
        "[1-8]",
        "[?1]",
        "[1,0]",
    ] {
        assert!(parse_shapes(text).is_err(), "{text}");
    }
    for text in ["", ",", "a,", "a[1]", "a{i32}", "a->1", "0:a:0", "a:b", "a b", "a,a"] {
        assert!(parse_outputs(text).is_err(), "{text}");
    }
    for text in ["", "a", "a=1", "a->", "a->1,b", "a->1->2", "->1", "a[1]->1", "a->[1"] {
        assert!(parse_freeze(text).is_err(), "{text}");
    }
}

#[test]
fn options_together() {
    let spec = CutSpec::parse(&CutTexts {
        input: Some("a,b{i32},c->5"),
        input_shape: Some("[1,2],(3,?),[1]"),
        freeze: Some("d->True,c->5,d->True"),
        output: Some("x:1"),
        batch: None,
    })
    .unwrap();
    let inputs = spec.inputs.unwrap();
    assert_eq!(inputs[0].shape, k(&[1, 2]));
    assert_eq!(inputs[1].shape, Some(vec![DimSpec::Known(3), ANY]));
    assert_eq!(inputs[2].value, scalar("5"));
    assert_eq!(spec.frozen.len(), 1);
    assert_eq!(spec.frozen[0].0.name, "d");
    assert_eq!(spec.outputs.unwrap()[0].port, Some(1));

    let spec = CutSpec::parse(&CutTexts {
        input: Some("a"),
        freeze: Some("a->[1 2]"),
        ..CutTexts::default()
    });
    assert_eq!(spec.unwrap().inputs.unwrap()[0].value, list(&["1", "2"]));
    let only = CutTexts { input_shape: Some("[1,128]"), ..CutTexts::default() };
    assert_eq!(CutSpec::parse(&only).unwrap().only_shape, k(&[1, 128]));
    assert_eq!(CutSpec::parse(&CutTexts::default()), Ok(CutSpec::default()));
}

#[test]
fn options_that_contradict() {
    let none = CutTexts::default();
    let cases = [
        (
            CutTexts { input_shape: Some("[1,2]"), batch: Some(3), ..none },
            "shapes are given by `--input_shape` and by `--batch`",
        ),
        (
            CutTexts { input: Some("a[1 2]"), input_shape: Some("[1,2]"), ..none },
            "shapes are given by `--input` and by `--input_shape`",
        ),
        (
            CutTexts { input: Some("a[1 2],b"), batch: Some(3), ..none },
            "shapes are given by `--input` and by `--batch`",
        ),
        (
            CutTexts { input_shape: Some("[1,2],[3]"), ..none },
            "`--input_shape` has 2 shapes and there is no `--input` that names their inputs",
        ),
        (
            CutTexts { input: Some("a,b,c"), input_shape: Some("[1,2],[3]"), ..none },
            "`--input` names 3 input(s), `--input_shape` has 2 shape(s)",
        ),
        (
            CutTexts { input: Some("a[? 2]->[1 2]"), ..none },
            "`a` is frozen to a value, but its shape [?, 2] is dynamic",
        ),
        (
            CutTexts { input: Some("a->[1 2]"), input_shape: Some("[1..2]"), ..none },
            "`a` is frozen to a value, but its shape [1..2] is dynamic",
        ),
        (
            CutTexts { input: Some("a:1[3]->[1 2]"), ..none },
            "`a:1` is frozen to 2 element(s), its shape [3] has 3",
        ),
        (
            CutTexts { input: Some("a[2]->5"), ..none },
            "`a` is frozen to 1 element(s), its shape [2] has 2",
        ),
        (
            CutTexts { input: Some("a->5"), freeze: Some("a->6"), ..none },
            "`a` is frozen to `5` and to `6`",
        ),
        (CutTexts { freeze: Some("a->[1 2],a->[1 3]"), ..none }, {
            "`a` is frozen to `[1 2]` and to `[1 3]`"
        }),
    ];
    for (texts, wanted) in cases {
        let error = CutSpec::parse(&texts).unwrap_err();
        assert_eq!(error.to_string(), wanted);
        assert!(error.hint().is_some(), "{wanted}");
    }
}

#[test]
fn values_become_tensors() {
    let value = FrozenValue::List(vec!["1".into(), "2".into()]);
    let tensor = value.tensor("a", DType::I32, None).unwrap();
    assert_eq!(&*tensor.values::<i32>().unwrap(), &[1, 2]);
    assert_eq!(value.tensor("a", DType::F16, Some(&[2, 1])).unwrap().shape()[..], [2, 1]);
    let truth = FrozenValue::Scalar("True".into());
    let tensor = truth.tensor("a", DType::Bool, None).unwrap();
    assert_eq!((tensor.shape().len(), &tensor.bytes().unwrap()[..]), (0, &[1u8][..]));
    assert_eq!(truth.tensor("a", DType::Bool, Some(&[1, 1])).unwrap().elements(), 1);
    let error = |value: &FrozenValue, dtype, shape| {
        value.tensor("a", dtype, shape).unwrap_err().to_string()
    };
    assert_eq!(error(&truth, DType::I64, None), "`a` is frozen to `True`, which is no i64");
    let large = FrozenValue::Scalar("300".into());
    assert_eq!(error(&large, DType::U8, None), "`a` is frozen to `300`, which is no u8");
    assert_eq!(error(&large, DType::Bool, None), "`a` is frozen to `300`, which is no boolean");
    assert_eq!(
        error(&value, DType::F32, Some(&[3])),
        "`a` is frozen to 2 element(s), its shape [3] has 3"
    );
    assert_eq!(
        error(&value, DType::F32, Some(&[usize::MAX, 2])),
        format!("`a` is frozen to 2 element(s), its shape [{}, 2] has {}", usize::MAX, usize::MAX)
    );
}
