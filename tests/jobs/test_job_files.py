"""A job file is checked whole before anything starts: errors are typed, and name the key."""

import json
import random
from pathlib import Path

import pytest

from documents import ROOT, blocks
from penstock.errors import InputError
from penstock.jobs.parsing import Folder, Job, Kafka, Repair, Replay, Zipf, load, parse
from penstock.operator.settings import Settings
from penstock.streams.times import Every, Rows

EXAMPLES = sorted((ROOT / "examples" / "jobs").glob("*.toml"))
HOME = Path("/lake")
GOOD = """
name = "orders and payments"
checkpoint = "state"
trigger = "10 seconds"

[sources.orders]
format = "parquet"
path = "in/orders"
schema = "ts timestamp, id bigint, amount double"
where = "amount > 0"
watermark = "1 minute"

[sources.payments]
format = "kafka"
servers = ["one:9092", "two:9092"]
topics = "payments"
schema = "ts timestamp, order bigint"
select = ["ts", "order as id"]
watermark = "1 minute"

[join]
on = "id"
time = "ts"
window = { left = "10 minutes", right = "1 hour" }
memory = "64MB"
policy = { name = "prob", half_life = "5 minutes" }

[sink]
format = "parquet"
path = "out/found"

[ledger]
path = "out/shed"

[archive]
path = "out/rows"

[refine]
into = "out/rest"
keep = "2 days"
"""


def job(old: str = "", new: str = "") -> Job:
    assert old in GOOD
    return parse(GOOD.replace(old, new, 1) if old else GOOD, HOME)


def test_a_job_is_what_its_file_says() -> None:
    found = job()
    left, right = found.streams
    assert found.sources == ("orders", "payments")
    assert isinstance(left, Folder)
    assert (left.path, left.where) == ("/lake/in/orders", "amount > 0")
    assert isinstance(right, Kafka)
    assert (right.servers, right.topics) == (("one:9092", "two:9092"), ("payments",))
    assert right.select == ("ts", "order as id")
    assert isinstance(found.settings, Settings)
    assert found.settings.window == ("10 minutes", "1 hour")
    assert str(found.settings.policy) == "prob(half_life=5 minutes)"
    assert found.triggered == {"processingTime": "10 seconds"}
    assert (found.checkpoint, found.ledger, found.archive) == ("/lake/state", "/lake/out/shed", "/lake/out/rows")
    assert not found.ends


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('format = "parquet"\npath = "in', 'format = "parket"\npath = "in', r"^sources\.orders\.format: .*'parquet'"),
        ('format = "parquet"\npath = "in', 'fromat = "parquet"\npath = "in', r"^sources\.orders\.format: .*'fromat'"),
        ('format = "parquet"\npath = "in', 'format = "delta"\npath = "in', r"^sources\.orders\.schema: .*not known"),
        ("schema =", "schemata =", r"^sources\.orders\.schemata: .*'schema'"),
        ('"ts timestamp, order bigint"', "'{\"type\": 1}'", r"^sources\.payments\.schema: .*not in JSON"),
        ('watermark = "1 minute"', 'watermark = "a while"', r"^sources\.orders\.watermark: got 'a while'"),
        ('watermark = "1 minute"', "", r"^sources\.orders\.watermark: got nothing; .*10 minutes"),
        ('"one:9092"', '"one"', r"^sources\.payments\.servers: got 'one'; .*localhost:9092"),
        ('on = "id"', "on = []", r"^join\.on: got \[\]"),
        ('on = "id"', 'on = {left = "id"}', r"^join\.on: .*right"),
        ('on = "id"', 'on = {overlap = "id"}', r"^join\.on\.at_least: got nothing"),
        ('on = "id"', 'on = {overlap = "id", atleast = 2}', r"^join\.on\.atleast: got 2; did you mean 'at_least'"),
        ('on = "id"', 'on = {overlap = "id", at_least = 0.5}', r"^join\.on\.at_least: got 0.5"),
        ('on = "id"', 'on = {band = "id", overlap = "id"}', r"^join\.on: .*band or overlap"),
        ("[join]", "[join]\ncpu = 5", r"^join\.cpu: got 5; give a table"),
        ("[join]", '[join]\ncpu = {latency = "soon"}', r"^join\.cpu\.latency: got 'soon'"),
        ("[join]", "[join]\ncpu = {shares = 0.5}", r"^join\.cpu\.shares: got 0.5; did you mean 'share'"),
        ("[join]", "[join]\ncpu = {share = 0.5, over = [1]}", r"^join\.cpu\.over: got \[1\]"),
        ('"1 hour" }', '"an hour" }', r"^join\.window\.right: got 'an hour'"),
        ('"64MB"', '"64 apples"', r"^join\.memory: got '64 apples'"),
        ('"64MB"', "0", r"^join\.memory: got 0"),
        ('name = "prob"', 'name = "porb"', r"^join\.policy: got 'porb'; did you mean 'prob'"),
        ("half_life", "halflife", r"^join\.policy\.halflife: "),
        ('half_life = "5 minutes"', "half_life = 5", r"^join\.policy\.half_life: got 5"),
        ("[join]", "[join]\nlateness = 5", r"^join\.lateness: .*watermark"),
        ("[join]", '[join]\nleft = "order"', r"^join\.left: got 'order'; did you mean 'orders'"),
        ("[join]", "[joint]", r"^joint: .*'join'"),
        ("[join]", "[multijoin]", r"^multijoin\.window: .*several streams have windows"),
        ("[join]", '[multijoin]\non = "id"\ntime = "ts"\nwindows = "1 s"\n[join]', r"^join: got both .*one of them"),
        ("[join]", '[sources.more]\nformat="rate"\nwatermark="1 s"\n[join]', r"^join\.left: got nothing; .*more"),
        ('trigger = "10 seconds"', 'trigger = "now"', r"^trigger: got 'now'"),
        ('checkpoint = "state"', "", r"^checkpoint: got nothing"),
        ('checkpoint = "state"', 'checkpoint = "out/found/state"', r"^checkpoint: .*sink\.path"),
        ('path = "out/found"', 'path = "in/orders/found"', r"^sink\.path: .*sources\.orders\.path"),
        ('path = "out/found"', 'path = "in"', r"^sink\.path: .*sources\.orders\.path is in it"),
        ('format = "parquet"\npath = "out/found"', 'format = "memory"', r"^ledger: .*another sink than memory"),
        ('[ledger]\npath = "out/shed"', "", r"^refine: .*no ledger"),
        ("[refine]", '[spark]\npackages = "x; rm -rf /"\n[refine]', r"^spark\.packages: "),
        ("[refine]", '[spark]\nmemory = "lots"\n[refine]', r"^spark\.memory: got 'lots'; give a size"),
    ],
)
def test_an_error_names_the_key_and_what_would_be_right(old: str, new: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        job(old, new)


@pytest.mark.parametrize(
    "path",
    [
        "../in",
        "in/../../x",
        "~/in",
        "in\\..\\x",
        "%2e%2e/x",
        "a\u0000b",
        "a\nb",
        "http://x/y",
        "jar:file:/x!/y",
        "{../secret,zz}/a",
        "{out,zz}",
        "/lake/*",
        "/lake/ou?",
        "/lake/[o]ut",
        "s3a://bucket/{a,b}",
        "",
        " ",
    ],
)
def test_paths_stay_where_they_are_given(path: str) -> None:
    words = path.replace("\\", "\\\\").replace("\u0000", "\\u0000").replace("\n", "\\n")
    with pytest.raises(InputError, match=r"^sources\.orders\.path: "):
        job("in/orders", words)


@pytest.mark.parametrize(
    ("source", "sink", "apart"),
    [
        ("FILE:///lake/out", "/lake/out", False),
        ("file://localhost/lake/out", "/lake/out", False),
        ("file:/lake/./out//", "out", False),
        ("File:/lake", "out", False),
        ("s3://Bucket/out", "s3a://bucket/out/found", False),
        ("abfs://box@store/out/rows", "ABFSS://box@store/out", False),
        ("hdfs:///lake/out", "hdfs:/lake/out", False),
        ("hdfs:///lake/out", "/lake/out", True),
        ("s3a://one/out", "s3a://other/out", True),
        ("file:///lake/out2", "/lake/out", True),
    ],
)
def test_one_place_is_itself_however_it_is_written(source: str, sink: str, apart: bool) -> None:  # noqa: FBT001
    words = GOOD[: GOOD.index("[ledger]")].replace('"state"', '"/elsewhere/state"')
    words = words.replace('"in/orders"', f'"{source}"').replace('"out/found"', f'"{sink}"')
    if apart:
        assert parse(words, HOME)
        return
    with pytest.raises(InputError, match=r"^sink\.path: .*sources\.orders\.path"):
        parse(words, HOME)


@pytest.mark.parametrize("path", ["/data/in", "file:///data/in", "s3a://bucket/in", "hdfs://name/in"])
def test_absolute_paths_stay_as_they_are(path: str) -> None:
    source = job("in/orders", path).streams[0]
    assert isinstance(source, Folder)
    assert source.path == path


@pytest.mark.parametrize(
    "code",
    [
        "reflect('java.lang.System', 'exit', 1)",
        "Java_Method ('java.lang.Runtime', 'getRuntime')",
        "`reflect`('java.lang.System', 'exit', 1)",
        "try_reflect('java.lang.System', 'exit', 1)",
        "identifier('ref' || 'lect')('java.lang.System', 'exit', 1)",
        "id in (select id from csv.`/etc/passwd`)",
        "exists(from csv.`/etc/passwd`)",
        "(map id using 'sh' as x from t)",
        "key in (values 1 union table csv.`/etc/passwd`)",
        "key in (table csv.`/etc/passwd`)",
        "(with t as (values 1) from text.`/etc/passwd`) as leak",
        "(WITH t AS (VALUES 1) TABLE t) as leak",
        "(from`text`.`/etc/passwd`) as leak",
        "((From text.`/etc/passwd`)) as leak",
        "coalesce((from text.`/etc/passwd` limit 1), 'x') as leak",
        "(\u017felect 1) as leak",
        "key in (1 un\u0131on 2)",
        "1 intersect 2",
        "1 Except 2",
        "1 minus 2",
        "row_number() Over (order by id)",
        "'a' || (values 'it''s' ) as leak",
        "'a\\\\' || (values 1) || 'b'",
        "r'a\\' || (values 1) || 'b'",
        "1e+5r'a\\' || (values 1) || 'b'",
        "a://b-r'a\\' '|| (values 1) || 'b'",
        "`a` in (values 1)",
        "`a``b` in (`c`, (values 1))",
        "\"reflect\"('java.lang.System', 'exit', 1)",
        "system.builtin.`Reflect` ('java.lang.System', 'exit', 1)",
        "'${env:HOME}' as leak",
        "$$a$$ as leak",
        'from_json(note, \'{"type":"struct","fields":[]}\').a',
        "From_Json (note, concat('{', '}')).a",
        "from_json(note, '\\u007b}').a",
        "from_json(note, r'\\u007b}').a",
        "from_json(note, '{' '}').a",
        "from_json(array(note, 'a int')[0], kind).a",
        "from_json(note, schema => kind).a",
        "`from_json`(note, '{}').a",
        "\"from_json\"(note, '{}').a",
        "system.builtin.from_json(note, '{}').a",
        "from_csv(note, '{}').a",
        "from_xml(note, cast(unhex('7b7d') as string)).a",
        "variant_get(parse_json(note), '$.a', '{}')",
        "try_variant_get(parse_json(note), '$.a', lower(note))",
        "from_protobuf(note, 'com.example.Row', map('a', 'b'))",
        "'a",
        "`a",
        "1 = 1; drop table x",
        "1 = 1 -- and so on",
        "1 /* */ = 1",
    ],
)
@pytest.mark.parametrize("key", ["where", "select"])
def test_code_in_expressions_is_refused(code: str, key: str) -> None:
    place = ('where = "amount > 0"', 'select = ["ts", "order as id"]')[key == "select"]
    with pytest.raises(InputError, match=rf"^sources\.\w+\.{key}: .*not for job files"):
        job(place, f"{key} = {json.dumps(code)}")


@pytest.mark.parametrize(
    "words",
    [
        "amount > 0 and note not in ('select', '-- union', '/* (from t) */', 'a;b', 'it''s (values 1)')",
        "`from` + `table` + abs(`values`) + coalesce(`with`, `select`, `union`) > 0",
        "`reflect` = 1",
        "extract(year from ts) = 2024 and id is distinct from 3 and trim(both 'x' from note) = 'y'",
        "values > 1 and payload.table = 'x'",
        "note rlike r'a\\' and note = 'b'",
        "from_json(note, 'a int').a = 1 and minus1 > 0 and usings = 2",
        "from_json(array(note, '{}')[0], \"a int\", map('mode', '{x}')).a = 1 and from_json = 2",
        "variant_get(parse_json(note), '$.a', 'int') = 1 and variant_get(`kind`, '$.{}') is null",
        "(amount - -1) * 2 / 3 > 0",
        "gr\u00f6\u00dfe > 0",
    ],
)
def test_names_in_back_quotes_and_texts_may_be_anything(words: str) -> None:
    assert job('"amount > 0"', json.dumps(words)).streams[0].where == words


def test_all_columns_but_some() -> None:
    assert job('["ts", "order as id"]', '"* except (cents)"').streams[1].select == ("* except (cents)",)


@pytest.mark.parametrize(
    "sink",
    [
        'format = "kafka"\nservers = "one:9092"\ntopic = "found"',
        'format = "table"\nname = "found"\npath = "out/found"',
        'format = "console"',
    ],
)
def test_ledger_and_archive_stand_beside_every_sink_that_lasts(sink: str) -> None:
    found = job('format = "parquet"\npath = "out/found"', sink)
    assert (found.ledger, found.archive) == ("/lake/out/shed", "/lake/out/rows")
    with pytest.raises(InputError, match=r"^checkpoint: got nothing"):
        parse(GOOD.replace('format = "parquet"\npath = "out/found"', sink).replace('checkpoint = "state"', ""), HOME)


def test_what_a_source_does_not_say_the_join_does() -> None:
    words = """
    [sources.a]
    format = "zipf"
    rows = 10
    watermark = "1 second"
    [sources.b]
    format = "replay"
    path = "b.csv"
    start = 2001-09-09T01:46:40
    watermark = "1 second"
    [join]
    left = "b"
    right = "a"
    on = "key"
    time = {left = "at", right = "ts"}
    window = "40 rows"
    split = {left = 30, right = 10}
    memory = 40
    [sink]
    format = "memory"
    """
    found = parse(words, HOME)
    left, right = found.streams
    assert isinstance(left, Replay)
    assert (left.path, left.time, left.start) == ("/lake/b.csv", "at", 10**9)
    assert isinstance(right, Zipf)
    assert right.side == "right"
    assert isinstance(found.settings, Settings)
    assert found.settings.window == Rows(40)
    assert found.settings.split == (30, 10)
    assert found.ends
    assert found.checkpoint is None
    with pytest.raises(InputError, match=r"^checkpoint: .*does not outlive"):
        parse(f'checkpoint = "cp"\n{words}', HOME)


SEVERAL = """
checkpoint = "state"
[sources.a]
format = "rate"
watermark = "1 minute"
[sources.b]
format = "zipf"
rows = 10
watermark = "1 minute"
[sources.c]
format = "zipf"
rows = 10
watermark = "1 minute"
[sources.d]
format = "replay"
path = "d.csv"
watermark = "1 minute"
[multijoin]
on = [{ a = "x", b = "y" }, { b = "y", c = "y", how = "<=" }, { c = "z", b = "z" }, { c = "x", d = "x" }]
time = { a = "timestamp", b = "ts", c = "ts", d = "at" }
windows = { a = "1 minute", b = "40 rows", c = "1 hour", d = "1 hour" }
evaluation = "5 seconds"
index = { a = "none", b = 30, c = "auto", d = "hash" }
order = ["d", "c", "b", "a"]
price = { a = 1, b = 20, c = 1, d = 2.5 }
lateness = "10 seconds"
memory = 400
policy = { name = "prob", half_life = "5 minutes" }
[sink]
format = "parquet"
path = "found"
[ledger]
path = "shed"
"""


def test_several_streams_are_what_the_file_says() -> None:
    found = parse(SEVERAL, HOME)
    assert not isinstance(found.settings, Settings)
    assert (found.sources, found.joining) == (("a", "b", "c", "d"), "multijoin")
    assert found.times == ("timestamp", "ts", "ts", "at")
    assert found.settings.on == {
        ("a", "b"): [("x", "=", "y")],
        ("b", "c"): [("y", "<=", "y"), ("z", "=", "z")],
        ("c", "d"): [("x", "=", "x")],
    }
    assert found.settings.windows == {"a": "1 minute", "b": Rows(40), "c": "1 hour", "d": "1 hour"}
    assert found.settings.evaluation == Every("5 seconds")
    assert found.settings.index == {"a": "none", "b": 30, "c": "auto", "d": "hash"}
    assert found.settings.order == ["d", "c", "b", "a"]
    assert found.settings.price == {"a": 1, "b": 20, "c": 1, "d": 2.5}
    assert found.settings.lateness == "10 seconds"
    assert str(found.settings.policy) == "prob(half_life=5 minutes)"
    _, b, c, d = found.streams
    assert isinstance(b, Zipf)
    assert isinstance(c, Zipf)
    assert (b.side, b.seed, c.side, c.seed) == ("right", 0, "left", 1)  # no two streams are alike
    assert isinstance(d, Replay)
    assert (d.path, d.time) == ("/lake/d.csv", "at")


@pytest.mark.parametrize(
    ("old", "new", "said"),
    [
        ('{ a = "x", b = "y" }, ', '{ a = "x" }, ', r"^multijoin\.on\.edge 1: .*two sources"),
        ('how = "<="', 'how = "=<"', r"^multijoin\.on\.edge 2\.how: got '=<'"),
        ('c = "x", d = "x"', 'c = "x", d = 5', r"^multijoin\.on\.edge 4\.d: got 5"),
        (', d = "at" }', " }", r"^multijoin\.time: .*name each source once: a, b, c, d"),
        ('b = "40 rows"', 'b = "no rows"', r"^multijoin\.windows\.b: got 'no rows'"),
        ('"5 seconds"', '"soon"', r"^multijoin\.evaluation: got 'soon'"),
        ("b = 30", "b = 0", r"^multijoin\.index\.b: got 0"),
        ('lateness = "10 seconds"', "lateness = 5", r"^multijoin\.lateness: got 5"),
        ("[multijoin]", "[multijoin]\nwindow = 5", r"^multijoin\.window: .*several streams have windows"),
        ("[multijoin]", "[multijoin]\nalgoritm = 5", r"^multijoin\.algoritm: .*did you mean 'algorithm'"),
        ('order = ["d"', 'order = ["D-"', r"^multijoin\.order: got 'D-'"),
        ("[ledger]", '[refine]\ninto = "rest"\n[ledger]', r"^refine: got no ledger or no archive"),
        (
            "[ledger]",
            '[archive]\npath = "rows"\n[refine]\ninto = "rest"\n[ledger]',
            r"^multijoin\.windows: got .*40 rows.*leave \[refine\] out",
        ),
        ('path = "found"', 'path = "d.csv/found"', r"^sink\.path: .*sources\.d\.path"),
    ],
)
def test_an_error_in_several_streams_names_the_key(old: str, new: str, said: str) -> None:
    assert SEVERAL.count(old) >= 1
    with pytest.raises(InputError, match=said):
        parse(SEVERAL.replace(old, new, 1), HOME)


def test_several_streams_are_archived_and_refined_as_the_file_says() -> None:
    words = SEVERAL.replace('b = "40 rows"', 'b = "40 seconds"')
    found = parse(words + '[archive]\npath = "rows"\n[refine]\ninto = "rest"\nkeep = "2 days"\nbatches = 7\n', HOME)
    assert (found.ledger, found.archive) == ("/lake/shed", "/lake/rows")
    assert found.refine == Repair(into="/lake/rest", keep="2 days", batches=7)
    with pytest.raises(InputError, match=r"^refine\.into: .*archive\.path"):
        parse(words + '[archive]\npath = "rows"\n[refine]\ninto = "rows/rest"\n', HOME)


@pytest.mark.parametrize(
    ("new", "said"),
    [
        ('window = "40 rows"', r"^join\.window: got 40 rows; .*leave \[refine\] out"),
        ('window = "1 hour"\nmemory = 9\nmode = "observe"', r"^join\.mode: .*nothing is missing"),
        ('window = "1 hour"\ncpu = { share = 0.5, over = "entered" }', r"^join\.cpu: .*over='arrivals'"),
    ],
)
def test_what_cannot_be_refined_is_said_before_it_runs(new: str, said: str) -> None:
    with pytest.raises(InputError, match=said):
        parse(GOOD[: GOOD.index("window")] + new + GOOD[GOOD.index("\n[sink]") :], HOME)


def test_one_source_is_not_several() -> None:
    words = SEVERAL[: SEVERAL.index("[sources.b]")] + '[multijoin]\non = "x"\ntime = "t"\nwindows = "1 s"\n'
    with pytest.raises(InputError, match=r"^multijoin: got one source, a"):
        parse(words + SEVERAL[SEVERAL.index("[sink]") :], HOME)


def test_one_source_may_be_both_sides() -> None:
    words = GOOD[: GOOD.index("[sources.payments]")] + GOOD[GOOD.index("[join]") :]
    assert parse(words, HOME).sources == ("orders", "orders")


@pytest.mark.parametrize("words", ["= 1", "[" * 5000, "x = " + "9" * 5000, "a.b = 1\na.b = 2"])
def test_what_is_no_toml(words: str) -> None:
    with pytest.raises(InputError, match=r"^job: "):
        parse(words, HOME)


def test_files_that_cannot_be_read(tmp_path: Path) -> None:
    for name, content in {"latin": b"name = '\xff'", "large": b"#" * (1 << 21), "empty": b""}.items():
        (tmp_path / name).write_bytes(content)
        with pytest.raises(InputError):
            load(tmp_path / name)
    for path in (tmp_path / "absent", tmp_path):
        with pytest.raises(InputError, match="can be read"):
            load(path)


@pytest.mark.parametrize("path", EXAMPLES, ids=lambda path: str(path.stem))
def test_examples_are_jobs(path: Path) -> None:
    assert load(path).name


def test_the_jobs_in_the_documents_are_jobs() -> None:
    found = [parse(words, HOME) for words in blocks(ROOT / "docs" / "jobs.md", "toml")]
    assert len(found) >= 3


WORDS = [
    "true",
    "-1",
    "0",
    "1e400",
    "nan",
    "[]",
    "{}",
    '""',
    "[[1]]",
    "1979-05-27",
    '"\\u0000"',
    '"../x"',
    "9" * 400,
    '"é"',
]


def mutated(words: str, lots: random.Random) -> str:
    """Return a job file with one to four things changed: characters, lines, values, keys."""
    for _ in range(lots.randint(1, 4)):
        lines = words.splitlines()
        at = lots.randrange(len(lines))
        kind = lots.randrange(7)
        if kind == 0:
            del lines[at]
        elif kind == 1:
            lines.insert(at, lines[lots.randrange(len(lines))])
        elif kind == 2 and "=" in lines[at]:
            lines[at] = f"{lines[at].partition('=')[0]}= {lots.choice(WORDS)}"
        elif kind == 3 and "=" in lines[at]:
            other = lots.choice([line for line in lines if "=" in line])
            lines[at] = f"{lines[at].partition('=')[0]}={other.partition('=')[2]}"
        elif kind == 4 and lines[at]:
            place = lots.randrange(len(lines[at]))
            lines[at] = lines[at][:place] + chr(lots.choice([*range(32, 127), 0, 0x1F600])) + lines[at][place + 1 :]
        elif kind == 5:
            lines[at] = lines[at][::-1]
        else:
            lots.shuffle(lines)
        words = "\n".join(lines) or " "
    return words


def test_a_thousand_mutated_jobs_end_in_typed_errors_only() -> None:
    """Nothing but a job, or an error that names a key, comes out of whatever goes in."""
    lots = random.Random(9)  # noqa: S311 - not for secrets
    whole = [GOOD, *(path.read_text(encoding="utf-8") for path in EXAMPLES)]
    ends: dict[str, int] = {}
    for _ in range(1000):
        words = mutated(lots.choice(whole), lots)
        end: Job | InputError
        try:
            end = parse(words, HOME)
        except InputError as error:
            end = error
        if isinstance(end, InputError):
            assert end.argument, words
            assert len(str(end)) < 2000
        ends[type(end).__name__] = ends.get(type(end).__name__, 0) + 1
    assert ends["InputError"] > 300
    assert ends["Job"] > 10
