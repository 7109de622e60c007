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

  async function show(isAgain = false) {
    const mine = ++visit;
    const [name, params] = read();
    const place = el("div", {});
    let about;
    try {
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
    watch(about.follow ? about.follow : about.isList ? ["runs", {}] : about.runs.length ? ["version", { runs: about.runs.join("\n") }] : null);
    if (about.isReading && !isStill) timer = setTimeout(() => show(true), READING);
  }

  /** Show the page again when the answer to a question has changed. */
  async function watch(question) {
    clearTimeout(timer);
    live.replaceChildren();
    if (isStill || !question) return;
    const mine = visit;
    let before = null;
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
