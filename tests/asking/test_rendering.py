"""Models that mask inputs themselves answer what they would answer to the rendered rows."""

from __future__ import annotations

import pickle
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import c2fa
from c2fa._system import without_plans
from c2fa.asking.driver import Job, drive
from c2fa.asking.masking import MaskedBatch, MaskedRows

torch = pytest.importorskip("torch")

from c2fa.models import Torch


def rows_of(masked, count, seed, level=-1):
    """Random masks of an input, among them all kept and all masked."""
    structure = masked.structure
    width = structure.widths[level]
    masks = np.random.default_rng(seed).random((count, width)) < 0.5
    masks[0], masks[-1] = True, not masked.allows_empty
    masks[1] = structure.owners(0) > 0 if width == structure.leaves else np.arange(width) > 0  # without the first part
    return MaskedRows(masked.inputs, masks, structure.level(level))


# -- images ----------------------------------------------------------------------------------------


class Sums(torch.nn.Module):
    """Sums that weigh every place of a bag, or an image, differently; bags may have any number of images."""

    def __init__(self):
        super().__init__()
        self.scale = torch.nn.Parameter(torch.ones(1))

    def forward(self, x):
        flat = x.flatten(-3 if x.ndim > 3 else -2).double()
        weights = torch.linspace(0.1, 1.0, flat.shape[-1], dtype=torch.float64)
        sums = flat @ weights
        return (
            torch.stack([sums, sums.sin()], -1) if sums.ndim == 1 else torch.stack([sums.sum(1), sums.sin().sum(1)], -1)
        )


def photos(kind, count, seed, sides=(6, 5)):
    rng = np.random.default_rng(seed)
    images = [rng.integers(0, 256, (*sides, 3), dtype=np.uint8) for _ in range(count)]
    if kind == "pil":
        Image = pytest.importorskip("PIL.Image")
        return [Image.fromarray(image) for image in images]
    if kind == "float":
        return [(image / 255).astype(np.float32) for image in images]
    if kind == "tensor":
        return [torch.from_numpy(image).permute(2, 0, 1).float() for image in images]
    return images


def grid(image):
    return np.add.outer(np.arange(image.shape[0]) // 2, 3 * (np.arange(image.shape[1]) // 2))


@pytest.mark.parametrize("kind", ["uint8", "float", "tensor", "pil"])
@pytest.mark.parametrize("absent", ["fill", "remove"])
@pytest.mark.parametrize("fill", [0, "mean", "segments", "blur"])
def test_images_masked_on_the_device_are_the_rendered_ones(kind, absent, fill):
    masker = c2fa.maskers.ImageBag(segment=grid, absent=absent, fill=fill)
    model = Torch(Sums(), batch=3)
    pieces, wanted = [], []
    for seed, level in ((0, 1), (1, 0), (2, 1), (3, 1), (4, 0)):
        masked = masker(photos(kind, 2 + seed, seed))
        masked = masked.apart() if masked.apart is not None and seed > 2 else masked
        assert model.encode_inputs(masked.inputs) is masked.inputs
        rows = rows_of(masked, 5, seed, level)
        travelled = MaskedRows(pickle.loads(pickle.dumps(rows.inputs)), rows.masks, rows.level)
        pieces.append(travelled if seed == 1 else rows)
        wanted.append(model(rows.rendered()))
    np.testing.assert_allclose(model(MaskedBatch(pieces)), np.concatenate(wanted), rtol=1e-12)


@pytest.mark.parametrize("device", ["cpu", "cuda"])
@pytest.mark.parametrize("kind", ["uint8", "float", "tensor"])
@pytest.mark.parametrize("paper", [False, True])
def test_the_same_images_leave_their_bags_on_every_device(device, kind, paper):
    if device == "cuda" and not torch.cuda.is_available():
        pytest.skip("there is no GPU here")
    masked = c2fa.maskers.ImageBag(segment=grid, fill="segments")(photos(kind, 4, 0))
    masked = masked.apart() if paper else masked
    sizes = set()
    for level in (0, 1):
        rows = rows_of(masked, 30, level, level)
        if level == 1:  # whole images go from half of the rows, and parts of those that stay
            kept = np.random.default_rng(1).random((13, 4)) < 0.5
            rows.masks[2:15] &= kept[:, masked.structure.owners(0)]
        rendered, there = rows.rendered(), masked.inputs.on(device)(rows.masks, rows.level)
        assert len(there) == len(rendered)
        for bag, wanted in zip(there, rendered, strict=True):
            assert bag.device.type == device
            np.testing.assert_array_equal(bag.cpu().numpy(), np.stack([np.asarray(image) for image in wanted]))
            sizes.add((level, len(wanted)))
    assert {size for level, size in sizes if level == 1} == ({4} if paper else {1, 2, 3, 4})


def test_a_single_image_is_masked_on_the_device():
    masked = c2fa.maskers.ImageBag(segment=grid, regions=2)(photos("float", 1, 0, (8, 8))[0])
    rows = rows_of(masked, 6, 0)
    np.testing.assert_allclose(Torch(Sums())(MaskedBatch([rows])), Torch(Sums())(rows.rendered()), rtol=1e-12)


def test_images_of_several_sizes_and_models_that_collate_get_rendered_rows():
    masker = c2fa.maskers.ImageBag(segment=grid)
    mixed = masker([*photos("uint8", 1, 0), *photos("uint8", 1, 1, (4, 4))])
    assert Torch(Sums()).encode_inputs(mixed.inputs) is None
    assert Torch(Sums(), collate=torch.stack).encode_inputs is None
    assert Torch(Sums(), bags="list").encode_inputs is None


def test_what_travels_is_little_more_than_the_image():
    image = np.random.default_rng(0).integers(0, 256, (224, 224, 3), dtype=np.uint8)
    masked = c2fa.maskers.ImageBag(segment=grid)([image])
    assert len(pickle.dumps(masked.inputs)) < 2.5 * image.nbytes


def test_explanations_are_the_same_whoever_masks():
    bag = photos("float", 3, 4)
    masker = c2fa.maskers.ImageBag(segment=grid, absent="fill")
    model = Torch(Sums(), batch=16)
    ours = c2fa.Explainer(model, masker, budget=60)(bag)
    theirs = c2fa.Explainer(lambda batch: model(batch), masker, budget=60)(bag)
    np.testing.assert_allclose(ours.low, theirs.low, atol=1e-9 * np.abs(theirs.low).max())


# -- texts -----------------------------------------------------------------------------------------

tokenizers = pytest.importorskip("tokenizers")
transformers = pytest.importorskip("transformers")

from c2fa.models import HuggingFace

WORDS = "the film was good bad dull great but and not very plot actor a of it i s ##ly ##s ##er un ##known , . ! ? \" '"
SAID = "The film was good bad dull great, but and NOT verily plots actors! a of it. I (yes) it's"
SENTENCES = st.lists(st.sampled_from(SAID.split()), min_size=2, max_size=9).map(" ".join)


def wordpiece():
    specials = ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"]
    vocabulary = {word: i for i, word in enumerate([*specials, *WORDS.split()])}
    core = tokenizers.Tokenizer(tokenizers.models.WordPiece(vocabulary, unk_token="[UNK]"))
    core.normalizer = tokenizers.normalizers.BertNormalizer()
    core.pre_tokenizer = tokenizers.pre_tokenizers.BertPreTokenizer()
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="[CLS] $A [SEP]",
        pair="[CLS] $A [SEP] $B:1 [SEP]:1",
        special_tokens=[("[CLS]", vocabulary["[CLS]"]), ("[SEP]", vocabulary["[SEP]"])],
    )
    return as_fast(core, ["[PAD]", "[UNK]", "[CLS]", "[SEP]", "[MASK]"])


def byte_level():
    """A tokenizer in which a blank belongs to the piece after it, as GPT's and RoBERTa's."""
    core = tokenizers.Tokenizer(tokenizers.models.BPE(unk_token="<unk>"))
    core.pre_tokenizer = tokenizers.pre_tokenizers.ByteLevel(add_prefix_space=False)
    specials = ["<pad>", "<unk>", "<s>", "</s>", "<mask>"]
    trainer = tokenizers.trainers.BpeTrainer(
        vocab_size=400, special_tokens=specials, initial_alphabet=tokenizers.pre_tokenizers.ByteLevel.alphabet()
    )
    core.train_from_iterator(["the film was good but the plot was dull and not very great"] * 20, trainer)
    core.post_processor = tokenizers.processors.TemplateProcessing(
        single="<s> $A </s>", pair="<s> $A </s> $B </s>", special_tokens=[("<s>", 2), ("</s>", 3)]
    )
    return as_fast(core, specials)


def as_fast(core, specials):
    names = ("pad_token", "unk_token", "cls_token", "sep_token", "mask_token")
    tokenizer = transformers.PreTrainedTokenizerFast(tokenizer_object=core, **dict(zip(names, specials, strict=True)))
    tokenizer.model_input_names = ["input_ids", "token_type_ids", "attention_mask"]
    return tokenizer


def classifier(tokenizer, **options):
    torch.manual_seed(0)
    config = transformers.BertConfig(
        vocab_size=len(tokenizer),
        hidden_size=16,
        num_hidden_layers=1,
        num_attention_heads=2,
        intermediate_size=16,
        max_position_embeddings=64,
        initializer_range=0.5,
    )
    return HuggingFace(transformers.BertForSequenceClassification(config), tokenizer, **options)


PIECES = classifier(wordpiece(), batch=4)
BYTES = classifier(byte_level(), batch=4)


def check(model, x, mask, seed):
    """Whether the model masks an input itself; if so, its answers are those to the rendered rows."""
    masked = c2fa.maskers.Text(mask=mask)(x)
    table = pickle.loads(pickle.dumps(model.encode_inputs))(masked.inputs)
    if table is not None:
        pieces = [rows_of(masked, 6, seed), rows_of(masked, 4, seed + 1)]
        wanted = np.concatenate([model(rows.rendered()) for rows in pieces])
        tables = MaskedBatch([replace(rows, inputs=pickle.loads(pickle.dumps(table))) for rows in pieces])
        np.testing.assert_allclose(model(tables), wanted, atol=1e-6)
    return table is not None


@settings(max_examples=30, deadline=None)
@given(SENTENCES, st.sampled_from(["[MASK]", None, "it", "..."]), st.integers(0, 9))
def test_tokens_masked_on_the_device_are_those_of_the_rendered_texts(text, mask, seed):
    assert check(PIECES, text, mask, seed)


@settings(max_examples=20, deadline=None)
@given(SENTENCES, SENTENCES, st.sampled_from(["[MASK]", None]), st.integers(0, 9))
def test_pairs_of_texts_are_masked_as_tokens(first, second, mask, seed):
    assert check(PIECES, (first, second), mask, seed)


@settings(max_examples=20, deadline=None)
@given(SENTENCES, st.sampled_from(["<mask>", None, "it"]), st.integers(0, 9))
@pytest.mark.filterwarnings("ignore:the tokenizer joins:UserWarning")
def test_tokenizers_that_join_a_blank_to_the_next_piece_answer_alike(text, mask, seed):
    check(BYTES, text, mask, seed)


def test_a_blank_before_a_piece_stays_with_it_where_words_are_replaced():
    assert check(BYTES, "the film was good but the plot was dull", "<mask>", 0)


def test_pieces_that_join_over_a_gap_are_said_and_rendered():
    model = classifier(byte_level(), batch=4)
    with pytest.warns(UserWarning, match="tokenised one by one"):
        assert not check(model, "the film was good but the plot was dull", None, 0)


@pytest.mark.parametrize("side", ["left", "right"])
def test_texts_that_are_too_long_are_cut_as_the_tokenizer_cuts_them(side):
    tokenizer = wordpiece()
    tokenizer.truncation_side = side
    model = classifier(tokenizer, max_length=12)
    text = "the film was good but the plot was dull and it was not very great . " * 2
    with pytest.warns(UserWarning, match="one by one") if side == "left" else _nothing():
        check(model, text, "[MASK]", 0)
        check(model, text, None, 1)


def test_attention_is_kept_from_planning_and_the_setting_is_put_back():
    before = torch.backends.cuda.cudnn_sdp_enabled()
    with without_plans:
        with without_plans:
            assert not torch.backends.cuda.cudnn_sdp_enabled()
        assert not torch.backends.cuda.cudnn_sdp_enabled()  # others are still inside
    assert torch.backends.cuda.cudnn_sdp_enabled() == before


def test_models_that_pad_on_the_left():
    tokenizer = wordpiece()
    tokenizer.padding_side = "left"
    model = classifier(tokenizer)
    assert check(model, "the film was good but the plot was dull", "[MASK]", 0)
    one = model(["good", "the film was good but the plot was dull"])
    np.testing.assert_allclose(one[1:], model(["the film was good but the plot was dull"]), atol=1e-6)


def test_a_model_that_has_tables_can_be_pickled():
    check(PIECES, "the film was good", "[MASK]", 0)
    again = pickle.loads(pickle.dumps(PIECES))
    np.testing.assert_allclose(again(["good"]), PIECES(["good"]), atol=1e-6)


class _nothing:
    def __enter__(self):
        return self

    def __exit__(self, *_):
        return None


# -- the driver ------------------------------------------------------------------------------------


class Launching:
    """A model that begins batches, notes what is under way, and may fail at either end."""

    batch_size = 8

    def __init__(self, fails_at=None, where="launch"):
        self.begun = self.most = self.ended = 0
        self.fails_at, self.where = fails_at, where

    def __call__(self, batch):
        return self.launch(batch)()

    def launch(self, batch):
        self.begun += 1
        number = self.begun
        self.most = max(self.most, self.begun - self.ended)
        if self.where == "launch" and number == self.fails_at:
            self.ended += 1
            raise RuntimeError("no more")

        def wait():
            self.ended += 1
            if self.where == "wait" and number == self.fails_at:
                raise RuntimeError("no more")
            return np.asarray(batch).sum(axis=1)

        return wait


def test_two_batches_are_under_way():
    structure = c2fa.Structure.from_groups("aaabbbccc")
    model = Launching()
    e = c2fa.Explainer(model, c2fa.maskers.Array(structure), budget=60)(np.arange(9.0))
    assert model.most == 2
    assert model.begun == model.ended
    plain = c2fa.Explainer(lambda batch: batch.sum(axis=1), c2fa.maskers.Array(structure), budget=60)(np.arange(9.0))
    np.testing.assert_array_equal(e.low, plain.low)


@pytest.mark.parametrize("where", ["launch", "wait"])
def test_a_batch_that_fails_ends_its_explanation_and_no_other(where):
    structure = c2fa.Structure.from_groups("aaabbbccc")
    explainer = c2fa.Explainer(Launching(3, where), c2fa.maskers.Array(structure), budget=60)
    jobs = []
    for x in 1.0 + np.eye(9)[:3]:
        masked = explainer.masker(x)
        queries = explainer.queries(x, masked)
        jobs.append(Job(explainer.conversation(masked, queries), queries))
    ended = list(drive(jobs, explainer.model, batch_size=8))
    assert len(ended) == 3
    assert [job.error is not None for job in ended].count(True) >= 1
    assert any(job.error is None for job in ended)
