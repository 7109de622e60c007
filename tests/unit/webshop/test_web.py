"""The shop in the browser, over HTTP: one click is one turn, and nothing can be done or seen that an agent cannot."""

from __future__ import annotations

import asyncio
import http.client
import random
import re
import signal
import socket
import subprocess
import sys
import threading
from urllib.parse import urlencode
from xml.etree import ElementTree

import pytest

from mulligan.app.cli import main
from mulligan.app.web.server import Table, serving
from mulligan.app.web.visitor import Visitor
from mulligan.envs import registry
from mulligan.envs.webshop.env import WebShop
from mulligan.trial.runner import run_trial, run_trial_sync
from mulligan.trial.settings import TrialSettings
from mulligan.types import Completion, Trial
from shirts import NOTE, item, shop_of


class Page:
    """An answer, read as XML: what stands on it and what can be sent from it."""

    def __init__(self, status: int, text: str, where: str = "") -> None:
        self.status, self.text, self.where = status, text, where
        self.root = ElementTree.fromstring(text.partition("\n")[2]) if "<main>" in text else None

    def text_of(self, ident: str) -> str:
        element = self.root.find(f".//*[@id='{ident}']")
        assert element is not None, f"no element has the id {ident!r}"
        return "".join(element.itertext())

    @property
    def name(self) -> str:
        return self.root.find(".//form[@id='act']/input").get("value")

    @property
    def words(self) -> str:
        """What the person reads, beside what the agent would."""
        return " ".join(" ".join(self.root.find(".//main").itertext()).split())

    @property
    def buttons(self) -> list[str]:
        return [button.get("value") for button in self.root.iterfind(".//button[@name='say']")]


class Visit:
    """A trial that waits for a browser, in a thread of its own, and that browser."""

    def __init__(self, env: object, **settings: object) -> None:
        self.env, self.settings = env, TrialSettings(**settings)
        self.table = Table()
        about = registry.spec_of(type(env), env.task.env)
        self.visitor = Visitor(self.table, about, self.settings)
        self.loop = asyncio.new_event_loop()
        self.trial: Trial | None = None
        self.thread = threading.Thread(target=self._play)
        self.serving = serving(self.table)

    def _play(self) -> None:
        asyncio.set_event_loop(self.loop)
        self.task = self.loop.create_task(run_trial(self.env, self.visitor, settings=self.settings))
        try:
            self.trial = self.loop.run_until_complete(self.task)
            self.visitor.finish(self.trial)
        except asyncio.CancelledError:
            pass
        finally:
            self.loop.close()

    def __enter__(self) -> Visit:
        self.address = self.serving.__enter__().removeprefix("http://").rstrip("/")
        self.thread.start()
        return self

    def __exit__(self, *failure: object) -> None:
        if self.thread.is_alive() and self.trial is None:
            self.loop.call_soon_threadsafe(self.task.cancel)
        self.thread.join(timeout=20)
        self.serving.__exit__(None, None, None)

    def request(self, method: str, path: str, body: str | None = None, **headers: str) -> Page:
        connection = http.client.HTTPConnection(self.address, timeout=20)
        try:
            connection.request(method, path, body, {name.replace("_", "-"): value for name, value in headers.items()})
            answer = connection.getresponse()
            return Page(answer.status, answer.read().decode(), answer.getheader("Location", ""))
        finally:
            connection.close()

    def look(self, path: str = "/") -> Page:
        return self.request("GET", path)

    def send(self, page: Page, **fields: str) -> Page:
        """Send a form of `page`, and go where the answer leads."""
        form = urlencode({"page": page.name, **fields})
        answer = self.request("POST", "/", form, Content_Type="application/x-www-form-urlencoded")
        return self.look(answer.where) if answer.status == 303 else answer

    def search(self, page: Page, words: str) -> Page:
        return self.send(page, before="search[", say=words, after="]")

    def click(self, *texts: str) -> Page:
        for text in texts:
            page = self.look()
            assert f"click[{text}]" in page.buttons, f"{text!r} cannot be clicked here"
            page = self.send(page, say=f"click[{text}]")
        return page


def offered(shop: WebShop) -> set[str]:
    return {f"click[{text}]" for text in shop.session.clickables()}


# --- A trial


def test_a_trial_in_the_browser_is_the_trial_of_an_agent_that_says_the_same(shirts):
    colour, size = shirts.goal.options.values()
    other = "blue" if colour == "red" else "red"
    with Visit(shirts, episodes=3) as visit:
        page = visit.look()
        assert shirts.goal.instruction in page.words
        assert page.text_of("left") == "12 turns left"
        assert page.text_of("agent") == f"Episode 1 of 3 begins.\n{shirts.render()}"
        page = visit.search(page, "cotton shirt")
        assert page.text_of("sent") == "search[cotton shirt]"
        assert page.text_of("agent") == f"{shirts.render()}\n(11 turns left)"
        assert "Brand1 Cotton Shirt $11.0" in page.words
        page = visit.click("b03", other, size, "features")
        assert "Comes folded Easy care" in page.words
        page = visit.click("< prev", "buy now")
        # Two attributes, one option of two, the price: 4 of 5.
        assert page.text_of("reward") == "0.8"
        assert "Episode 1: lost Reward 0.8 after 7 turns Bought b03" in page.words
        page = visit.send(page, say="plan: take the other <colour> & buy")
        assert page.text_of("left") == "12 turns left"
        assert "Episode 1: you did not win, reward 0.8. plan: take the other <colour> & buy" in page.words
        page = visit.search(page, "cotton shirt")
        assert "plan: take the other <colour> & buy" in page.words, "it can be read during the whole episode"
        page = visit.click("b03", colour, size, "buy now")
        assert "You won. Bought b03" in page.words
        assert "won 5 1" in page.words
    assert visit.trial is not None
    assert [(episode.stop.value, episode.reward) for episode in visit.trial.episodes] == [("lost", 0.8), ("won", 1.0)]

    replies = iter(
        [turn.reply.text for turn in visit.trial.episodes[0].turns]
        + [visit.trial.episodes[0].reflection.completion.text]
        + [turn.reply.text for turn in visit.trial.episodes[1].turns]
    )

    class Same:
        """Says the same; like a person, it counts no tokens."""

        name = "same"

        def start(self, task, seed):
            return self

        async def reply(self, messages, sampling):
            return Completion(next(replies))

        def close(self):
            pass

    assert run_trial_sync(registry.build(shirts.task), Same(), episodes=3) == visit.trial


def test_the_page_offers_exactly_what_can_be_clicked(shirts):
    rng = random.Random(4)
    with Visit(shirts, episodes=9, memory="none", stop="never") as visit:
        page, seen = visit.look(), set()
        for _ in range(60):
            if shirts.session.page == "done" or not page.root.findall(".//*[@id='left']"):
                page = visit.send(page, say="")  # on to the next episode
                continue
            assert set(page.buttons) == offered(shirts)
            seen.add(shirts.session.page)
            moves = page.buttons if rng.random() < 0.9 else []
            page = visit.send(page, say=rng.choice(moves)) if moves else visit.search(page, rng.choice(["red", "xx"]))
    assert seen == {"search", "results", "item", "description", "features", "reviews"}


def test_without_memory_nothing_is_asked_and_nothing_shown(shirts):
    with Visit(shirts, episodes=2, memory="none") as visit:
        visit.search(visit.look(), "cotton")
        page = visit.click("b04", "buy now")
        assert page.root.find(".//textarea") is None
        assert page.text_of("reward") == "0.4"
        page = visit.send(page, say="")
        assert page.text_of("agent") == shirts.render()
        assert "0.4" not in page.text_of("agent")
        assert page.root.find(".//details[@class='memory']") is None


def test_the_turns_run_out(tmp_path):
    where = shop_of(tmp_path, [item(1)], {"B01": NOTE})
    env = registry.make("webshop", 0, catalogue=where, goal=0, turns=2)
    with Visit(env, episodes=2, memory="both") as visit:
        page = visit.search(visit.look(), "cotton")
        assert page.text_of("left") == "1 turn left"
        page = visit.click("b01")
        assert "Episode 1: turn limit Reward 0 after 2 turns" in page.words
        page = visit.send(page, say="  \r\n ")
        assert "plan: none" in page.words


def test_a_reflection_is_no_longer_than_an_agents(shirts):
    with Visit(shirts, episodes=2, reflection_tokens=10) as visit:
        visit.search(visit.look(), "cotton")
        page = visit.click("b04", "buy now")
        assert page.root.find(".//textarea").get("maxlength") == "40"
        page = visit.send(page, say="0123456789" * 9)
        assert "0123456789" * 4 + " " in page.words


# --- What browsers and others do


def test_of_two_clicks_on_a_page_only_the_first_counts(shirts):
    with Visit(shirts, episodes=2, memory="none") as visit:
        visit.search(visit.look(), "cotton")
        page = visit.click("b04")
        first, second = (visit.send(page, say="click[buy now]") for _ in range(2))  # a double click, or two tabs
        assert first.text_of("reward") == second.text_of("reward") == "0.4"
        old = visit.send(page, say="")
        assert old.text_of("reward") == "0.4", "a click on an old page does not end the pause either"


def test_back_and_reload_show_where_the_trial_is(shirts):
    with Visit(shirts, episodes=1) as visit:
        visit.search(visit.look(), "cotton")
        visit.click("b04")
        assert visit.look().text == visit.look("/?back").text
        assert visit.look().text_of("left") == "10 turns left"
        for nonsense in ("x", "%D9%A3", "9" * 5_000, "-1", ""):
            sent = urlencode({"page": f"0.{nonsense}", "say": "click[buy now]"})
            assert visit.request("POST", "/", sent).where == "/"
        assert visit.look().text_of("left") == "10 turns left"


def test_a_world_that_takes_its_time(shirts, monkeypatch):
    monkeypatch.setattr("mulligan.app.web.server._PATIENCE", 0.05)
    may_go_on, step = threading.Event(), shirts.step
    monkeypatch.setattr(shirts, "step", lambda reply: may_go_on.wait(20) and step(reply))
    with Visit(shirts, episodes=1) as visit:
        page = visit.look()
        while "One moment" in page.words:  # the trial has not begun yet
            page = visit.look()
        assert "One moment" in visit.search(page, "cotton").words
        may_go_on.set()
        while "One moment" in (page := visit.look()).words:
            pass
        assert page.text_of("left") == "11 turns left"


def test_whom_the_page_is_not_for(shirts):
    with Visit(shirts, episodes=1) as visit:
        page = visit.look()
        form = urlencode({"page": page.name, "say": "search[cotton]"})
        port = visit.address.rpartition(":")[2]
        for host in ("shop.example", f"shop.example:{port}", "127.0.0.1.shop.example", "", "[::1]:80", "localhost.:1"):
            assert visit.request("GET", "/", Host=host).status == 403
            assert visit.request("POST", "/", form, Host=host).status == 403
        for origin in ("http://shop.example", "http://[", "null", "http://127.0.0.1:1", f"http://localhost:{port}"):
            assert visit.request("POST", "/", form, Origin=origin).status == 403
        for path in ("/buy", "//[", "/../etc/passwd", "/%2e%2e", "/index.html"):
            assert visit.look(path).status == visit.request("POST", path, form).status == 404
        assert visit.request("PUT", "/", form).status == 501
        assert visit.request("GET", "/", Host=f"localhost:{port}").status == 200
        other = urlencode({"page": page.name.replace(page.name[:4], "0000"), "say": "search[cotton]"})
        assert visit.request("POST", "/", other, Origin=f"http://{visit.address}").status == 303
        assert visit.look().text_of("left") == "12 turns left", "none of these was an answer"
        assert visit.request("POST", "/", form, Origin=f"http://{visit.address}").status == 303
        assert visit.look().text_of("left") == "11 turns left"


@pytest.mark.parametrize(
    "sent", [b"POST / HTTP/1.1\r\nHost: localhost\r\n\r\n", b"\r\n\r\n", b"\x16\x03\x01\x02", b"GET"]
)
def test_what_is_no_request_harms_nobody(shirts, sent):
    with Visit(shirts, episodes=1) as visit:
        host, _, port = visit.address.partition(":")
        with socket.create_connection((host, int(port)), timeout=10) as connection:
            connection.sendall(sent)
            connection.shutdown(socket.SHUT_WR)
            answered = connection.recv(100)
        assert b"200" not in answered
        assert visit.look().text_of("left") == "12 turns left"


def test_queries_that_are_too_long(shirts):
    with Visit(shirts, episodes=1) as visit:
        page = visit.search(visit.look(), "red " * 20_000)
        assert "79999" in page.words
        page = visit.search(page, "漢" * 100_000)
        assert page.root.find(".//*[@class='notice']") is not None
        assert page.text_of("left") == "10 turns left", "an agent would have lost these turns too"
        assert len(page.text_of("sent")) < 500
        assert visit.look("/?" + "x" * 100_000).status == 414
        assert visit.look().text_of("left") == "10 turns left"


MARKUP = "<script>alert(1)</script>'\"&amp;<b "


def test_products_and_queries_are_text_and_no_markup(tmp_path):
    entry = item(
        1,
        name=f"{MARKUP}Shirt",
        full_description=MARKUP,
        small_description=[MARKUP],
        customization_options={"<i>size": [{"value": '"&amp;40'}, {"value": "42"}]},
    )
    where = shop_of(tmp_path, [entry], {"B01": {**NOTE, "instruction": f"Find me {MARKUP}shirts"}})
    env = registry.make("webshop", 0, catalogue=where, goal=0)
    with Visit(env, episodes=1) as visit:
        pages = [visit.look(), visit.search(visit.look(), "shirt\x00\x1b[1m")]
        pages += [visit.click(text) for text in ("b01", '"&amp;40', "description", "< prev", "features")]
        pages += [visit.search(visit.look(), MARKUP)]
    for page in pages:  # each was read as XML, where markup would have become elements
        assert not {"script", "b", "u", "i"} & {
            element.tag for element in page.root.iter() if element.get("class") not in ("brand", "price")
        }
    assert "<script>alert(1)</script>'\"&amp;<b" in pages[0].words
    assert pages[-1].text_of("sent") == f"search[{MARKUP}]"


def test_other_environments_have_their_text_and_an_action_box():
    env = registry.make("bandit", 1)
    paying = env.paying
    wrong = 1 if paying != 1 else 2
    with Visit(env, episodes=2) as visit:
        page = visit.look()
        assert env.rules().partition("\n")[0] in page.words
        assert str(paying) in page.buttons
        page = visit.send(page, say=str(wrong))
        page = visit.send(page, say="not that one")
        assert "not that one" in page.words
        assert "You won." in visit.send(page, say=f"<action>{paying}</action>").words


def test_the_compact_view_is_shown_as_the_words_it_is():
    env = registry.make("webshop", 0, products=50, view="compact")
    with Visit(env, episodes=1) as visit:
        page = visit.look()
        assert page.root.find(".//pre[@class='world']").text == env.render()
        page = visit.send(page, say=page.buttons[0])
        assert page.root.find(".//pre[@class='world']").text == env.render()
        assert page.buttons == [reply.removeprefix("<action>").removesuffix("</action>") for reply in env.legal()]


# --- The command


def command(*words: str) -> subprocess.Popen[str]:
    return subprocess.Popen(
        [sys.executable, "-m", "mulligan", "play", "bandit", "--web", "--no-browser", *words],
        stdout=subprocess.PIPE,
        stderr=subprocess.PIPE,
        text=True,
        # A shell that runs the tests in the background has them ignore Ctrl-C, and a child inherits that.
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # noqa: PLW1509
    )


def look(address: str) -> Page:
    """The page, which comes when the trial has begun."""
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request("GET", "/")
    return Page(200, connection.getresponse().read().decode())


def post(address: str, **fields: str) -> str:
    """Look at the page and send it one answer; returns the page that was looked at."""
    page = look(address)
    connection = http.client.HTTPConnection(address, timeout=20)
    connection.request("POST", "/", urlencode({"page": page.name, **fields}))
    connection.getresponse().read()
    return page.words


@pytest.mark.parametrize("at_the_end", [False, pytest.param(True, marks=pytest.mark.slow)])
def test_ctrl_c_ends_it(at_the_end):
    process = command("--episodes", "1")
    address = re.search(r"http://(\S+)/", process.stdout.readline())[1]
    if at_the_end:
        post(address, say="1")
        while "The page stays" not in process.stdout.readline():
            pass
    else:
        look(address)  # as asyncio begins, Ctrl-C may leave a line on stderr
    process.send_signal(signal.SIGINT)
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == ((0, "") if at_the_end else (130, ""))
    assert at_the_end or out.endswith("Good bye.\n")


def test_the_last_button_ends_it():
    process = command("--episodes", "1", "--env.turns", "1")
    address = re.search(r"http://(\S+)/", process.stdout.readline())[1]
    post(address, say="1")
    assert "Finish" in post(address, leave="yes")
    out, errors = process.communicate(timeout=30)
    assert (process.returncode, errors) == (0, "")
    assert "Episode 1:" in out


@pytest.mark.parametrize(
    ("words", "names"),
    [
        (["--web", "--policy", "expert"], "--web"),
        (["--port", "80"], "--web"),
        (["--no-browser"], "--web"),
        (["--web", "--port", "99999"], "99999"),
        (["--web", "--port", "taken"], "--port"),
    ],
)
def test_impossible_options_are_refused_in_one_line(capsys, words, names):
    with socket.create_server(("127.0.0.1", 0)) as taken:
        port = str(taken.getsockname()[1])
        with pytest.raises(SystemExit) as ended:
            main(["play", "bandit", *(port if word == "taken" else word for word in words)])
    assert ended.value.code == 2
    error = capsys.readouterr().err
    assert names in error
    assert error.count("\n") == 1


def test_a_board_is_not_broken_and_moves_without_a_button_are_counted():
    """Minesweeper 9x9: 81 moves, 60 buttons."""
    with Visit(registry.make("minesweeper", rows=9, cols=9), episodes=1) as visit:
        page = visit.look()
        assert page.root.find(".//pre[@class='world board']") is not None
        assert len(page.buttons) == 60
        assert "and 21 more: type them above" in page.words


def test_what_comes_next_can_be_typed_at_once():
    """Every answer is a new page, on which nothing would have the focus."""

    def focused(page: Page) -> list[str]:
        return [each.get("name") for each in page.root.iter() if each.get("autofocus")]

    with Visit(registry.make("minesweeper", turns=1), episodes=2, memory="reflection") as visit:
        page = visit.look()
        assert focused(page) == ["say"]
        assert page.root.find(".//input[@autofocus]").get("type") == "text"
        page = visit.send(page, say="(1, 1)")
        assert focused(page) == ["say"]
        assert page.root.find(".//textarea[@autofocus]") is not None
