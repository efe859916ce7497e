import re
import timeit

import pytest
from hypothesis import given
from hypothesis import strategies as st

from otel_train.errors import ConfigError
from otel_train.lineage.redact import REDACTED, Redactor, remote_without_credentials

REDACTOR = Redactor()

# Made up, in the shapes that the real ones have.
SHAPES = [
    "AKIA" + "A1B2C3D4E5F6G7H8",
    "ghp_" + "a1B2c3D4e5F6g7H8i9J0k1L2m3N4o5P6q7R8",
    "github_pat_" + "11ABCDEFG0abcdefghij_klmnopqrstuvwxyz0123456789",
    "glpat-" + "abcdEFGH1234ijklMNOP",
    "hf_" + "abcdefghijklmnopqrstuvwxyzABCDEFGH",
    "sk-" + "proj-abcDEF123456ghiJKL789012",
    "sk-ant-api03-" + "abcDEF123456ghiJKL789012",
    "xoxb-" + "123456789012-123456789012-abcdefghijklmnop",
    "AIza" + "SyA1b2C3d4E5f6G7h8I9j0K1l2M3n4O5p6Q",
    "ya29." + "a0AfH6SMBabcdefghijklmnop",
    "eyJhbGciOiJIUzI1NiJ9" + ".eyJzdWIiOiIxMjM0NTY3ODkwIn0" + ".dBjftJeZ4CVPmB92K27uhbUJU1p1r",
    "nvapi-" + "abcdefghij0123456789ABCDEFGHIJ",
]


@pytest.mark.parametrize("secret", SHAPES)
def test_known_shapes_of_tokens_are_hidden_anywhere_in_a_text(secret):
    """Whatever stands around it, the token goes and the text stays."""
    assert REDACTOR.text(f"downloading with {secret}, 3 files") == "downloading with [redacted], 3 files"
    assert REDACTOR.text(f"('{secret}')") == "('[redacted]')"


@pytest.mark.parametrize(
    ("text", "hidden"),
    [
        ("--api-key FAKE1 --use_cls_token True", "--api-key [redacted] --use_cls_token True"),
        ("--password=FAKE1 --lr=0.1", "--password=[redacted] --lr=0.1"),
        ("HF_TOKEN=FAKE3 python train.py", "HF_TOKEN=[redacted] python train.py"),
        ("{'api_key': 'FAKE 1', 'lr': 0.1}", "{'api_key': '[redacted]', 'lr': 0.1}"),
        ('{"password": "FA\\"KE", "n": 3}', '{"password": "[redacted]", "n": 3}'),
        (r"{\"secret\": \"FAKE\", \"n\": 3}", r"{\"secret\": \"[redacted]\", \"n\": 3}"),
        ("Authorization: Bearer FAKE1", "Authorization: [redacted]"),
        ("got bearer abc.DEF-123 back", "got bearer [redacted] back"),
        ("Cookie: a=FAKE1; b=FAKE2", "Cookie: [redacted]"),
        ("password=FA,KE next", "password=[redacted] next"),
        ("AccountName=x;AccountKey=FAKE==;Suffix=y", "AccountName=x;AccountKey=[redacted];Suffix=y"),
        ("Login(password='FAKE', tries=3)", "Login(password='[redacted]', tries=3)"),
        ("https://h/a?access_token=FAKE&page=2", "https://h/a?access_token=[redacted]&page=2"),
        ("İ is two letters in lower case; pwd=FAKE", "İ is two letters in lower case; pwd=[redacted]"),
        (
            "k\n-----BEGIN RSA PRIVATE KEY-----\nFAKE\nFAKE\n-----END RSA PRIVATE KEY-----\nafter",
            "k\n[redacted]\nafter",
        ),
        ("-----BEGIN PRIVATE KEY-----\nFAKE and cut off", "[redacted]"),
    ],
)
def test_assigned_secrets_are_hidden_and_their_surroundings_stay(text, hidden):
    """The key, the quotes and what follows remain as they were."""
    assert REDACTOR.text(text) == hidden


@pytest.mark.parametrize(
    ("url", "hidden"),
    [
        ("postgres://u:FAKE4@h/db", "postgres://[redacted]@h/db"),
        ("postgres://u:FA/KE4@h/db", "postgres://[redacted]@h/db"),
        ("postgres://u:FA@KE4@h/db", "postgres://[redacted]@h/db"),
        ("https://FAKE4@git.example/a/b.git", "https://[redacted]@git.example/a/b.git"),
        ("http://h:80/@x", "http://h:80/@x"),
        ("ssh://git@git.example/a/b.git", "ssh://git@git.example/a/b.git"),
        ("mail a@b.example about https://h/x", "mail a@b.example about https://h/x"),
    ],
)
def test_credentials_in_urls_are_hidden_and_the_host_stays(url, hidden):
    """User and password go; host, path and addresses without credentials stay."""
    assert REDACTOR.text(url) == hidden


@pytest.mark.parametrize(
    "text",
    [
        "12000 tokens/s, max_tokens=16, token_id: 5, pad_token='<pad>', eos_token=</s>, bos_token=[CLS]",
        "key=3 keys: a, b; num_key_value_heads=8 public_key=abc author: Jo forward_pass: x12",
        "tokenizer=bert-base token: 512 use_auth_token=True, patience=5, path: /a/b/c",
        "installing sk-learn-experiments-on-digits",
        "Missing key: layer1.weight of task-0123456789abcdef",
        "the bearer of bad news, token_type: wordpiece, num_secrets=16",
    ],
)
def test_harmless_words_that_look_like_secrets_stay(text):
    """Training texts speak of tokens and keys; they come back as the same object."""
    assert REDACTOR.text(text) is text


@pytest.mark.parametrize(
    ("key", "value", "is_hidden"),
    [
        ("api_key", "FAKE", True),
        ("apiKey", "FAKE", True),
        ("API-KEY", "FAKE", True),
        ("wandbApiKey", "FAKE", True),
        ("hf_token", "FAKE", True),
        ("token", "FAKE", True),
        ("GITHUB_TOKEN_2", "FAKE", True),
        ("access_tokens", ["FAKE"], True),
        ("aws_secret_access_key", "FAKE", True),
        ("db_password", 1234, True),
        ("db_pass", "FAKE", True),
        ("GH_PAT", "FAKE", True),
        ("credentials", {"user": "FAKE"}, True),
        ("password", None, False),
        ("use_cls_token", True, False),
        ("use_cls_token", "True", False),
        ("num_memory_tokens", 16, False),
        ("num_memory_tokens", "16", False),
        ("max_tokens", 16, False),
        ("tokenizer", "bert", False),
        ("pad_token", "PAD", False),
        ("bos_token", "<s>", False),
        ("eos_token", "</s>", False),
        ("my_token", "<|end|>", False),
        ("token_id", 5, False),
        ("token_dropout", "a", False),
        ("tokens", "a b", False),
        ("key", "a", False),
        ("keys", ["a"], False),
        ("num_key_value_heads", 8, False),
        ("author", "Jo", False),
        ("private_key_path", "/k", False),
        ("auth_type", "basic", False),
    ],
)
def test_keys_hide_their_values_by_whole_words(key, value, is_hidden):
    """Only a word of its own makes a secret, in snake, kebab and camel case alike."""
    assert REDACTOR.value(key, value) == (REDACTED if is_hidden else value)


def test_a_real_command_line_loses_its_secrets_and_nothing_else():
    """The harmless options with the word token in them keep their values."""
    argv = "train.py --api-key FAKEKEY1 --use_cls_token True --num_memory_tokens 16 db=postgres://u:FAKE4@h/db"
    argv += " --password=FAKE +model.secret=FAKE HF_TOKEN=FAKE3 --api-keys FAKE FAKE --lr -1"
    assert REDACTOR.argv(argv.split()) == [
        *("train.py", "--api-key", REDACTED, "--use_cls_token", "True", "--num_memory_tokens", "16"),
        *("db=postgres://[redacted]@h/db", "--password=[redacted]", "+model.secret=[redacted]"),
        *("HF_TOKEN=[redacted]", "--api-keys", REDACTED, REDACTED, "--lr", "-1"),
    ]


def test_nested_configurations_keep_their_shape():
    """Lists, command lines and pairs of name and value within are looked into; the original is not changed."""
    config = {
        "db": "postgres://u:FAKE4@h/db",
        "model": {"use_cls_token": True, "layers": [1, 2]},
        "command": ["--token", "FAKE", "x"],
        "env": [{"name": "HF_TOKEN", "value": "FAKE"}, {"name": "SEED", "value": "1"}],
        "pair": ({"secret": "FAKE"},),
    }
    assert REDACTOR.mapping(config) == {
        "db": "postgres://[redacted]@h/db",
        "model": {"use_cls_token": True, "layers": [1, 2]},
        "command": ["--token", REDACTED, "x"],
        "env": [{"name": "HF_TOKEN", "value": REDACTED}, {"name": "SEED", "value": "1"}],
        "pair": ({"secret": REDACTED},),
    }
    assert config["command"][1] == "FAKE"


def test_a_structure_that_contains_itself_ends():
    """A cycle is cut at a depth that nobody reaches on purpose."""
    config = {"a": 1}
    config["self"] = config
    assert REDACTOR.mapping(config)["self"]["self"]["a"] == 1


def test_extra_names_and_patterns_hide_more():
    """A name is matched by whole words in any spelling, a pattern within texts and keys."""
    redactor = Redactor(["patient_name", r"ID-\d+", re.compile("ward.*", re.I)])
    assert redactor.value("patientName", "FAKE") == REDACTED
    assert redactor.value("study", {"patient-name": "FAKE", "patient": "x"}) == {
        "patient-name": REDACTED,
        "patient": "x",
    }
    assert redactor.text("patient_name=FAKE of ID-123 next") == "patient_name=[redacted] of [redacted] next"
    assert redactor.value("Ward", 3) == REDACTED


def test_a_pattern_that_is_none_is_refused_with_its_reason():
    """The error names the setting, the value and the fix."""
    with pytest.raises(ConfigError, match=r"redact='\(x': use a key's name or a valid regular expression"):
        Redactor(["(x"])


@pytest.mark.parametrize(
    ("remote", "clean"),
    [
        ("https://u:FAKEPAT2@git.example/a/b.git", "https://git.example/a/b.git"),
        ("https://u:FA/KE@git.example/a/b.git", "https://git.example/a/b.git"),
        ("https://git.example/a/b.git?token=FAKE", "https://git.example/a/b.git"),
        ("git@git.example:a/b.git", "git@git.example:a/b.git"),
        ("/srv/git/b.git", "/srv/git/b.git"),
    ],
)
def test_remotes_keep_host_and_path_only(remote, clean):
    """What a remote's address carries besides is dropped whole."""
    assert remote_without_credentials(remote) == clean


@given(st.text(), st.text())
def test_any_text_is_taken_and_a_second_pass_changes_nothing(before, after):
    """No text raises, and what is hidden stays hidden."""
    once = REDACTOR.text(f"{before} password=FAKE9 {after}")
    assert REDACTOR.text(once) == once


def test_an_ordinary_message_costs_little_and_a_hostile_one_ends():
    """Each log record passes here: some 2 µs for an ordinary message, no more than linear time for any other."""
    message = "epoch 3 step 1200 loss=0.4312 acc=0.91 lr=1e-4 batch took 12.3 ms, reading shard 00017 of train"
    assert min(timeit.repeat(lambda: REDACTOR.text(message), number=2000, repeat=5)) / 2000 < 20e-6
    for hostile in ("a" * 100_000 + "=token", "key" * 30_000 + "=", "://a:b" * 10_000 + "@", "eyJ" * 30_000):
        assert timeit.timeit(lambda text=hostile: REDACTOR.text(text), number=1) < 2
