"""What a person does on the page, in a real browser; hostile logs do nothing there."""

import asyncio
import json
import re
import threading
from concurrent.futures import ThreadPoolExecutor
from types import SimpleNamespace
from unittest.mock import AsyncMock

import pytest
from jinja2 import DictLoader, Environment

from rerail.assistant.web import incidents_page
from rerail.assistant.web.application import Pages
from rerail.assistant.web.reading import Filters
from rerail.errors import StoreError
from tests.assistant.test_profiles_beside import slow_log, traces
from tests.assistant.web.conftest import many_ranks, until


@pytest.fixture
def shown(tab):
    """Open a page and wait until its own script has run."""

    def go(path):
        tab.goto(path, wait_until="load")
        return tab

    return go


def test_the_list_leads_to_the_sentence_the_evidence_and_the_line(shown, served):
    tab = shown("/")
    tab.keyboard.press("/")
    assert tab.evaluate("document.activeElement.id") == "search"
    tab.locator("h1").click()
    while served.hang not in (tab.evaluate("document.activeElement.getAttribute('href')") or ""):
        tab.keyboard.press("j")
    tab.keyboard.press("Enter")
    tab.wait_for_url(f"**/incidents/{served.hang}")
    assert tab.locator("h1").inner_text().startswith("Rank 2 did not come to a collective")
    assert tab.locator("#E1").inner_text().count("first sign, told by another rank") == 1
    tab.locator("#E1 a.row").click()
    tab.wait_for_url("**/log?**")
    marked = tab.locator("tr.marked")
    assert "Timed out waiting" in marked.inner_text() and marked.is_visible()
    tab.keyboard.press("?")
    assert tab.locator("#keys").is_visible()


def test_what_profiles_say_is_a_table_beside_the_verdict(shown, served):
    folder = served.logs / "slow"
    (folder / "prof").mkdir(parents=True)
    (folder / "train.log").write_text(slow_log())
    for name, text in traces(4, name="<b>gemm</b>").items():
        (folder / name).write_text(text)
    incident = json.loads(served.rerail("diagnose", "--json", "slow"))["incident"]
    tab = shown(f"/incidents/{incident}")
    assert "rank 4: all compute kernels" in tab.locator("#profiles + p").inner_text()
    row = tab.locator("[aria-label='Functions that differ'] tbody tr")
    assert row.count() == 1
    assert row.locator("td").nth(1).inner_text() == "4"
    assert "a step" in row.locator("td").nth(3).inner_text()


def test_curves_share_one_cursor_and_ranks_have_a_table(shown, served):
    tab = shown(f"/incidents/{served.hang}")
    tab.wait_for_selector(".live-chart .u-over")
    charts = tab.locator(".live-chart")
    assert charts.count() >= 2
    charts.nth(0).locator(".u-over").hover(position={"x": 200, "y": 60})
    until(
        tab,
        "[...document.querySelectorAll('.u-cursor-x')].filter(x => !x.classList.contains('u-off')"
        " && x.style.transform).length >= 2",
    )
    assert tab.locator("#ranks tbody tr").first.inner_text().startswith("2\t")


def test_one_cursor_goes_over_curves_axis_timeline_and_log(shown, served):
    tab = shown(f"/incidents/{served.hang}")
    tab.wait_for_selector(".live-chart .u-over")
    titles = tab.locator(".live-chart .u-title").all_inner_texts()
    assert {"step time, s", "loss", "throughput, steps per second"} <= set(titles)
    curve = tab.locator(".live-chart .u-over").first
    curve.hover(position={"x": curve.bounding_box()["width"] - 3, "y": 60})
    until(tab, "+document.querySelector('#axis-cursor').getAttribute('x1') > 0")
    # The last step was logged at 01:51:59: the entry and the cited line of that second are marked.
    assert tab.locator("#moment").inner_text().startswith("01:51:59")
    assert "step 20" in tab.locator(".timeline .now").inner_text()
    assert "step 20" in tab.locator(".evidence .now").inner_text()
    tab.locator("#axis").scroll_into_view_if_needed()
    tab.locator("#axis .mark").first.hover()
    until(
        tab,
        "[...document.querySelectorAll('.live-chart .u-cursor-x')].every(x => !x.style.transform.includes('-10px'))",
    )
    tab.locator("#moment a").click()
    tab.wait_for_url("**/log?**at=01:51:59")
    assert "01:51:59" in tab.locator(".log tr").first.inner_text()


def test_the_timeline_is_one_axis_with_a_lane_for_each_source_and_leads_to_its_entry(shown, served):
    tab = shown(f"/incidents/{served.planned}")
    lanes = tab.locator("#axis > text:not(.wait)").all_text_contents()
    assert {"scheduler", "rules", "recovery"} <= set(lanes)
    counted = [int(n) for n in tab.locator("#axis .n").all_text_contents()]
    single = tab.locator("#axis .mark").count() - len(counted)
    assert sum(counted) + single == tab.locator(".timeline li").count()
    tab.locator("#axis .mark").last.click()
    assert tab.evaluate("document.querySelector('li:target') !== null")


def test_the_chat_streams_in_a_drawer_of_the_incident(shown, served):
    tab = shown(f"/incidents/{served.many}")
    until(tab, "window.htmx !== undefined")
    tab.get_by_role("link", name="Ask", exact=True).click()
    assert tab.evaluate("document.activeElement.id") == "question"
    tab.keyboard.type("which ranks?")
    tab.keyboard.press("Enter")
    tab.locator("#talk .say.assistant").first.wait_for()
    assert tab.url.endswith(f"/incidents/{served.many}#drawer")
    assert tab.get_by_role("log").count() == 1


def test_a_suggested_question_is_asked_and_its_citation_leads_to_the_evidence(shown, served):
    tab = shown(f"/incidents/{served.hang}/chat")
    until(tab, "window.htmx !== undefined")
    before = tab.locator("#talk .say").count()
    tab.get_by_role("button", name="why?").click()
    tab.locator("#talk .say").nth(before + 2).wait_for()
    assert tab.url.endswith("/chat")
    tab.locator("#talk a", has_text="E1").last.click()
    tab.wait_for_url(f"**/incidents/{served.hang}#E1")


def test_a_search_in_the_log_goes_from_hit_to_hit_and_tells_of_the_end(shown, served):
    tab = shown(f"/incidents/{served.hang}/log?file=torchrun.log&find=Traceback")
    lines = []
    while tab.locator("tr.marked").count():
        assert "traceback" in tab.locator("tr.marked").inner_text().lower()
        lines.append(int(tab.locator("tr.marked .n").inner_text()))
        with tab.expect_navigation():
            tab.get_by_role("link", name="Find further").click()
    assert lines == sorted(set(lines)) and len(lines) > 3
    assert "nothing further" in tab.locator("[role=status]").inner_text()
    # A log that is shown whole has errors too.
    tab.goto(f"/incidents/{served.hang}/log?file=torchrun.log&offset=0")
    tab.get_by_role("link", name="Next error").click()
    assert "Traceback" in tab.locator("tr.marked").inner_text()
    assert tab.locator("#search").input_value() == ""


def test_a_moment_without_a_line_leads_to_the_next_one_and_says_so(served):
    with served.client() as client:
        path = f"/incidents/{served.hang}/log?file=torchrun.log&at="
        later = client.get(path + "01:51:57").text
        assert "the first one of that hour behind it" in later
        assert "01:51:59,531" in later.split("<tbody>")[1].split("</tr>")[0]
        assert "no line at 23:00:00 in this file" in client.get(path + "23:00:00").text


def test_hostile_lines_load_run_and_forge_nothing(shown, served):
    requests = []
    tab = shown(f"/incidents/{served.hostile}")
    tab.on("request", lambda r: requests.append(r.url))
    for path in ("", "/log", "/chat", "/postmortem"):
        tab.goto(f"/incidents/{served.hostile}{path}", wait_until="networkidle")
        assert "owned" not in tab.title()
        assert tab.locator("script:not([nonce])").count() == 0
        assert tab.locator("img, b[hx-get], div[hx-get]").count() == 0
    assert not [url for url in requests if "steal" in url or "evil" in url]
    assert "<script>document.title" in tab.goto(f"/incidents/{served.hostile}/log") .text().replace("&lt;", "<").replace("&gt;", ">")  # fmt: skip


def test_a_carriage_return_in_an_answer_stays_inside_its_event(served):
    with served.client() as client:
        token = served.token(client)
        path = f"/incidents/{served.hostile}/chat/stream"
        asked = {"token": token, "question": "/grep progress"}
        with client.stream("POST", path, data=asked) as answer:
            text = answer.read().decode()
    events = [event for event in text.split("\n\n") if event.strip()]
    assert all(row.startswith(("data: ", ":")) for event in events for row in event.split("\n"))
    assert "\r" not in text and not re.search(r"^data: forged", text, re.MULTILINE)
    assert "forged" in text


def test_the_chat_answers_from_the_record_and_is_kept(shown, served):
    tab = shown(f"/incidents/{served.hang}/chat")
    until(tab, "window.htmx !== undefined")
    assert tab.get_by_role("log").count() == 1
    tab.fill("#question", "why?")
    tab.keyboard.press("Enter")
    tab.locator("#talk .say.assistant").first.wait_for()
    until(tab, "document.querySelectorAll('#talk .say.assistant').length >= 3")
    assert "printed no time-out" in tab.locator("#talk").inner_text()
    assert tab.url.endswith("/chat")  # streamed into the page, which stayed
    tab.reload()
    assert "printed no time-out" in tab.locator("#talk").inner_text()


def test_a_word_on_the_verdict_becomes_the_confirmation(shown, served):
    tab = shown(f"/incidents/{served.many}")
    tab.check("input[name=verdict][value=wrong]")
    tab.click("#feedback summary")
    tab.select_option("select[name=failure_type]", "host_hang")
    tab.click("#feedback button")
    tab.wait_for_url("**said=**")
    assert "noted, the verdict is wrong" in tab.locator("#said").inner_text()
    assert served.rerail("show", served.many).count("CONFIRMED") == 1


def test_a_plan_is_approved_in_a_dialog_that_starts_on_cancel(shown, served):
    tab = shown(f"/incidents/{served.planned}#plan")
    tab.locator(".open-approve").first.click()
    dialog = tab.locator("dialog.approve[open]")
    assert tab.evaluate("document.activeElement.textContent") == "Cancel"
    wanted = dialog.locator("label code").inner_text()
    dialog.locator("input[name=typed]").fill("something else")
    dialog.get_by_role("button", name="Approve").click()
    tab.wait_for_url("**said=**")
    assert "left undone" in tab.locator("#said").inner_text()
    step = json.loads(served.rerail("plan", served.plan, "--json"))["states"][0]
    assert step["state"] == "proposed"
    # Two people at once: one approval, and one who is told that it was decided.
    told, form = [], {"typed": wanted}

    def approve() -> None:
        with served.client() as client:
            token = served.token(client)
            answer = client.post(
                f"/plans/{served.plan}/1/approve", data={**form, "token": token}, follow_redirects=True
            )  # fmt: skip
            told.append(re.search(r'id="said"[^>]*>([^<]*)', answer.text)[1])

    people = [threading.Thread(target=approve) for _ in range(2)]
    for one in people:
        one.start()
    for one in people:
        one.join()
    assert sorted("already" in text for text in told) == [False, True], told
    states = json.loads(served.rerail("plan", served.plan, "--json"))["states"]
    assert states[0]["state"] == "approved"
    assert "approved" in served.rerail("audit", "show")


def test_answers_are_packed_for_requests_of_its_own_pages_alone(served):
    asked = f"/incidents/{served.hang}"
    with served.client() as client:
        own = client.get(asked, headers={"sec-fetch-site": "same-origin"})
        assert own.headers["content-encoding"] == "gzip" and "Rank 2 did not come" in own.text
        for headers in ({"sec-fetch-site": "cross-site"}, {}):
            assert "content-encoding" not in client.get(asked, headers=headers).headers
        assert client.get("/own/rerail.css").headers["content-encoding"] == "gzip"


def test_a_page_with_all_that_it_needs_is_below_100_kb(shown, served):
    tab = shown(f"/incidents/{served.hang}")
    tab.wait_for_selector(".live-chart .u-over")
    took = tab.evaluate(
        "[...performance.getEntriesByType('navigation'), ...performance.getEntriesByType('resource')]"
        ".map(one => one.encodedBodySize)"
    )
    assert 0 < sum(took) < 100_000


def test_a_plan_is_told_once_and_its_incident_has_a_postmortem(served):
    with served.client() as client:
        page = client.get(f"/incidents/{served.planned}").text.split('class="timeline"')[1]
        assert page.split('id="plan"')[0].count(f"{served.plan} by rule") == 1
        assert f"</span> {served.plan}: 1 " not in page
        text = client.get(f"/incidents/{served.planned}/postmortem.md").text
        assert f"{served.plan} " in text and "audit entries" in text
        alone = client.get(f"/incidents/{served.hang}/postmortem.md").text
        charts = [line for line in alone.splitlines() if line.startswith("![")]
        assert charts and all("](data:image/svg+xml;base64," in line for line in charts)


def test_the_postmortem_keeps_what_was_written(shown, served):
    tab = shown(f"/incidents/{served.hang}/postmortem")
    text = tab.locator("#text").input_value()
    assert "Rank 2 did not come to a collective" in text
    tab.fill("#text", text.replace("## Follow-ups", "## Follow-ups\n\n- ask the storage team", 1))
    tab.get_by_role("button", name="Save").click()
    tab.wait_for_url("**said=saved")
    assert "- ask the storage team" in tab.locator("#text").input_value()
    with served.client() as client:
        page = client.get(f"/incidents/{served.hang}/postmortem.html")
        assert "ask the storage team" in page.text and "<script" not in page.text


def test_files_and_folders_are_diagnosed_and_nothing_outside_is_read(shown, served):
    tab = shown("/diagnose")
    tab.fill("input[name=path]", "/etc")
    tab.get_by_role("button", name="Diagnose").first.click()
    assert "is not in a folder that this server reads" in tab.locator("main").inner_text()
    (served.logs / "link").symlink_to("/etc")
    tab.goto("/diagnose")
    tab.fill("input[name=path]", "link/passwd")
    tab.get_by_role("button", name="Diagnose").first.click()
    assert "is not in a folder" in tab.locator("main").inner_text()
    tab.goto("/diagnose")
    files = [{"name": "train.log", "mimeType": "text/plain",
              "buffer": b"[rank3] torch.OutOfMemoryError: CUDA out of memory. Tried to allocate 2.00 GiB.\n"}]  # fmt: skip
    tab.set_input_files("input[type=file]", files)
    tab.get_by_role("button", name="Diagnose").nth(1).click()
    tab.wait_for_url("**/incidents/INC-*", timeout=60_000)
    assert "Rank 3 ran out of GPU memory" in tab.locator("h1").inner_text()


def test_a_link_inside_of_a_folder_leads_nowhere_else(served):
    folder, outside = served.logs / "linked", served.logs.parent / "outside.log"
    folder.mkdir()
    outside.write_text("[rank1] ValueError: only for others\n")
    (folder / "train.log").write_text("[rank0] step 1 loss 2.0\n[rank0] KeyError: 'mine'\n")
    (folder / "other.log").symlink_to(outside)
    with served.client() as client:
        form = {"token": served.token(client), "path": "linked"}
        page = client.post("/diagnose", data=form, follow_redirects=True)
        with client.stream("GET", f"{page.url.path}/live") as live:
            events = live.read().decode()
        name = events.rsplit("data: ", 1)[1].strip()
        found = client.get(f"/api/incidents/{name}").json()
    assert "KeyError" in found["summary"] and "only for others" not in json.dumps(found)
    assert any("is not in a folder" in one["what"] + one["how_to_get"] for one in found["missing"])


@pytest.mark.parametrize(
    "name", ["a" * 400 + ".log", "\N{PILE OF POO}" * 200, "..", "../../x.log", ".hidden"]
)
def test_any_name_of_a_dropped_file_is_taken_and_stays_in_its_folder(served, name):
    log = b"[rank3] KeyError: 'dropped'\n"
    with served.client() as client:
        files = [("files", (name, log)), ("files", (name, log + b"again\n"))]
        form = {"token": served.token(client)}
        run = client.post("/diagnose/files", data=form, files=files)
        assert run.status_code == 303
        with client.stream("GET", f"{run.headers['location']}/live") as live:
            incident = live.read().decode().rsplit("data: ", 1)[1].strip()
        assert "KeyError" in client.get(f"/api/incidents/{incident}").json()["summary"]
    assert not (served.logs.parent / "x.log").exists()


def test_a_diagnosis_that_nobody_knows_is_told_before_the_stream_begins(served):
    with served.client() as client:
        assert client.get("/diagnose/unknown/live").status_code == 404


@pytest.mark.parametrize("query", [
    "offset=99999999999999999999999999", "line=99999999999999999999", "find=(x*)*(x*)*(x*)*(x*)*(x*)*(x*)*y",
    "find=(((((", "find=.{0,60000}.{0,60000}x", "find=%00", "at=)(*", "file=../../../etc/passwd", "file=%00",
])  # fmt: skip
def test_no_deep_link_breaks_the_log_or_leaves_its_files(served, query):
    with served.client() as client:
        answer = client.get(f"/incidents/{served.hang}/log?{query}")
        assert answer.status_code == 200 and "root:x:" not in answer.text


def test_a_job_is_named_in_the_place_of_a_path_and_its_evidence_found(shown, served):
    tab = shown("/diagnose")
    tab.fill("input[name=path]", "4711")
    tab.get_by_role("button", name="Diagnose").first.click()
    tab.wait_for_url("**/incidents/INC-*", timeout=60_000)
    assert "Rank 1" in tab.locator("h1").inner_text()
    assert "job 4711" in tab.locator(".crumbs").inner_text()
    assert "/job/slurm-4711.out" in tab.locator("#E1").inner_text()
    for name, told in (("4712", "4712"), ("k8s://ml", "k8s://namespace/job")):
        tab.goto("/diagnose")
        tab.fill("input[name=path]", name)
        tab.get_by_role("button", name="Diagnose").first.click()
        tab.locator("[role=alert]").wait_for(timeout=60_000)
        assert told in tab.locator("[role=alert]").inner_text()


def test_the_fleet_page_shows_the_numbers_of_the_report_as_bars_and_as_a_table(shown, served):
    tab = shown("/")
    tab.get_by_role("link", name="Fleet").click()
    tab.wait_for_url("**/fleet")
    tab = shown("/fleet?since=3650d")
    tab.wait_for_selector("#fleet-chart canvas")
    body = json.loads(served.rerail("report", "--since", "3650d", "--json"))
    rows = tab.locator("table.counts tbody tr").all_inner_texts()
    assert [row.split("\t")[:2] for row in rows] == [
        [one["begins"], str(one["incidents"])] for one in reversed(body["periods"])
    ]
    assert sum(int(row.split("\t")[1]) for row in rows) == body["incidents"] >= 4
    with served.client() as client:
        answer = client.get("/api/fleet", params={"since": "3650d"}).json()
        assert {**answer, "since": 0, "until": 0} == {**body, "since": 0, "until": 0}
        assert client.get("/fleet", params={"since": "soon"}).status_code == 400


def test_without_javascript_everything_still_works(chromium, served):
    context = chromium.new_context(base_url=served.url, java_script_enabled=False)
    tab = context.new_page()
    tab.goto("/?q=collective")
    tab.locator("a.row").first.click()
    assert tab.locator("#curves svg").count() >= 2 and tab.locator("#evidence li").count() >= 2
    tab.goto(f"/incidents/{served.hang}/chat")
    tab.fill("#question", "which ranks?")
    tab.get_by_role("button", name="Ask").click()
    assert "Held responsible: rank 2" in tab.locator("#talk").inner_text()
    tab.get_by_role("link", name="Fleet").click()
    tab.fill("input[name=since]", "3650d")
    tab.get_by_role("button", name="Show").click()
    assert "NCCL / collective communication" in tab.locator("section", has_text="By category").last.inner_text()  # fmt: skip
    tab.goto("/diagnose")
    tab.fill("input[name=path]", "hang")
    tab.get_by_role("button", name="Diagnose").first.click()
    tab.wait_for_url("**/incidents/INC-*", timeout=60_000)  # the page asks again by itself
    context.close()


def test_thousands_of_ranks_are_drawn_within_a_frame(shown, served):
    tab = shown(f"/incidents/{served.many}")
    tab.wait_for_selector("#grid[data-ms]")
    assert tab.locator("#ranks h2").inner_text().endswith("5000")
    assert tab.locator("#ranks tbody tr").count() == 50
    assert tab.locator("#ranks tbody tr").first.inner_text().startswith("437\t")
    tab.locator("#grid").hover(position={"x": 2, "y": 2})
    assert tab.locator("#grid-at").inner_text().startswith("rank 0")


def test_a_new_incident_comes_into_the_open_list(shown, served):
    tab = shown("/")
    before = set(tab.locator("#rows td.id").all_inner_texts())
    (served.logs / "late.log").write_text(many_ranks(8).replace("02:", "05:"))
    name = json.loads(served.rerail("diagnose", "--json", "late.log"))["incident"]
    tab.locator(f'#rows a[href="/incidents/{name}"]').wait_for(timeout=120_000)
    assert set(tab.locator("#rows td.id").all_inner_texts()) >= before | {name}


def test_the_open_list_is_live_though_a_script_comes_late(tab):
    held = []
    tab.route("**/files/hx-sse*", lambda route: held.append(route))
    tab.goto("/", wait_until="commit")
    until(tab, "window.htmx !== undefined")
    # What htmx does as soon as it can, it has done when this timer of the page has run.
    tab.evaluate("new Promise(done => setTimeout(done, 100))")
    while not held:
        tab.wait_for_timeout(50)
    with tab.expect_request("**/live?*"):
        held[0].continue_()


def test_a_list_whose_first_connection_fails_tries_again(tab):
    asked = []

    def fail_once(route):
        asked.append(route.request.url)
        route.fulfill(status=400) if len(asked) == 1 else route.continue_()

    tab.route("**/live?*", fail_once)
    tab.goto("/", wait_until="load")
    with tab.expect_response(lambda answer: "/live?" in answer.url and answer.ok, timeout=60_000):
        pass


def test_a_store_that_is_busy_does_not_end_the_open_list(monkeypatch):
    answers = [StoreError("the store is locked"), ()]

    def listed(_):
        answer = answers.pop(0)
        if isinstance(answer, Exception):
            raise answer
        return answer

    monkeypatch.setattr(incidents_page, "listed", listed)
    monkeypatch.setattr(incidents_page, "_LOOK_S", 0)
    pages = Pages(Environment(loader=DictLoader({"rows.html": "none"}), autoescape=True))
    live = next(r.endpoint for r in incidents_page.routes(pages).routes if r.path == "/live")
    request = SimpleNamespace(is_disconnected=AsyncMock(return_value=False))

    async def first():
        return await anext(live(request, Filters(), seen="other"))

    with ThreadPoolExecutor(1) as thread:  # the browser's driver has a loop of its own in this one
        assert thread.submit(asyncio.run, first()).result().raw_data == "none"
    assert not answers
