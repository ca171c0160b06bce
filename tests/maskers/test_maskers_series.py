"""Time series: windows of channels and channels of windows, and where a series changes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from c2fa.maskers import TimeSeries


@settings(max_examples=60, deadline=None)
@given(st.data())
def test_against_a_slow_loop(data):
    channels, steps = data.draw(st.integers(1, 3)), data.draw(st.integers(4, 12))
    order, windows = data.draw(st.sampled_from(["channels", "windows"])), data.draw(st.integers(1, 4))
    time_axis = data.draw(st.sampled_from([0, 1]))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    series = rng.normal(size=(channels, steps))
    x = series.T if time_axis == 0 else series
    masked = TimeSeries(windows, order, time_axis=time_axis)(x)
    masks = rng.random((3, channels * windows)) < 0.5
    batch = masked.inputs(masks, 1)
    cuts = [w * steps // windows for w in range(windows + 1)]
    for row, mask in zip(batch, masks, strict=True):
        expected = series.copy()
        for c in range(channels):
            for w in range(windows):
                leaf = c * windows + w if order == "channels" else w * channels + c
                if not mask[leaf]:
                    expected[c, cuts[w] : cuts[w + 1]] = series[c].mean()
        np.testing.assert_allclose(row.T if time_axis == 0 else row, expected)


def test_linear_fill_joins_what_is_kept():
    x = np.array([0.0, 1.0, 9.0, 9.0, 4.0, 5.0])
    masked = TimeSeries(3, fill="linear")(x)
    assert masked.inputs([[True, False, True]], 1)[0].tolist() == [0, 1, 2, 3, 4, 5]
    assert masked.inputs([[True, False, False]], 1)[0].tolist() == [0, 1, 1, 1, 1, 1]
    assert masked.inputs([[False, False, False]], 1)[0].tolist() == [x.mean()] * 6


def test_fills_and_types():
    x = np.arange(8, dtype=np.float32)
    assert TimeSeries(2, fill=-1.0)(x).inputs([[True, False]], 1)[0].tolist() == [0, 1, 2, 3, -1, -1, -1, -1]
    typical = np.arange(16.0).reshape(8, 2) * 10
    masked = TimeSeries([4], fill=typical)(np.zeros((8, 2), dtype=np.float32))
    batch = masked.inputs([[True, True, True, False]], 1)
    assert batch.dtype == np.float32
    assert batch[0, :, 1].tolist() == [0, 0, 0, 0, 90, 110, 130, 150]
    assert TimeSeries(2)([1, 2, 4, 5]).inputs([[False, True]], 1)[0].tolist() == [3, 3, 4, 5], "integers have a mean"


def test_a_tensor_stays_a_tensor():
    torch = pytest.importorskip("torch")
    x = torch.arange(8, dtype=torch.float32)
    batch = TimeSeries(2, fill=-1.0)(x).inputs([[True, False]], 1)
    assert isinstance(batch, torch.Tensor)
    assert batch[0].tolist() == [0, 1, 2, 3, -1, -1, -1, -1]


def test_half_precision_stays(in_half_precision):
    in_half_precision(
        """
        import torch
        from c2fa.maskers import TimeSeries

        for kind in (torch.float16, torch.bfloat16):
            x = torch.arange(8).to(kind)
            batch = TimeSeries(2)(x).inputs([[True, True], [False, True]], 1)
            assert batch.dtype == kind
            assert torch.equal(batch[0], x)
        """
    )


def test_missing_steps_are_passed_over():
    assert TimeSeries(2)(np.zeros(4, dtype=np.float16)).inputs([[True, True]], 1).dtype == np.float16
    x = np.array([1.0, np.nan, 3.0, 5.0, 6.0, 6.0])
    assert TimeSeries(3)(x).inputs([[True, False, True]], 1)[0, 2:4].tolist() == [4.2, 4.2]
    np.testing.assert_array_equal(TimeSeries(3, fill="linear")(x).inputs([[True, False, True]], 1)[0, 2:4], [3.5, 4.75])
    assert TimeSeries(2)(np.full(4, np.nan)).inputs([[False, False]], 1).tolist() == [[0.0] * 4]


def test_names_of_channels_and_windows():
    x = np.zeros((6, 2))
    assert TimeSeries(2, names=["pulse", "breath"])(x).structure.names == (
        ("pulse", "breath"),
        ("pulse · 0–2", "pulse · 3–5", "breath · 0–2", "breath · 3–5"),
    )
    assert TimeSeries(2, "windows", names=["pulse", "breath"])(x).structure.names == (
        ("0–2", "3–5"),
        ("0–2 · pulse", "0–2 · breath", "3–5 · pulse", "3–5 · breath"),
    )


def test_columns_of_a_frame_name_the_channels():
    pd = pytest.importorskip("pandas")
    frame = pd.DataFrame(np.zeros((6, 2)), columns=["pulse", "breath"])
    assert TimeSeries(2)(frame).structure.names[0] == ("pulse", "breath")
    assert TimeSeries(2)(frame.T).structure.names[0] == ("channel 1", "channel 2")


@pytest.mark.parametrize("cuts", [[40, 80], [0, 40, 80], [40, 80, 120], [0, 40, 80, 120], np.array([0, 40, 80, 120])])
def test_cuts_may_include_both_ends(cuts):
    masked = TimeSeries(cuts, fill="zero")(np.ones(120))
    assert masked.structure.names[1] == ("channel 1 · 0–39", "channel 1 · 40–79", "channel 1 · 80–119")
    assert np.flatnonzero(masked.inputs([[True, False, True]], 1)[0] == 0).tolist() == list(range(40, 80))


def test_what_is_refused():
    for bad in (
        {"windows": "many"},
        {"windows": 0},
        {"windows": np.int64(0)},
        {"order": "rows"},
        {"fill": "noise"},
        {"time_axis": 2},
    ):
        with pytest.raises(ValueError):
            TimeSeries(**bad)
    with pytest.raises(ValueError, match="say time_axis"):
        TimeSeries()(np.zeros((4, 4)))
    for cuts in ([3, 2], [0, 0, 3], [3, 7], [-1, 3], [2.5], [[3]], ["a", 3]):
        with pytest.raises(ValueError, match="cuts must be whole numbers that rise from 0 to 6"):
            TimeSeries(cuts)(np.zeros(6))
    with pytest.raises(ValueError, match=r"shape \(0,\)"):
        TimeSeries()(np.zeros(0))
    with pytest.raises(ValueError, match="1 names for 2 channels"):
        TimeSeries(names=["a"])(np.zeros((6, 2)))
    with pytest.raises(ValueError, match=r"numbers that fit a series of shape \(6, 2\)"):
        TimeSeries(fill=np.zeros(5))(np.zeros((6, 2)))
