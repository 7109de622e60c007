"use strict";
/* A journal: its classes with what it is worth in each, and its notes with their records. Nothing can be changed here. */
(() => {
  const { el, svg, address, load, pages, table, signed, ago } = mulligan;
  const PAGE = 50;
  const WORDS = { quarantined: "not confirmed yet: at most one is shown at a time", confirmed: "shown to later episodes",
    retired: "shown no more", superseded: "another note took its place" };
  const figure = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(3))));
  const isMeasured = (uplift) => uplift.episodes > 0 && uplift.mean !== null && uplift.low !== null;

  /** The uplift with its interval on a line whose middle is 0 and whose ends are the most that is possible. */
  function interval(uplift, width) {
    if (!isMeasured(uplift)) return el("span", { class: "soft" }, "not measured yet");
    const x = (value) => Math.max(1, Math.min(119, 60 + 59 * value / width)).toFixed(1);
    const words = `${signed(uplift.mean)} [${signed(uplift.low)}, ${signed(uplift.high)}]`;
    const kind = uplift.low > 0 ? "c3" : uplift.high < 0 ? "c1" : "c0";
    return el("span", { class: "uplift" }, svg("svg", { viewBox: "0 0 120 16", class: "chart", width: 120, height: 16, "aria-hidden": "true" },
      svg("path", { d: "M60 0V16", class: "axis" }), svg("path", { d: `M${x(uplift.low)} 8H${x(uplift.high)}`, class: `line ${kind}` }),
      svg("circle", { cx: x(uplift.mean), cy: 8, r: 3.5, class: `dot ${kind}` })), el("span", {}, words));
  }

  const verdict = (each) => (each.on ? el("span", { class: "badge eval" }, "on") : el("span", { class: "badge off" }, "switched off"));

  function worth(each) {
    if (!isMeasured(each.uplift)) return "The hold-out has no outcome yet that says what the journal is worth.";
    const { low, high } = each.uplift;
    return low > 0 ? "It helps: the whole interval lies above 0." : high < 0 ? "It hurts: the whole interval lies below 0." : "It is not told apart from 0 yet.";
  }

  function chooser(label, value, options, change) {
    return el("label", {}, `${label} `, el("select", { change: (event) => change(event.target.value) },
      options.map(([each, text]) => el("option", { value: each, selected: each === value }, text))));
  }

  /** The tenants that the command line named. */
  const namespaces = (about, go) => (about.namespaces.length < 2 ? el("span", { class: "soft" }, `namespace ${about.namespace}`)
    : chooser("Namespace", about.namespace, about.namespaces.map((name) => [name, name]), (namespace) => go({ namespace })));

  const home = (about) => [["journal", address("journal", { namespace: about.namespace })]];

  pages.journal = async (params, place) => {
    const about = await load("journal", { namespace: params.namespace });
    const { namespace } = about;
    const waiting = about.classes.reduce((sum, each) => sum + each.notes.quarantined, 0);
    const rows = about.classes.map((each) => el("tr", {},
      el("th", { scope: "row" }, el("a", { href: address("class", { namespace, class: each.class }) }, each.class)),
      el("td", {}, interval(each.uplift, each.width)), el("td", {}, verdict(each)), el("td", {}, each.outcomes.toLocaleString()), el("td", {}, figure(each.mean)),
      el("td", {}, el("a", { href: address("notes", { namespace, class: each.class }) }, `${each.notes.confirmed} shown, ${each.notes.quarantined} waiting`)),
      el("td", {}, each.alarm ? el("span", { class: "bad" }, each.alarm) : "")));
    place.replaceChildren(...[el("h1", {}, "Journal"), el("p", { class: "soft" }, about.address),
      el("div", { class: "filters" }, namespaces(about, (change) => { location.hash = address("journal", change); }),
        el("a", { class: "button", href: address("notes", { namespace }) }, "All notes"),
        waiting ? el("a", { class: "button go", href: address("notes", { namespace, state: "quarantined" }) }, `${waiting} in quarantine`) : null),
      about.classes.length ? table(["class", "uplift, 95 % at any time", "journal", "outcomes", "mean reward", "notes", "last alarm"], rows, "Classes", "classes")
        : el("p", { class: "lead" }, "Nothing is stored in this namespace."),
      el("p", { class: "soft" }, "Uplift: mean reward of episodes that saw the journal, minus that of the hold-out, which did not. Green: it helps; orange: it hurts.")].filter(Boolean));
    return { title: "Journal", trail: [], runs: [], follow: ["journal", { namespace: params.namespace }] };
  };

  pages.class = async (params, place) => {
    const about = await load("journal-class", { namespace: params.namespace, class: params.class });
    const { namespace } = about;
    const agents = Object.entries(about.baselines).map(([name, each]) => el("tr", {}, el("th", { scope: "row" }, name || "(no name)"),
      el("td", {}, each.episodes.toLocaleString()), el("td", {}, figure(each.mean)), el("td", {}, figure(each.spread)), el("td", {}, figure(each.trend))));
    const strategies = Object.entries(about.strategies).map(([decision, options]) => table(["option", "worth", "interval", "episodes"],
      Object.entries(options).map(([name, each]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, figure(each.mean)),
        el("td", {}, `[${figure(each.low)}, ${figure(each.high)}]`), el("td", {}, each.episodes))), decision ? `Choice ${decision}: what each option gives, chosen or not` : "What each option gives, chosen or not", "numbers"));
    place.replaceChildren(...[el("h1", {}, about.class),
      el("div", { class: "row" }, verdict(about), el("span", { class: "soft" }, `namespace ${namespace} · ${about.outcomes.toLocaleString()} outcomes, mean ${figure(about.mean)}`)),
      el("p", { class: "lead" }, worth(about)), el("p", {}, "Uplift ", interval(about.uplift, about.width), isMeasured(about.uplift) ? el("small", {}, ` ${about.uplift.episodes.toLocaleString()} episodes that were randomised`) : null),
      about.because && !about.on ? el("p", { class: "notice" }, about.because) : null, about.alarm ? el("p", { class: "notice" }, about.alarm) : null,
      el("p", {}, `Abandoned episodes: ${about.abandoned.on || 0} with the journal, ${about.abandoned.off || 0} without. `, el("span", { class: "soft" }, "They have no outcome; where one side loses more of them, the uplift is not to be believed.")),
      el("p", {}, el("a", { class: "button go", href: address("notes", { namespace, class: about.class }) }, "Its notes"), " ",
        Object.entries(about.notes).filter(([, count]) => count).map(([state, count]) => el("a", { class: "button", href: address("notes", { namespace, class: about.class, state }) }, `${count} ${state}`))),
      agents.length ? table(["agent", "outcomes", "mean", "spread", "trend"], agents, "Agents", "numbers") : null, strategies].flat().filter(Boolean));
    return { title: about.class, trail: home(about), runs: [], follow: ["journal-class", { namespace: params.namespace, class: params.class }] };
  };

  /** With and without: what the record of a note says. */
  function record(note) {
    const gap = note.mean_with === null || note.mean_without === null ? null : note.mean_with - note.mean_without;
    return el("p", {}, `Written ${note.seen} time${note.seen === 1 ? "" : "s"}, shown to ${note.shown.toLocaleString()} episodes. `,
      note.outcomes ? ["Mean reward ", el("b", {}, figure(note.mean_with)), ` with it (${note.outcomes}), `, el("b", {}, figure(note.mean_without)), ` without (${note.outcomes_without})`,
        gap === null ? "." : [": ", el("b", { class: gap < 0 ? "bad" : "won" }, signed(gap)), "."]] : "No outcome with it yet.");
  }

  const card = (note) => el("article", { class: `card note-card ${note.state}`, "aria-label": `note ${note.id}` },
    el("div", { class: "row" }, el("span", { class: "badge" }, note.state), el("span", { class: "soft" }, `${note.task_class} · by ${note.source}, ${ago(note.written)}`)),
    el("dl", {}, note.fields.map(([name, text]) => [el("dt", {}, name), el("dd", {}, text)])), record(note),
    note.reason ? el("p", { class: "soft" }, note.reason) : null, note.task ? el("p", { class: "soft" }, "First written after: ", note.task) : null,
    note.superseded_by ? el("p", { class: "soft" }, "Superseded by ", el("code", {}, note.superseded_by)) : null,
    el("p", { class: "soft" }, "id ", el("code", {}, note.id)));

  pages.notes = async (params, place) => {
    const asked = { namespace: params.namespace, class: params.class, state: params.state, offset: params.offset };
    const about = await load("journal-notes", asked);
    const go = (change) => { location.hash = address("notes", { ...asked, namespace: about.namespace, ...change }); };
    const { offset, total } = about;
    const states = [["", "any"], ...Object.entries(about.states).map(([state, count]) => [state, `${state} (${count})`])];
    place.replaceChildren(...[el("h1", {}, params.state === "quarantined" ? "Quarantine" : about.class ? `Notes of ${about.class}` : "Notes"),
      params.state ? el("p", { class: "lead" }, `${WORDS[params.state]}. `, params.state === "quarantined" ? ["A person confirms one with ", el("code", {}, "mulligan journal confirm ID"), "."] : null) : null,
      el("div", { class: "filters" }, namespaces(about, (change) => { location.hash = address("notes", change); }),
        chooser("Class", about.class, [["", "all"], ...about.classes.map((name) => [name, name])], (value) => go({ class: value, offset: "" })),
        chooser("State", params.state || "", states, (value) => go({ state: value, offset: "" }))),
      el("div", { class: "columns cards" }, about.notes.map(card)), total ? null : el("p", { class: "lead" }, "No note is like that."),
      total > PAGE ? el("nav", { class: "paging", "aria-label": "Pages" }, el("button", { type: "button", disabled: !offset, click: () => go({ offset: offset - PAGE || "" }) }, "‹ newer"),
        el("span", { role: "status" }, ` ${offset + 1}–${Math.min(total, offset + PAGE)} of ${total.toLocaleString()} `),
        el("button", { type: "button", disabled: offset + PAGE >= total, click: () => go({ offset: offset + PAGE }) }, "older ›")) : null].flat().filter(Boolean));
    return { title: "Notes", trail: home(about), runs: [], follow: ["journal-notes", asked] };
  };
})();
