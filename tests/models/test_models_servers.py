"""Real servers on this machine: what comes out over HTTP is what comes out in process."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from importlib.metadata import version
from pathlib import Path

import numpy as np
import pytest

import c2fa

joblib = pytest.importorskip("joblib")
pd = pytest.importorskip("pandas")
pytest.importorskip("httpx2")
pytest.importorskip("sklearn")
from sklearn.compose import ColumnTransformer
from sklearn.datasets import load_wine
from sklearn.linear_model import LogisticRegression
from sklearn.pipeline import make_pipeline
from sklearn.preprocessing import OneHotEncoder, StandardScaler

from c2fa.models import CensoredWarning, EndpointError, MLflow, OpenAI, OpenInference, Sklearn
from servers.environments import CannotInstall, Process, environment, free_ports
from servers.fake import Proxy
from servers.language_model import WORDS, LanguageModel

pytestmark = pytest.mark.servers

# The servers read the estimators that are written here, so they have the same scikit-learn.
SKLEARN = [f"scikit-learn=={version('scikit-learn')}", f"pandas=={version('pandas')}"]
GROUPS = ["taste"] * 4 + ["body"] * 4 + ["colour"] * 5


def installed(name, *requirements):
    try:
        return environment(name, *requirements, *SKLEARN)
    except CannotInstall as error:
        pytest.skip(str(error))


@pytest.fixture(scope="module")
def wines():
    data = load_wine(as_frame=True)
    frame = data.data.copy()
    frame["hue"] = pd.qcut(frame["hue"], 3, labels=["low", "middle", "high"]).astype(str)
    return data.data.to_numpy(), frame, np.asarray(data.target_names)[data.target]


@pytest.fixture(scope="module")
def numbers(wines):
    return make_pipeline(StandardScaler(), LogisticRegression(max_iter=1000)).fit(wines[0], wines[2])


@pytest.fixture(scope="module")
def columns(wines):
    rest = [c for c in wines[1] if c != "hue"]
    encode = ColumnTransformer([("words", OneHotEncoder(), ["hue"]), ("numbers", StandardScaler(), rest)])
    return make_pipeline(encode, LogisticRegression(max_iter=1000)).fit(wines[1], wines[2])


def masker(wines):
    baseline = wines[0].mean(axis=0)
    return c2fa.maskers.Array(c2fa.Structure.from_groups(GROUPS), baseline=baseline)


def assert_same_explanation(here, there):
    assert here.queries == there.queries
    np.testing.assert_allclose(there.prediction, here.prediction, atol=1e-9)
    for a, b in zip(here.values, there.values, strict=True):
        np.testing.assert_allclose(b, a, atol=1e-8)


# MLServer: the Open Inference Protocol.


@pytest.fixture(scope="module")
def mlserver(numbers, columns, tmp_path_factory):
    python = installed("mlserver", "mlserver==1.7.1", "mlserver-sklearn==1.7.1")
    folder = tmp_path_factory.mktemp("mlserver")
    http_port, grpc_port, metrics_port = free_ports(3)
    (folder / "settings.json").write_text(
        json.dumps(
            {"host": "127.0.0.1", "http_port": http_port, "grpc_port": grpc_port, "metrics_port": metrics_port,
             "parallel_workers": 0, "debug": False}
        )
    )  # fmt: skip
    for name, estimator in (("numbers", numbers), ("columns", columns)):
        (folder / name).mkdir()
        joblib.dump(estimator, folder / name / "model.joblib")
        (folder / name / "model-settings.json").write_text(
            json.dumps(
                {"name": name, "implementation": "mlserver_sklearn.SKLearnModel",
                 "parameters": {"uri": "./model.joblib", "version": "v1"}}
            )
        )  # fmt: skip
    command = [str(python.parent / "mlserver"), "start", str(folder)]
    with Process(command, http_port, "/v2/models/columns/ready", folder / "log") as running:
        yield running


def test_mlserver_gives_the_same_outputs(mlserver, wines, numbers, columns):
    array, frame, _ = wines
    model = OpenInference(mlserver.url, "numbers", version="v1", output="predict_proba")
    np.testing.assert_allclose(model(array), numbers.predict_proba(array), atol=1e-12)
    named = OpenInference(mlserver.url, "columns", output="predict_proba", rows_per_request=50)
    np.testing.assert_allclose(named(frame), columns.predict_proba(frame), atol=1e-12)


def test_mlserver_gives_the_same_explanation(mlserver, wines, numbers):
    here = c2fa.Explainer(Sklearn(numbers), masker(wines), budget=(20, 60))(wines[0][3])
    model = OpenInference(
        mlserver.url, "numbers", output="predict_proba", output_names=numbers.classes_, price_per_row=0.5
    )
    there = c2fa.Explainer(model, masker(wines), budget=(20, 60))(wines[0][3])
    assert_same_explanation(here, there)
    assert there.target_name == here.target_name
    assert model.cost == 0.5 * there.queries


def test_mlserver_refusals_stop_at_once(mlserver, wines):
    begin = time.monotonic()
    with pytest.raises(EndpointError, match=r"row 0 of 5: the server answered 500.*even one row"):
        OpenInference(mlserver.url, "numbers", output="predict_proba", wait=0.05)(np.ones((5, 4)))
    with pytest.raises(EndpointError, match=r"answered 404.*Model nowhere not found"):
        OpenInference(mlserver.url, "nowhere", wait=0.05)(wines[0])
    with pytest.raises(EndpointError, match=r"BYTES, not numbers; .*output='predict_proba'"):
        OpenInference(mlserver.url, "numbers")(wines[0])
    assert time.monotonic() - begin < 5


def test_rows_in_one_request_are_quicker_than_one_by_one(mlserver, wines, capsys):
    rows = np.tile(wines[0], (3, 1)) + np.arange(534)[:, None] * 1e-9
    seconds = {}
    for size in (1, 256):
        model = OpenInference(mlserver.url, "numbers", output="predict_proba", rows_per_request=size)
        model(rows[:1])
        begin = time.perf_counter()
        model(rows[1:])
        seconds[size] = time.perf_counter() - begin
    ratio = seconds[1] / seconds[256]
    with capsys.disabled():
        print(f"\nMLServer: {533 / seconds[1]:.0f} rows/s one by one, {533 / seconds[256]:.0f} in requests of 256")
    assert ratio > 3


@pytest.mark.parametrize("restarted", ["while retrying", "after giving up"])
def test_a_killed_and_restarted_server_with_a_ledger(mlserver, wines, numbers, tmp_path, restarted):
    """The server dies half-way: the run completes or stops with one sentence, and nothing is asked twice."""
    x, budget = wines[0][10], (30, 90)
    here = c2fa.Explainer(Sklearn(numbers), masker(wines), method="c2fa", budget=budget)(x)
    retrying = restarted == "while retrying"

    with Proxy(mlserver.port) as proxy:
        forward, seen = proxy._forward, [0]

        def mortal(handler, body):
            if body:
                seen[0] += 1
            if seen[0] == 6:
                mlserver.kill()
                if retrying:
                    mlserver.start()
            return forward(handler, body)

        proxy._forward = mortal
        settings = {"rows_per_request": 8, "concurrency": 2, "wait": 0.5 if retrying else 0.05}
        settings["retries"] = 6 if retrying else 1
        model = OpenInference(proxy.url, "numbers", output="predict_proba", **settings)
        explainer = c2fa.Explainer(
            model, masker(wines), method="c2fa", budget=budget, batch_size=16, ledger=tmp_path / "ledger.sqlite"
        )
        if not retrying:
            with pytest.raises(c2fa.QueryError, match=r"^EndpointError: .*answered 502.*tried 2 times"):
                explainer(x)
            answered = len(proxy.delivered)
            assert 0 < answered < sum(budget)
            mlserver.start()
            explainer.ledger.close()
            explainer = c2fa.Explainer(
                model, masker(wines), method="c2fa", budget=budget, batch_size=16, ledger=tmp_path / "ledger.sqlite"
            )
        there = explainer(x)
        explainer.ledger.close()
        assert proxy.repeated == []
        assert len(proxy.delivered) == there.queries
    assert_same_explanation(here, there)


# MLflow's scoring server.

LOG_MODEL = """
import sys, joblib, mlflow
for name in ("numbers", "columns"):
    estimator = joblib.load(f"{sys.argv[1]}/{name}.joblib")
    mlflow.sklearn.save_model(
        estimator, f"{sys.argv[1]}/{name}", pyfunc_predict_fn="predict_proba", serialization_format="cloudpickle"
    )
"""


@pytest.fixture(scope="module")
def mlflow(numbers, columns, tmp_path_factory):
    python = installed("mlflow", "mlflow==3.17.2")
    folder = tmp_path_factory.mktemp("mlflow")
    for name, estimator in (("numbers", numbers), ("columns", columns)):
        joblib.dump(estimator, folder / f"{name}.joblib")
    subprocess.run([str(python), "-c", LOG_MODEL, str(folder)], check=True, capture_output=True)
    running = {}
    try:
        for name, port in zip(("numbers", "columns"), free_ports(2), strict=True):
            command = [str(python), "-m", "mlflow", "models", "serve", "--model-uri", str(folder / name)]
            command += [
                "--env-manager",
                "local",
                "--host",
                "127.0.0.1",
                "--port",
                str(port),
                "--workers",
                "1",
            ]
            path = f"{python.parent}:/usr/bin:/bin"
            running[name] = Process(command, port, "/ping", folder / f"{name}.log", PATH=path)
        for process in running.values():
            process.wait()
        yield running
    finally:
        for process in running.values():
            process.kill()


def test_mlflow_gives_the_same_outputs(mlflow, wines, numbers, columns):
    array, frame, _ = wines
    model = MLflow(mlflow["numbers"].url, rows_per_request=60)
    np.testing.assert_allclose(model(array), numbers.predict_proba(array), atol=1e-12)
    named = MLflow(mlflow["columns"].url)
    np.testing.assert_allclose(named(frame), columns.predict_proba(frame), atol=1e-12)


def test_mlflow_gives_the_same_explanation(mlflow, wines, numbers):
    here = c2fa.Explainer(Sklearn(numbers), masker(wines), budget=(20, 60))(wines[0][100])
    model = MLflow(mlflow["numbers"].url, output_names=numbers.classes_)
    assert_same_explanation(here, c2fa.Explainer(model, masker(wines), budget=(20, 60))(wines[0][100]))


def test_mlflow_refusals_stop_at_once(mlflow):
    begin = time.monotonic()
    with pytest.raises(EndpointError, match=r"row 0 of 5: the server answered 400: .*compatible with the model"):
        MLflow(mlflow["numbers"].url, wait=0.05)(np.ones((5, 4)))
    assert time.monotonic() - begin < 5


# A language model with log-probabilities.

TEXT = "The film was good. The plot was dull, but the actors great! It was not very bad."
STRUCTURE = c2fa.Structure.from_tree(
    {
        "one": ["The", "film", "was", "good"],
        "two": ["plot", "dull", "but", "actors"],
        "three": ["not", "very"],
    }
)


def keep(words, masks, level):
    return [" ".join(w for w, on in zip(words, row, strict=True) if on) for row in STRUCTURE.expand(masks, level)]


@pytest.fixture(scope="module")
def language_model(tmp_path_factory):
    (port,) = free_ports(1)
    script = Path(__file__).parents[1] / "servers" / "language_model.py"
    log = tmp_path_factory.mktemp("lm") / "log"
    with Process([sys.executable, str(script), str(port)], port, "/v1/models", log) as running:
        yield running


@pytest.fixture
def token(monkeypatch):
    monkeypatch.setenv("LM_TOKEN", "open-sesame")


@pytest.fixture(scope="module")
def in_process():
    """The classifier without a server: the whole distribution, nothing censored."""
    lm = LanguageModel()

    def classify(texts):
        found = []
        for text in texts:
            values, _ = lm.logprobs(f"text: {text} answer:")
            found.append([values[WORDS.index(w)] for w in ("yes", "no")])
        return np.asarray(found)

    return classify


def zero_shot(server, kind, **options):
    return OpenAI(
        server.url + "/v1", "tiny", classes=["Yes", "No"], prompt="text: {text} answer:", kind=kind,
        auth_env="LM_TOKEN", **options,
    )  # fmt: skip


@pytest.mark.parametrize("kind", ["chat", "completions"])
@pytest.mark.filterwarnings("ignore::c2fa.models.CensoredWarning")
def test_a_language_model_gives_the_same_log_probabilities(language_model, token, in_process, kind):
    texts = [" ".join(np.random.default_rng(i).choice(WORDS[6:], 8)) for i in range(30)]
    model = zero_shot(language_model, kind, top_logprobs=5, price_per_token=0.01)
    found, wanted = model(texts), in_process(texts)
    exact = np.isclose(found, wanted, atol=1e-5)
    assert exact.mean() > 0.3
    assert (found[~exact] > wanted[~exact]).all()  # what is censored is a bound from above
    assert (~exact).sum() == model.classes.censored.sum()
    assert model.usage.tokens_out == 30
    assert model.cost == pytest.approx(0.01 * (model.usage.tokens_in + 30))


def test_censoring_is_said_aloud(language_model, token):
    with pytest.warns(CensoredWarning, match="upper bounds, because its token was not among the 2 returned"):
        zero_shot(language_model, "completions", top_logprobs=2)(["good", "bad", "dull", "great"])


@pytest.mark.parametrize("kind", ["chat", "completions"])
def test_a_language_model_gives_the_same_explanation(language_model, token, in_process, kind):
    words = [name for names in STRUCTURE.names[-1:] for name in names]
    masker = c2fa.maskers.Custom(STRUCTURE, keep)
    model = zero_shot(language_model, kind, top_logprobs=20)
    here = c2fa.Explainer(in_process, masker, budget=(7, 40), target=0)(words)
    there = c2fa.Explainer(model, masker, budget=(7, 40), target=0)(words)
    assert model.notes == []
    assert there.target_name == "Yes"
    np.testing.assert_allclose(there.low, here.low, atol=1e-5)
    np.testing.assert_allclose(there.high, here.high, atol=1e-5)


def test_a_language_models_refusals_are_quoted(language_model, token, monkeypatch):
    with pytest.raises(EndpointError, match=r"answered 404: \"The model 'huge' does not exist\""):
        OpenAI(language_model.url + "/v1", "huge", classes=["a", "b"], auth_env="LM_TOKEN")([TEXT])
    with pytest.raises(EndpointError, match="answered 400: 'top_logprobs must be at most 20'"):
        zero_shot(language_model, "chat", top_logprobs=50)([TEXT])
    monkeypatch.setenv("LM_TOKEN", "wrong-word")
    with pytest.raises(EndpointError, match=r"answered 401: 'Incorrect API key.*auth_env") as caught:
        zero_shot(language_model, "chat")([TEXT])
    assert "wrong-word" not in str(caught.value)
