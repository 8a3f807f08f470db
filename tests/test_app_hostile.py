"""Strangers at the planner's door, which is a real server on loopback: it stays up and says why."""

import asyncio
import contextlib
import hashlib
import http.client
import io
import json
import re
import resource
import socket
import stat
import zipfile
from pathlib import Path
from urllib.parse import urlsplit

import numpy as np
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from bagwise.app.estimate import estimate, unpack
from bagwise.release import release
from tests.served import served

pytest.importorskip("dash")
pytest.importorskip("waitress")
if not Path("/proc/self/status").exists():
    pytest.skip("memory is read from /proc, which is not here", allow_module_level=True)

MIB = 2**20
# What a minute of abuse may leave behind in the server.
GROWTH = 96 * MIB


@pytest.fixture(scope="module")
def server():
    with served() as (address, process):
        yield urlsplit(address), process
        process.said.seek(0)
        said = process.said.read()
        assert "Traceback" not in said
        assert "secret" not in said
        assert not list(process.place.iterdir())


def ask(server, method, path, body=None, **headers):
    """Status and body of an answer."""
    connection = http.client.HTTPConnection(server[0].hostname, server[0].port, timeout=120)
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        return answer.status, answer.read()
    finally:
        connection.close()


def refusal(found, *codes):
    """The one sentence of a refusal."""
    status, body = found
    assert status in codes, body[:300]
    sentence = json.loads(body)["error"]
    assert "Traceback" not in sentence
    assert "\n" not in sentence
    assert len(sentence) < 600
    return sentence


def status_of(process, name):
    """A number of /proc/PID/status; memory in bytes."""
    line = next(
        line
        for line in Path(f"/proc/{process.pid}/status").read_text().splitlines()
        if line.startswith(f"{name}:")
    )
    return int(line.split()[1]) * (1024 if line.endswith("kB") else 1)


@pytest.fixture(autouse=True)
def still_well(server):
    """Whatever a test does, the server answers after it, and its memory has not run away."""
    if not hasattr(server[1], "before"):
        assert ask(server, "GET", "/")[0] == 200
        assert ask(server, "GET", "/api/plan?rows=1e4&features=10&snr=1")[0] == 200
        server[1].before = status_of(server[1], "VmRSS")
    yield
    assert json.loads(ask(server, "GET", "/healthz")[1]) == {"status": "ok"}
    assert ask(server, "GET", "/api/plan?rows=1e4&features=10&snr=1")[0] == 200
    assert status_of(server[1], "VmRSS") < server[1].before + GROWTH
    assert status_of(server[1], "Threads") < 24


BAD_QUESTIONS = [
    "",
    "rows=abc&features=5&snr=1",
    "rows=nan&features=5&snr=1",
    "rows=inf&features=5&snr=1",
    "rows=1e400&features=5&snr=1",
    "rows=1e308&features=5&snr=1",
    "rows=-5&features=5&snr=1",
    "rows=100&features=100&snr=1",
    "rows=100&features=2.5&snr=1",
    "rows=100&features=5&snr=0",
    "rows=100&features=5&snr=1e200",
    "rows=100&features=5&snr=1&noise=0",
    "rows=100&features=5&snr=1&epsilon=1",
    "rows=100&features=5&snr=1&epsilon=0&lo=0&hi=1",
    "rows=100&features=5&snr=1&lo=0",
    "rows=100&features=5&snr=1&lo=1&hi=0",
    "rows=100&features=5&snr=1&bag_size=51",
    "rows=100&features=5&snr=1&bag_size=1.5",
    "rows=100&features=5&snr=1&rho=1.1",
    "rows=100&features=5&snr=1&rho=-1",
    "rows=100&rows=200&features=5&snr=1",
    "rows=100&features=5&snr=1&password=secret",
    "rows=" + "9" * 5000 + "&features=5&snr=1",
    "rows=%00&features=5&snr=1",
    "rows=%FF%FE&features=5&snr=1",
    "rows=%E0%A5%A7%E0%A5%A6&features=5&snr=__import__('os')",
    "&".join(f"x{i}=1" for i in range(2000)),
]


@pytest.mark.parametrize("question", BAD_QUESTIONS, ids=range(len(BAD_QUESTIONS)))
def test_a_bad_question_is_one_sentence(server, question):
    for path in ("/api/plan?", "/api/commands?"):
        refusal(ask(server, "GET", path + question), 400)


@pytest.mark.parametrize(
    "question",
    [
        "rows=1e15&features=1&snr=1e100&noise=1e20&epsilon=1e-100&lo=-1e300&hi=1e300",
        "rows=3&features=2&snr=1e-100&noise=1e-20&bag_size=1&rho=0",
        "rows=100&features=50&snr=1&bag_size=2&rho=0",
        "rows=1e15&features=999999999999999&snr=1&epsilon=1e300&lo=-1e-300&hi=1e-300",
        "rows=1e15&features=5&snr=1&bag_size=500000000000000&rho=1e-300",
    ],
)
def test_extreme_questions_get_strict_json(server, question):
    def refuse(name):
        raise AssertionError(f"{name} is no JSON")

    status, body = ask(server, "GET", "/api/plan?" + question)
    found = json.loads(body, parse_constant=refuse)
    assert status == 200 or found.keys() == {"error"}
    assert change(server, dict(part.split("=") for part in question.split("&")))[0] == 200


def shape(server):
    """The change of fields as the page sends it, from what the server says of itself."""
    known = json.loads(ask(server, "GET", "/_dash-dependencies")[1])
    wired = next(one for one in known if not one["clientside_function"])
    names = wired["output"].strip(".").split("...")
    outputs = [dict(zip(("id", "property"), n.rsplit(".", 1), strict=True)) for n in names]
    return {
        "output": wired["output"],
        "outputs": outputs,
        "inputs": [{"id": w["id"], "property": w["property"]} for w in wired["inputs"]],
        "changedPropIds": ["rows.value"],
    }


def change(server, values):
    """The answer to a change of fields."""
    body = shape(server)
    for wire in body["inputs"]:
        wire["value"] = values.get(wire["id"], ["yes"] if wire["id"] == "private" else None)
    return post(server, json.dumps(body))


def post(server, body):
    return ask(
        server, "POST", "/_dash-update-component", body, **{"Content-Type": "application/json"}
    )


@pytest.mark.parametrize(
    "value",
    [
        *(None, True, [], {}, [["yes"]], {"a": 1}, "", " ", "nan", "Infinity", "-0", "1e999"),
        *(float("nan"), float("inf"), -1, 1e308, 10**300, "9" * 40, "x" * 60_000, "\x00", "<b>"),
    ],
    ids=str,
)
def test_values_of_any_type_in_any_field_get_an_answer(server, value):
    good = {"rows": "1e4", "features": "10", "snr": 1, "noise": "1", "epsilon": 1}
    for name in ("rows", "lo", "bag_size", "rho"):
        status, body = change(server, good | {"lo": "-5", "hi": "5"} | {name: value})
        if len(str(value)) > 1000:
            assert status in (200, 413)
        else:
            assert status == 200, body[:300]
        assert b"Traceback" not in body


def broken_changes(good):
    """Bodies that no page of ours sends."""
    text = json.dumps(good)
    yield from ("", "{", "null", "[]", "17", '"secret"', text[:-20], "\xff\xfe", "[" * 30_000)
    yield '{"a":' * 10_000
    for key in good:
        yield json.dumps({k: v for k, v in good.items() if k != key and key != "changedPropIds"})
        for wrong in (None, 5, "x", {}, [None], [[]], [{}], [{"id": "rows"}], {"id": 1}):
            yield json.dumps(good | {key: wrong})
    yield json.dumps(good | {"output": "..nobody.children.."})
    yield json.dumps(good | {"inputs": good["inputs"][:-1]})
    yield json.dumps(good | {"inputs": good["inputs"] * 2})
    yield json.dumps(good | {"state": [{"id": "rows", "property": "value", "value": 1}]})
    yield json.dumps(
        good | {"inputs": [*good["inputs"][1:], {"id": {"a": 1}, "property": "value"}]}
    )


def test_changes_of_another_shape_are_refused_in_one_sentence(server):
    good = shape(server)
    for wire in good["inputs"]:
        wire["value"] = "5"
    assert post(server, json.dumps(good))[0] == 200
    for body in broken_changes(good):
        status, answer = post(server, body.encode("latin-1"))
        if status != 200:
            refusal((status, answer), 400)
        else:
            # Dash itself needs neither of these.
            assert json.loads(body).get("changedPropIds", []) in ([], ["rows.value"])


def test_large_changes_are_refused_before_they_are_read(server):
    assert "small" in refusal(post(server, b"[" + b"1," * 200_000 + b"1]"), 413)


@pytest.mark.parametrize(
    "path",
    [
        "/assets/../../../../../../etc/passwd",
        "/assets/%2e%2e/%2e%2e/%2e%2e/%2e%2e/etc/passwd",
        "/assets/..%2f..%2fserver.py",
        "/assets/..\\..\\server.py",
        "/assets//etc/passwd",
        "/_dash-component-suites/dash/../../../../etc/passwd",
        "/_dash-component-suites/os/path.py",
        "/_dash-component-suites/bagwise/app/server.py",
        "/_dash-component-suites/dash/dash.py",
        "/_dash-component-suites/dash/%00",
        "//etc/passwd",
        "/api/../../etc/passwd",
        "/nothing",
        "/_mcp",
    ],
)
def test_tricks_with_paths_find_nothing(server, path):
    status, body = ask(server, "GET", path)
    assert status in (400, 403, 404, 405), body[:200]
    assert b"root:" not in body
    assert b"import" not in body
    assert b"Traceback" not in body


@pytest.mark.parametrize("method", ["PUT", "DELETE", "PATCH", "POST", "SECRET"])
def test_other_methods_are_refused(server, method):
    status, body = ask(server, method, "/api/plan", b"")
    assert status == 405
    assert b"Traceback" not in body


def zipped(entries):
    """A zip file of names (or ZipInfo) and contents."""
    held = io.BytesIO()
    with zipfile.ZipFile(held, "w", zipfile.ZIP_DEFLATED) as archive:
        for name, content in entries:
            archive.writestr(name, content)
    return held.getvalue()


def link(name, target):
    info = zipfile.ZipInfo(name)
    info.external_attr = (stat.S_IFLNK | 0o777) << 16
    return info, target


def read(folder):
    """What the process that reads uploads does with release.zip in a folder."""
    unpack(folder / "release.zip", folder / "released")
    return estimate(folder / "released")


def upload(server, body):
    return ask(server, "POST", "/api/snr", body)


@pytest.mark.filterwarnings("ignore:Duplicate name")
@pytest.mark.parametrize(
    "entries",
    [
        [("../release.json", "secret")],
        [("release.json", "secret"), ("../../evil.txt", "x")],
        [("/tmp/release.json", "secret")],
        [("a/b/release.json", "secret")],
        [("..\\release.json", "secret")],
        [("release.json", "{}"), ("release.json", "{}")],
        [("a/release.json", "{}"), ("b/release.json", "{}")],
        [link("release.json", "/etc/passwd")],
        [("release.json", "{}"), link("rows.parquet", "/etc/passwd")],
        [("release.json", "{}"), ("evil.sh", "secret")],
        [("release.json", "{}"), ("rows.parquet/../../x", "secret")],
        [(f"rows.parquet/part-{i:05d}.parquet", "") for i in range(2000)],
        [],
        [("release.json", "secret")],
        [("release.json", "[" * 100_000)],
    ],
    ids=range(15),
)
def test_strange_zip_files_are_refused_in_one_sentence(entries, tmp_path):
    """In this process, as the one that reads uploads does it; others below go through the door."""
    (tmp_path / "release.zip").write_bytes(zipped(entries))
    with pytest.raises(ValueError, match="must be") as refused:
        read(tmp_path)
    assert "secret" not in str(refused.value)
    outside = [path.name for path in tmp_path.iterdir()]
    assert set(outside) <= {"release.zip", "released"}
    assert not [path for path in tmp_path.rglob("*") if path.is_symlink()]


def test_what_is_no_release_is_refused(server):
    for body in (b"", b"secret", zipped([("../release.json", "secret")])):
        sentence = refusal(upload(server, body), 400)
        assert sentence.startswith("the upload must be")
        assert str(server[1].place) not in sentence


@pytest.mark.parametrize("size", range(0, 120, 7))
def test_a_zip_file_cut_short_is_refused(size, tmp_path):
    (tmp_path / "release.zip").write_bytes(zipped([("release.json", "{}")])[:size])
    with pytest.raises(ValueError, match="must be a zip file of a Release folder"):
        unpack(tmp_path / "release.zip", tmp_path / "released")


def test_a_large_upload_is_refused_before_it_is_read(server):
    connection = http.client.HTTPConnection(server[0].hostname, server[0].port, timeout=60)
    connection.putrequest("POST", "/api/snr")
    connection.putheader("Content-Length", str(2**40))
    connection.endheaders()
    assert connection.getresponse().status == 413
    connection.close()
    assert "32 MiB" in refusal(upload(server, b"0" * (32 * MIB + 1)), 413)


def test_a_bomb_is_refused_by_what_it_says_of_itself_and_by_what_it_is(server):
    bomb = zipped([("release.json", "{}"), ("rows.parquet", bytes(400 * MIB))])
    assert len(bomb) < MIB
    assert "256 MiB when unpacked" in refusal(upload(server, bomb), 400)
    # Where the size is told, at the entry and in the directory, it is made small.
    size = (400 * MIB).to_bytes(4, "little")
    assert bomb.count(size) == 2
    refusal(upload(server, bomb.replace(size, (1000).to_bytes(4, "little"))), 400)


@pytest.fixture(scope="module")
def folder(tmp_path_factory):
    """A Release that is in order."""
    rng = np.random.default_rng(0)
    x = rng.normal(size=400)
    rows = {"x": x, "y": x + rng.normal(size=400)}
    path = tmp_path_factory.mktemp("made") / "released"
    options = {"bag_size": 4, "epsilon": np.inf, "bounds": (-9, 9), "ledger": None}
    release(rows, response="y", out=path, **options)
    return path


def test_a_table_that_grows_when_it_is_read_is_refused(server, folder):
    """Five thousand ids of a megabyte each, which a Parquet file holds in some kilobytes."""
    ids = pa.DictionaryArray.from_arrays(np.zeros(5000, np.int32), pa.array(["a" * MIB]))
    ones = np.ones(5000)
    table = pa.table({"bag": ids, "size": ones.astype(int), "response": ones, "noise_scale": ones})
    held = io.BytesIO()
    pq.write_table(table, held, store_schema=False, compression="zstd")
    bags = held.getvalue()
    assert len(bags) < MIB
    said = json.loads((folder / "release.json").read_text())
    said["files"]["bags.parquet"] = hashlib.sha256(bags).hexdigest()
    said |= {"n_bags": 5000, "n_rows": 5000, "smallest_bag": 1, "largest_bag": 1}
    entries = [("release.json", json.dumps(said)), ("bags.parquet", bags)]
    entries.append(("rows.parquet", (folder / "rows.parquet").read_bytes()))
    sentence = refusal(upload(server, zipped(entries)), 400)
    # Without a limit on memory it would be read, and refused for ids that are alike.
    assert re.search("malloc|memory|allocat|is read within", sentence), sentence


def test_bytes_changed_anywhere_are_refused_or_harmless(folder, tmp_path):
    files = [(path.name, path.read_bytes()) for path in sorted(folder.iterdir())]
    whole = tmp_path / "release.zip"
    whole.write_bytes(zipped(files))
    unpack(whole, tmp_path / "whole")
    assert estimate(tmp_path / "whole")["rows"] == 400
    rng = np.random.default_rng(1)
    for number in range(30):
        name, content = files[number % len(files)]
        place = int(rng.integers(len(content)))
        changed = content[:place] + bytes([content[place] ^ 255]) + content[place + 1 :]
        whole.write_bytes(zipped([*(f for f in files if f[0] != name), (name, changed)]))
        unpack(whole, tmp_path / f"{number}")
        with contextlib.suppress(ValueError):
            estimate(tmp_path / f"{number}")


def test_half_requests_do_not_keep_others_out(server):
    halves = []
    for number in range(100):
        one = socket.create_connection((server[0].hostname, server[0].port), timeout=60)
        one.sendall(
            (b"GET / HT", b"POST /api/snr HTTP/1.1\r\nContent-Length: 99\r\n\r\nx")[number % 2]
        )
        halves.append(one)
    assert ask(server, "GET", "/api/plan?rows=1e4&features=10&snr=1")[0] == 200
    for one in halves:
        one.close()


def test_nonsense_on_the_wire_is_answered_or_hung_up_on(server):
    for words in (
        b"\x00" * 100,
        b"GET\r\n\r\n",
        b"GET / HTTP/9\r\n\r\n",
        b"A" * 50_000,
        b"\r\n" * 50,
    ):
        with socket.create_connection((server[0].hostname, server[0].port), timeout=60) as one:
            answer = b""
            with contextlib.suppress(OSError):
                one.sendall(words)
                one.shutdown(socket.SHUT_WR)
                answer = one.recv(100)
            assert not answer or answer.startswith(b"HTTP/1")


def test_a_thousand_requests_at_once_are_all_answered(server):
    soft, hard = resource.getrlimit(resource.RLIMIT_NOFILE)
    if soft < 1200:
        resource.setrlimit(resource.RLIMIT_NOFILE, (min(4096, hard), hard))
    host, port = server[0].hostname, server[0].port

    async def one(number):
        path = "/healthz" if number % 4 else f"/api/plan?rows={1000 + number}&features=9&snr=1"
        reader, writer = await asyncio.open_connection(host, port)
        writer.write(f"GET {path} HTTP/1.1\r\nHost: a\r\nConnection: close\r\n\r\n".encode())
        answer = await reader.read()
        writer.close()
        await writer.wait_closed()
        return answer

    async def everyone():
        return await asyncio.wait_for(asyncio.gather(*map(one, range(1000))), 120)

    answers = asyncio.run(everyone())
    assert {answer[:12] for answer in answers} == {b"HTTP/1.1 200"}
    for number in range(0, 1000, 100):
        assert (
            json.loads(answers[number].split(b"\r\n\r\n", 1)[1])["asked"]["rows"] == 1000 + number
        )


def test_uploads_take_turns(server, folder):
    """Many at once: one is read, others are told to come again, and none is kept."""
    files = zipped([(path.name, path.read_bytes()) for path in sorted(folder.iterdir())])

    async def all_at_once():
        return await asyncio.gather(*(asyncio.to_thread(upload, server, files) for _ in range(4)))

    found = asyncio.run(all_at_once())
    codes = [status for status, _ in found]
    assert 200 in codes
    assert set(codes) <= {200, 503}
