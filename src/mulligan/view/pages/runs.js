"use strict";
/* The list of runs: what, when, status, headline figure; filtered, sorted, and chosen for a comparison. */
(() => {
  const { el, address, ago, bars, load, change, pages, isReport, isStill } = mulligan;
  const chosen = new Set();
  const open = new Set();
  let wanted = { text: "", kind: "", tag: "", sort: "began", isDown: true };
  const KINDS = { train: "training", eval: "evaluation", sweep: "sweep", population: "population", demo: "demonstration", unreadable: "cannot be read" };
  const COLUMNS = [["name", "run"], ["kind", "kind"], ["what", "what"], ["tags", "tags"], ["began", "when"], ["status", "status"], ["figure", "solved"]];

  const valueOf = (run, column) => (column === "figure" ? run.figures.at(-1) ?? -Infinity : column === "tags" ? run.tags.join(",") : run[column]);

  function sorted(runs) {
    const words = wanted.text.toLowerCase().split(/\s+/).filter(Boolean);
    const kept = runs.filter((run) => (!wanted.kind || run.kind === wanted.kind) && (!wanted.tag || run.tags.includes(wanted.tag))
      && words.every((word) => `${run.name} ${run.title} ${run.env} ${run.what} ${run.status} ${run.tags.join(" ")}`.toLowerCase().includes(word)));
    const sign = wanted.isDown ? -1 : 1;
    return kept.sort((one, other) => {
      const [first, second] = [valueOf(one, wanted.sort), valueOf(other, wanted.sort)];
      return sign * (first > second ? 1 : first < second ? -1 : 0);
    });
  }

  /** The run that each one lies in: the nearest folder above it that is a run, too. */
  function around(runs) {
    const ids = new Set(runs.map((run) => run.id));
    const above = (id) => {
      if (id === ".") return null;
      const parts = id.split("/").slice(0, -1);
      for (; parts.length; parts.pop()) if (ids.has(parts.join("/"))) return parts.join("/");
      return ids.has(".") ? "." : null;
    };
    return new Map(runs.map((run) => [run.id, above(run.id)]));
  }

  /** Runs as a tree, as far as it is opened: [run, depth, how many lie in it]; all that fit where one looks for something. */
  function asTree(runs, isFlat) {
    if (isFlat) return runs.map((run) => [run, 0, 0]);
    const parents = around(runs), below = (id) => runs.filter((run) => parents.get(run.id) === id);
    const count = (id) => below(id).reduce((sum, run) => sum + 1 + count(run.id), 0);
    const lines = (id, depth) => below(id).flatMap((run) => [[run, depth, count(run.id)], ...(open.has(run.id) ? lines(run.id, depth + 1) : [])]);
    return lines(null, 0);
  }

  /** Tags as chips. */
  mulligan.chips = (tags) => tags.map((tag) => el("span", { class: "badge tag" }, tag));

  const inside = (count) => `${count} run${count === 1 ? "" : "s"} inside`;

  function row([run, depth, within], hasTags, changed, again) {
    const pick = el("input", { type: "checkbox", "aria-label": `Choose ${run.name}`, checked: chosen.has(run.id),
      change: (event) => { (event.target.checked ? chosen.add(run.id) : chosen.delete(run.id)); changed(); } });
    const share = run.done && run.done[1] ? Math.min(1, run.done[0] / run.done[1]) : null;
    return el("tr", { class: run.status === "running" ? "running" : "" },
      el("td", { class: "pick" }, pick),
      el("th", { scope: "row", class: `deep${Math.min(3, depth)}` }, el("a", { href: address("run", { run: run.id }) }, run.title),
        run.title === run.name ? null : el("small", {}, run.name),
        within ? el("button", { type: "button", class: "small within", "aria-expanded": String(open.has(run.id)), "aria-label": `${inside(within)} ${run.name}`,
          click: () => { if (!open.delete(run.id)) open.add(run.id); again(run.name); } }, inside(within)) : null),
      el("td", {}, el("span", { class: `badge ${run.kind}` }, KINDS[run.kind] || run.kind)),
      el("td", {}, el("b", {}, run.env), run.env && run.what ? " · " : "", run.what),
      hasTags ? el("td", {}, mulligan.chips(run.tags)) : null,
      el("td", { class: "when", title: run.began ? new Date(1000 * run.began).toLocaleString() : null }, ago(run.began)),
      el("td", { class: "status" }, run.status === "running" ? el("span", { class: "pulse" }, "running", share === null ? "" : ` ${Math.round(100 * share)} %`) : run.status),
      el("td", { class: "figure" }, run.figures.length && !run.versus ? bars(run.figures, run.headline) : null, el("span", {}, run.headline)));
  }

  pages.runs = async (params, place) => {
    const answer = await load("runs"), { root, runs, hasJournal } = answer;
    for (const id of [...chosen]) if (!runs.some((run) => run.id === id)) chosen.delete(id);
    const body = el("tbody", {});
    const compare = el("div", { class: "choice" });
    const count = el("p", { class: "soft", role: "status" });
    const tags = [...new Set(runs.flatMap((run) => run.tags))].sort();
    const columns = COLUMNS.filter(([name]) => name !== "tags" || tags.length);
    const heads = columns.map(([name, title]) => el("th", { scope: "col" }, el("button", { type: "button", class: "sort", click: () => {
      wanted = { ...wanted, sort: name, isDown: wanted.sort === name ? !wanted.isDown : !["name", "tags"].includes(name) };
      refill();
    } }, title)));

    function choices() {
      const ids = [...chosen]; // in the order in which they were ticked
      const trains = ids.filter((id) => runs.find((run) => run.id === id).kind === "train" || runs.find((run) => run.id === id).kind === "population");
      compare.replaceChildren(...(ids.length ? [el("span", {}, `${ids.length} chosen: `),
        trains.length ? el("a", { class: "button", href: address("curves", { runs: trains.join("\n") }) }, "Curves") : "",
        ids.length > 1 ? el("a", { class: "button", href: address("compare", { runs: ids.join("\n") }) }, "Figures and differences") : "",
        ids.length === 2 ? el("a", { class: "button", href: address("pair", { run: ids[0], run2: ids[1] }) }, "Trials side by side") : "",
        isStill ? "" : el("form", { submit: (event) => { event.preventDefault(); tag(ids, event.target.elements.tag.value); } },
          el("label", {}, "Tag ", el("input", { type: "search", name: "tag", class: "narrow", maxlength: 40 })), " ", el("button", {}, "Add")),
        el("button", { type: "button", click: () => { chosen.clear(); refill(); } }, "None")] : []));
    }

    async function tag(ids, text) {
      try {
        for (const id of ids) {
          const run = runs.find((each) => each.id === id);
          run.tags = (await change("tag", { run: id, tags: [...run.tags, text].join(",") })).tags;
        }
        window.dispatchEvent(new HashChangeEvent("hashchange")); // a new tag can be chosen
      } catch (error) { compare.append(el("span", { class: "bad", role: "alert" }, error.message)); }
    }

    function refill() {
      const shown = sorted(runs);
      const again = (name) => { refill(); [...body.querySelectorAll(".within")].find((each) => each.getAttribute("aria-label").endsWith(` inside ${name}`))?.focus(); };
      body.replaceChildren(...asTree(shown, shown.length < runs.length).map((line) => row(line, tags.length > 0, choices, again)));
      count.textContent = shown.length === runs.length ? `${runs.length} run${runs.length === 1 ? "" : "s"}` : `${shown.length} of ${runs.length} runs`;
      heads.forEach((head, number) => head.setAttribute("aria-sort", columns[number][0] !== wanted.sort ? "none" : wanted.isDown ? "descending" : "ascending"));
      choices();
    }

    if (!tags.includes(wanted.tag)) wanted.tag = "";
    const kinds = [...new Set(runs.map((run) => run.kind))];
    const parents = around(runs), [newest] = runs.filter((run) => parents.get(run.id) === null);
    const told = newest && newest.kind === "demo" ? await mulligan.story(newest).catch(() => null) : null;
    place.replaceChildren(told || "", el(told ? "h2" : "h1", {}, isReport ? "Report" : "Runs"),
      runs.length ? el("p", { class: "lead" }, `All runs in the folder ${root}. Choose one to see its curves and to read its trials; tick two to compare them.`)
        : el("p", { class: "lead" }, "There is no run here yet. ", el("code", {}, "mulligan eval minesweeper --policy expert --tasks 16 --run runs/first"), " makes one."),
      hasJournal ? el("p", {}, el("a", { class: "button", href: address("journal") }, "The journal")) : "",
      el("div", { class: "filters" },
        el("label", {}, "Filter ", el("input", { type: "search", value: wanted.text, placeholder: "name, game, model …",
          input: (event) => { wanted.text = event.target.value; refill(); } })),
        kinds.length > 1 ? el("label", {}, "Kind ", el("select", { change: (event) => { wanted.kind = event.target.value; refill(); } },
          el("option", { value: "" }, "all"), kinds.map((kind) => el("option", { value: kind, selected: wanted.kind === kind }, KINDS[kind] || kind)))) : null,
        tags.length ? el("label", {}, "Tag ", el("select", { change: (event) => { wanted.tag = event.target.value; refill(); } },
          el("option", { value: "" }, "all"), tags.map((tag) => el("option", { value: tag, selected: wanted.tag === tag }, tag)))) : null,
        count),
      compare,
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Runs" }, el("table", { class: "runs" }, el("caption", { class: "hidden" }, "Runs"),
        el("thead", {}, el("tr", {}, el("td", {}), heads)), body)));
    refill();
    return { title: "Runs", trail: [], runs: [], isList: true, seen: answer };
  };
})();
