"use strict";
/* The tasks of a run at a glance: a cell for each, with what came of it. */
(() => {
  const { el, address } = mulligan;

  const count = (outcomes) => outcomes.split("w").length - 1;

  /** What stands in a cell, its kind, and what it means: of games how many attempts were won, of tasks the attempt that
      solved it. */
  function cellOf(outcomes, isGame) {
    if (outcomes.includes("f")) return ["!", "failed", "failed outside the agent"];
    if (isGame) {
      const won = count(outcomes), share = won / (outcomes.length || 1);
      return [String(won), share > 0.5 ? "at1" : won ? "at3" : "never", `won ${won} of ${outcomes.length} attempts`];
    }
    const at = outcomes.indexOf("w") + 1;
    return at ? [String(at), `at${Math.min(3, at)}`, `solved at attempt ${at}`] : ["✗", "never", `not solved in ${outcomes.length}`];
  }

  /** The legend: how many tasks of each kind, as links to them. */
  function legend(run, given, isGame) {
    const kinds = new Map();
    for (const [, outcomes] of given.tasks) {
      const [text, kind, words] = cellOf(outcomes, isGame);
      const key = kind === "never" ? (isGame ? "won none" : "not solved") : words;
      kinds.set(key, [text, kind, (kinds.get(key) || [0, 0, 0])[2] + 1]);
    }
    const isAll = given.total === given.tasks.length && !(given.readable < given.total);
    const result = (text) => (text === "✗" ? "lost" : text === "!" ? "failed" : text);
    return el("ul", { class: "legend" }, [...kinds].sort(([, [one]], [, [other]]) => (one < other ? -1 : 1)).map(([words, [text, kind, number]]) => el("li", {},
      el("span", { class: `task ${kind}`, "aria-hidden": "true" }, text), " ",
      isAll && run && !isGame ? el("a", { href: address("trials", { run, arm: given.arm, result: result(text) }) }, words) : words, " ", el("b", {}, number))));
  }

  /** A cell for each task; a click on one leads to where `open` says: the place of the task -> an address, or null. */
  mulligan.glance = (title, run, given, open, heading = "h3") => {
    if (!given || given.tasks.length < 2) return null;
    const isGame = given.areGames;
    const cells = given.tasks.map(([place, outcomes]) => {
      const [text, kind, words] = cellOf(outcomes, isGame);
      const way = place < (given.readable ?? Infinity) ? open(place) : null;
      return el("span", { class: `task ${kind} ${way ? "way" : ""}`, title: `task ${place + 1}: ${words}`, "data-way": way }, text);
    });
    const words = given.total > given.tasks.length ? `the first ${given.tasks.length.toLocaleString()} of ${given.total.toLocaleString()} tasks` : `${given.total.toLocaleString()} tasks`;
    return el("figure", { class: "card glance" }, el("figcaption", {}, el(heading, {}, title), el("span", { class: "soft" }, `${words}; in each cell ${isGame ? "how many attempts were won" : "the attempt that solved it, ✗ where none did"}`)),
      el("div", { class: "tasks", role: "img", "aria-label": `${title}: ${words}, a cell for each; the list below counts them`,
        click: (event) => { const { way } = event.target.dataset; if (way) location.hash = way; } }, cells), legend(run, given, isGame));
  };
})();
