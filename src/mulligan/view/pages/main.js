"use strict";
/* Which page an address leads to; and looking again, while a run is going on. */
(() => {
  const { el, address, load, pages, isStill } = mulligan;
  const LOOK_AGAIN = 2500, READING = 1000;
  const main = document.getElementById("page"), trail = document.getElementById("trail"), live = document.getElementById("live");
  let shown = null, keys = null, timer = 0, visit = 0;

  function read() {
    const [path, query] = (location.hash || document.documentElement.dataset.home || "").replace(/^#\/?/, "").split("?");
    return [path || "runs", Object.fromEntries(new URLSearchParams(query || ""))];
  }

  function failed(error) {
    main.replaceChildren(el("h1", {}, "This cannot be shown"), el("p", { class: "notice", role: "alert" }, error.message || String(error)),
      el("p", {}, el("a", { href: "#/" }, "To the runs")));
    return { title: "This cannot be shown", trail: [], runs: [] };
  }

  /** The runs that an address names, and their version before the page is read: a change while it is read is seen later. */
  async function versionOf(params) {
    const runs = params.runs || [params.run, params.run2].filter(Boolean).join("\n");
    return isStill || !runs ? [] : [runs, await load("version", { runs }).then(JSON.stringify).catch(() => null)];
  }

  async function show(isAgain = false) {
    const mine = ++visit;
    const [name, params] = read();
    const place = el("div", {});
    let about, runs, version;
    try {
      [runs, version] = await versionOf(params);
      about = await (pages[name] || (() => { throw new Error(`There is no page ${name}.`); }))(params, place);
      if (mine !== visit) return;
      const isTypingNow = isAgain && main.contains(document.activeElement) && ["INPUT", "SELECT"].includes(document.activeElement.tagName);
      if (!isTypingNow) main.replaceChildren(...place.childNodes);
      if (params.over) document.getElementById("over")?.focus();
    } catch (error) {
      if (mine !== visit) return;
      about = failed(error);
    }
    document.title = `${about.title} · Mulligan`;
    keys = about.keys || null;
    trail.replaceChildren(...[["runs", "#/"], ...about.trail].map(([text, href]) => el("a", { href }, text)));
    if (!isAgain && shown !== null && shown !== name) { window.scrollTo(0, 0); main.focus({ preventScroll: true }); }
    shown = name;
    const followed = (about.runs || []).join("\n"), known = about.isList ? JSON.stringify(about.seen) : followed === runs ? version : null;
    watch(about.follow ? about.follow : about.isList ? ["runs", {}] : followed ? ["version", { runs: followed }] : null, about.follow ? null : known);
    if (about.isReading && !isStill) timer = setTimeout(() => show(true), READING);
  }

  /** Show the page again when the answer to a question has changed. */
  async function watch(question, known) {
    clearTimeout(timer);
    live.replaceChildren();
    if (isStill || !question) return;
    const mine = visit;
    let before = known ?? null;
    const look = async () => {
      try {
        const answer = JSON.stringify(await load(...question));
        if (mine !== visit) return;
        if (before !== null && answer !== before) { show(true); return; }
        before = answer;
        live.replaceChildren(el("span", { class: "pulse", title: "This page follows the run." }, "live"));
      } catch { live.replaceChildren(el("span", { class: "bad" }, "the server has ended")); }
      timer = setTimeout(look, LOOK_AGAIN);
    };
    look();
  }

  window.addEventListener("hashchange", () => show());
  document.addEventListener("keydown", (event) => keys && keys(event));
  show();
})();
