"use strict";
/* What the note changed: the chances of each move at a turn, with the agent's memory, without it, and with another one. */
(() => {
  const { el, svg, address, load, pages, percent, picture, world, armName, isTyping } = mulligan;
  const MOST = 16;
  const NAMES = { own: "With what it remembered", none: "Without it", foreign: "With another trial's memory" };
  const SHORT = { own: "with it", none: "without", foreign: "another's" };
  const plain = (text) => text.trim().toLowerCase();

  function bar(share) {
    return el("td", { class: "chance" }, svg("svg", { viewBox: "0 0 100 10", class: "bars", width: 100, height: 10, "aria-hidden": "true" },
      svg("path", { d: "M0 9.5h100", class: "grid" }), svg("path", { d: `M0 0h${(100 * Math.min(1, share)).toFixed(1)}v10h-${(100 * Math.min(1, share)).toFixed(1)}z`, class: "bar" })),
    ` ${percent(share)} %`);
  }

  /** The likeliest moves under any memory, and what is left for the others and for replies that are no move. */
  function moveTable(about, kinds) {
    const rows = about.moves.map((move, number) => ({ move, shares: kinds.map((kind) => about.chances[kind][number]) }));
    rows.sort((one, other) => Math.max(...other.shares) - Math.max(...one.shares));
    const shown = rows.slice(0, MOST), hidden = rows.slice(MOST);
    const sums = (list) => kinds.map((_, number) => list.reduce((sum, row) => sum + row.shares[number], 0));
    const line = (name, shares, isPlayed = false) => el("tr", { class: isPlayed ? "main" : "" }, el("th", { scope: "row" }, name, isPlayed ? " (played)" : ""), shares.map(bar));
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Moves" }, el("table", { class: "numbers" }, el("caption", {}, "Chance of each move"),
      el("thead", {}, el("tr", {}, ["move", ...kinds.map((kind) => SHORT[kind])].map((name) => el("th", { scope: "col" }, name)))),
      el("tbody", {}, shown.map((row) => line(el("code", {}, row.move), row.shares, plain(row.move) === plain(about.played))),
        hidden.length ? line(`${hidden.length} other moves`, sums(hidden)) : null,
        line("any other reply", sums(rows).map((sum) => Math.max(0, 1 - sum))))));
  }

  function finding(about, kinds) {
    const number = about.moves.findIndex((move) => plain(move) === plain(about.played));
    const moved = `The memory moved ${percent(about.moved.none, 0)} % of the probability`
      + (kinds.includes("foreign") ? `; another trial's in its place would move ${percent(about.moved.foreign, 0)} %.` : ".");
    if (number < 0) return moved;
    const chance = kinds.map((kind) => `${percent(about.chances[kind][number], 0)} % ${{ own: "with what it remembered", none: "without it", foreign: "with another trial's memory" }[kind]}`);
    return `Chance of what it played: ${chance.join(", ")}. ${moved}`;
  }

  pages.noted = async (params, place) => {
    const about = await load("noted", { run: params.run, arm: params.arm, place: params.place, episode: params.episode, turn: params.turn });
    const kinds = ["own", "none", "foreign"].filter((kind) => about.chances[kind]);
    const here = { run: params.run, arm: params.arm, place: params.place, episode: about.episode };
    const turns = about.turns[about.episode - 1];
    const isThere = (turn) => turn >= 1 && turn <= turns && (!about.shown || about.shown.includes(turn));
    const step = (to, text) => (!isThere(to) ? el("span", { class: "button off" }, text) : el("a", { class: "button", href: address("noted", { ...here, turn: to }) }, text));
    const side = (kind) => {
      const chances = new Map(about.moves.map((move, number) => [plain(move), about.chances[kind][number]]));
      return el("section", { class: "card" }, el("h2", {}, NAMES[kind]),
        about.drawing && about.drawing.board ? picture(about.drawing, about.played, "", chances) : null,
        about.memories[kind] ? el("details", { class: "memory", open: true }, el("summary", {}, "What was remembered"), el("pre", {}, about.memories[kind])) : el("p", { class: "soft" }, "Nothing was remembered."));
    };
    place.replaceChildren(...[el("h1", {}, "What the note changed"),
      el("p", { class: "soft" }, `${about.class} · seed ${about.seed} · task ${about.place + 1}, attempt ${about.episode}, turn ${about.turn} of ${turns} · ${about.player}, temperature ${about.temperature}`),
      el("p", { class: "lead" }, finding(about, kinds)),
      el("div", { class: "row" }, step(about.turn - 1, "‹ turn before"), step(about.turn + 1, "next turn ›"),
        el("a", { class: "button", href: address("trial", { ...here, turn: about.turn }) }, "To the trial")),
      about.drawing && about.drawing.board ? null : world(about.drawing, about.seen, about.played),
      about.drawing && about.drawing.board ? el("p", { class: "soft" }, "On the boards: the chance of each move in percent, from 2 % on.") : null,
      el("div", { class: "columns noted" }, kinds.map(side)), moveTable(about, kinds),
      el("p", { class: "soft" }, "The chance of a move is that of the reply that holds it and nothing else, after the same turns. What an agent thinks before it acts is not weighed."),
    ].filter(Boolean));
    const keys = (event) => {
      const to = { ArrowRight: about.turn + 1, ArrowLeft: about.turn - 1 }[event.key];
      if (!isTyping(event) && isThere(to)) location.hash = address("noted", { ...here, turn: to });
    };
    return { title: "What the note changed", keys, runs: [], trail: [[about.card.title, address("run", { run: params.run })],
      [`${armName(params.arm)}, task ${about.place + 1}`, address("trial", { ...here, turn: about.turn })]] };
  };
})();
