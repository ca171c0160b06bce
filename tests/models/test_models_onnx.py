"""ONNX files and sessions."""

from __future__ import annotations

import numpy as np
import pytest

onnx = pytest.importorskip("onnx")
onnxruntime = pytest.importorskip("onnxruntime")
pd = pytest.importorskip("pandas")
from onnx import TensorProto, helper, numpy_helper

from c2fa.models import Onnx, load, wrap


def graph(rows="n", extra=False):
    """Softmax of a matrix product, made node by node."""
    rng = np.random.default_rng(0)
    weight = numpy_helper.from_array(rng.normal(size=(4, 3)).astype(np.float32), "W")
    nodes = [helper.make_node("MatMul", ["x", "W"], ["z"]), helper.make_node("Softmax", ["z"], ["p"], axis=1)]
    outputs = [helper.make_tensor_value_info("p", TensorProto.FLOAT, [rows, 3])]
    if extra:
        nodes.append(helper.make_node("ArgMax", ["z"], ["label"], axis=1, keepdims=0))
        outputs.insert(0, helper.make_tensor_value_info("label", TensorProto.INT64, [rows]))
    inputs = [helper.make_tensor_value_info("x", TensorProto.FLOAT, [rows, 4])]
    made = helper.make_model(
        helper.make_graph(nodes, "g", inputs, outputs, [weight]), opset_imports=[helper.make_opsetid("", 17)]
    )
    made.ir_version = 9
    onnx.checker.check_model(made)
    return made, numpy_helper.to_array(weight)


def softmax(z):
    e = np.exp(z - z.max(axis=1, keepdims=True))
    return e / e.sum(axis=1, keepdims=True)


@pytest.mark.parametrize("rows", ["n", 4])
@pytest.mark.parametrize("extra", [False, True])
def test_an_onnx_file_and_session(tmp_path, rows, extra):
    made, weight = graph(rows, extra)
    onnx.save(made, tmp_path / "m.onnx")
    x = np.random.default_rng(1).normal(size=(10, 4))
    model = Onnx(tmp_path / "m.onnx", output_names=["a", "b", "c"], batch=7)
    for batch in (x, x.tolist(), pd.DataFrame(x)):
        np.testing.assert_allclose(model(batch), softmax(x @ weight), atol=1e-6)
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(wrap(session)(x), model(x))
    assert Onnx(session).name.startswith("onnx:")
    assert load(f"onnx:{tmp_path}/m.onnx").name == model.name
    with pytest.raises(ValueError, match="no output 'logits'; it has"):
        Onnx(session, output="logits")


def test_an_onnx_file_with_other_weights_has_another_name(tmp_path):
    for name, shift in (("a", 0.0), ("b", 1.0)):
        made, weight = graph()
        made.graph.initializer[0].CopyFrom(numpy_helper.from_array(weight + np.float32(shift), "W"))
        onnx.save(made, tmp_path / f"{name}.onnx")
    assert Onnx(tmp_path / "a.onnx").name != Onnx(tmp_path / "b.onnx").name
    with pytest.raises(ValueError, match="there is no ONNX file"):
        Onnx(tmp_path / "c.onnx")
    with pytest.raises(ValueError, match=r"'x' is tensor\(float\); rows of <U4 do not fit"):
        Onnx(tmp_path / "a.onnx")(np.array([["text"] * 4]))


def test_an_onnx_model_of_texts_and_one_of_columns():
    text = helper.make_tensor_value_info("t", TensorProto.STRING, ["n", 1])
    same = helper.make_tensor_value_info("y", TensorProto.FLOAT, ["n", 1])
    nodes = [
        helper.make_node("LabelEncoder", ["t"], ["y"], domain="ai.onnx.ml", keys_strings=["good", "bad"],
                         values_floats=[1.0, -1.0], default_float=0.0)
    ]  # fmt: skip
    opsets = [helper.make_opsetid("", 17), helper.make_opsetid("ai.onnx.ml", 2)]
    made = helper.make_model(helper.make_graph(nodes, "g", [text], [same]), opset_imports=opsets)
    made.ir_version = 9
    model = Onnx(onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]))
    np.testing.assert_array_equal(model(["good", "bad", "dull"]), [[1], [-1], [0]])
    inputs = [helper.make_tensor_value_info(n, TensorProto.FLOAT, ["n", 1]) for n in ("age", "pay")]
    nodes = [helper.make_node("Sub", ["pay", "age"], ["y"])]
    made = helper.make_model(helper.make_graph(nodes, "g", inputs, [same]), opset_imports=opsets[:1])
    made.ir_version = 9
    model = Onnx(onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"]))
    frame = pd.DataFrame({"age": [1.0, 2.0], "pay": [10.0, 30.0], "other": ["a", "b"]})
    np.testing.assert_array_equal(model(frame), [[9], [28]])
    with pytest.raises(ValueError, match="2 inputs"):
        model(np.ones((2, 2)))


def test_an_onnx_model_takes_tensors():
    torch = pytest.importorskip("torch")
    made, weight = graph()
    x = np.random.default_rng(1).normal(size=(10, 4))
    session = onnxruntime.InferenceSession(made.SerializeToString(), providers=["CPUExecutionProvider"])
    np.testing.assert_allclose(Onnx(session)(torch.as_tensor(x)), softmax(x @ weight), atol=1e-6)
