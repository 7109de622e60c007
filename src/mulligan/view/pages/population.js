"use strict";
/* A population: ratings, who wins against whom, held-out scores, and who was copied from whom. */
(() => {
  const { el, svg, address, table, lineChart, percent } = mulligan;
  const figure = (value) => (value === null || value === undefined ? "–" : String(Number(value.toPrecision(3))));
  const nameOf = (number) => `agent ${number}`;

  const link = (about, number) => { const { run } = about.agents[number]; return run ? el("a", { href: address("run", { run }) }, nameOf(number)) : nameOf(number); };

  /** Ratings as dots with two deviations to both sides. */
  function ratings(about) {
    if (!about.ratings.length) return null;
    const low = Math.min(...about.ratings.map(([, value, deviation]) => value - 2 * deviation));
    const high = Math.max(...about.ratings.map(([, value, deviation]) => value + 2 * deviation));
    const x = (value) => (4 + 192 * (value - low) / (high - low || 1)).toFixed(1);
    const rows = about.ratings.map(([name, value, deviation]) => {
      const number = /^agent\/(\d+)$/.exec(name);
      const isAgent = number && about.agents[Number(number[1])];
      return el("tr", { class: isAgent && Number(number[1]) === about.best ? "main" : "" }, el("th", { scope: "row" }, isAgent ? link(about, Number(number[1])) : name),
        el("td", {}, svg("svg", { viewBox: "0 0 200 16", class: "chart rating", width: 200, height: 16, "aria-hidden": "true" },
          svg("path", { d: `M${x(value - 2 * deviation)} 8H${x(value + 2 * deviation)}`, class: `line c${isAgent ? 2 : 0}` }), svg("circle", { cx: x(value), cy: 8, r: 3.5, class: `dot c${isAgent ? 2 : 0}` }))),
        el("td", {}, value.toFixed(0), el("small", {}, ` ±${(2 * deviation).toFixed(0)}`)));
    });
    return table(["who", "", "rating"], rows, "Ratings (Glicko-2): strength from all games in training, ± two deviations", "numbers");
  }

  /** Agent against opponent. */
  function games(about) {
    const { opponents, rows, first, last } = about.games;
    if (!opponents.length) return null;
    const cell = (pair) => {
      if (!pair) return el("td", {}, "–");
      const made = el("td", { class: "share", title: `${pair[1]} games` }, percent(pair[0], 0), el("span", { class: "hidden" }, ` percent of ${pair[1]} games`));
      made.style.setProperty("--heat", `${(60 * Math.abs(pair[0] - 0.5) * 2).toFixed(0)}%`);
      made.classList.add(pair[0] >= 0.5 ? "up" : "down");
      return made;
    };
    return table(["", ...opponents], rows.map((row, number) => el("tr", {}, el("th", { scope: "row" }, link(about, number)), row.map(cell))),
      `Agent against opponent: percent of the points, updates ${first} to ${last}; a draw is half of one`, "numbers matrix");
  }

  /** A line for each agent; where it became a copy, an arrow from whom. */
  function lineage(about) {
    if (!about.events.length) return el("p", { class: "soft" }, "No agent became a copy of another one.");
    const width = 640, left = 70, step = 34, height = step * about.agents.length + 30;
    const x = (update) => left + (width - left - 20) * update / Math.max(1, about.updates), y = (number) => 20 + step * number;
    const told = about.events.map((each) => `After update ${each.update}, ${nameOf(each.agent)} ${each.event === "copied" ? "became a copy of" : "could not go on and was replaced by"} ${nameOf(each.from)}${each.why ? `: ${each.why}` : ""}.`);
    const image = svg("svg", { viewBox: `0 0 ${width} ${height}`, class: "chart", role: "img", "aria-label": `Lineage: ${about.events.length} copies` },
      about.agents.map(({ number }) => [svg("text", { x: left - 8, y: y(number) + 5, class: "tick", "text-anchor": "end" }, nameOf(number)),
        svg("path", { d: `M${x(0)} ${y(number)}H${x(about.updates)}`, class: `line c${number % 7}` })]),
      about.events.filter((each) => about.agents[each.from] && about.agents[each.agent]).map((each) => [svg("path", { d: `M${x(each.update).toFixed(1)} ${y(each.from)}V${y(each.agent)}`, class: `whisker c${each.from % 7}` }),
        svg("circle", { cx: x(each.update).toFixed(1), cy: y(each.agent), r: 4, class: `dot c${each.from % 7}` })]),
      svg("text", { x: left, y: height - 4, class: "tick" }, "0"), svg("text", { x: width - 20, y: height - 4, class: "tick", "text-anchor": "end" }, `update ${about.updates}`));
    return el("div", {}, el("figure", { class: "card chart-card" }, el("figcaption", {}, el("h3", {}, "Lineage")), image),
      el("details", {}, el("summary", {}, `${told.length} ${told.length > 1 ? "copies" : "copy"}, in words`), el("ol", {}, told.map((line) => el("li", {}, line)))));
  }

  function agents(about) {
    const names = [...new Set(about.agents.flatMap((each) => each.settings.map(([name]) => name)))];
    return table(["agent", "score", ...names], about.agents.map((each) => {
      const given = new Map(each.settings);
      return el("tr", { class: each.number === about.best ? "main" : "" }, el("th", { scope: "row" }, link(about, each.number), each.number === about.best ? " (best)" : ""),
        el("td", {}, figure(each.standing)), names.map((name) => el("td", {}, given.get(name) ?? "")));
    }), "The agents, with the settings in which they differ", "numbers");
  }

  /** All of it, for the page of the run. */
  mulligan.populationOf = (about) => {
    const series = about.scores.map((points, number) => ({ name: nameOf(number), points, colour: number })).filter((line) => line.points.length);
    return el("section", {}, el("h2", {}, "Population"), agents(about), games(about),
      el("div", { class: "beside" }, ratings(about), el("div", {}, lineage(about), series.length ? lineChart({ title: "Score on held-out tasks", kind: "number", series }) : null)));
  };
})();
