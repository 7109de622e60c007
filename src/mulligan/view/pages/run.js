"use strict";
/* A run's page, the curves of one or several, and comparisons. */
(() => {
  const { el, address, load, pages, lineChart, coloured, section, settings, notes, texts, table, ago, percent, change, isReport, isStill } = mulligan;

  function facts(card) {
    const parts = [card.env, card.what, card.began ? `begun ${ago(card.began)}` : "", card.status];
    return el("p", { class: "soft" }, parts.filter(Boolean).join(" · "));
  }

  function finding(card) {
    const { figures } = card;
    if (card.finding) return card.finding;
    if (["unreadable", "demo"].includes(card.kind)) return card.headline;
    if (!figures.length) return ["train", "population"].includes(card.kind) ? "Nothing is measured yet." : "";
    if (card.versus) return `It earns ${card.headline.replace("return ", "")}.`;
    if (figures.length === 1) return `It solves ${percent(figures[0])} % of the tasks.`;
    const gain = 100 * (figures.at(-1) - figures[0]);
    return `It solves ${percent(figures[0])} % of the tasks at the first attempt and ${percent(figures.at(-1))} % within ${figures.length}: `
      + `${gain.toFixed(1)} points more${gain < 0.05 ? ": further attempts add nothing" : ""}.`;
  }

  /** The way to the slider over training. */
  function overTraining(run, way) {
    return way ? el("p", {}, el("a", { class: "button go", href: address("trial", { run, arm: way.arm, place: way.place }) },
      "Follow one task over training"), el("span", { class: "soft" }, ` ${way.validations} validations of the same tasks`)) : null;
  }

  /** The evaluations of a training run, or the run that an evaluation measured. */
  function related(title, runs) {
    return runs.length ? el("section", {}, el("h2", {}, title), el("ul", { class: "inside" }, runs.map((run) => el("li", {},
      el("a", { href: address("run", { run: run.id }) }, run.title), el("span", { class: "soft" }, ` ${[run.what, run.headline || run.status].filter(Boolean).join(" · ")}`),
      run.kind === "eval" ? [" ", el("a", { href: address("trials", { run: run.id, arm: "main" }) }, "its trials")] : null)))) : null;
  }

  function armList(run, state) {
    const { arms } = state;
    if (!arms.length) return null;
    const validations = arms.filter((arm) => arm.name.startsWith("validation-"));
    const main = arms.find((arm) => arm.name === "main");
    const others = arms.filter((arm) => !arm.name.startsWith("validation-") && arm !== main);
    const link = (arm) => el("li", {}, el("a", { href: address("trials", { run, arm: arm.name }) }, armName(arm.name)), el("small", {}, ` ${arm.trials.toLocaleString()}`));
    const list = (title, chosen) => (chosen.length ? el("div", {}, el("h3", {}, title),
      el("ul", { class: "arms" }, chosen.slice(0, 40).map(link)), chosen.length > 40 ? el("p", {}, el("a", { href: address("trials", { run }) }, `all ${chosen.length}`)) : null) : null);
    return el("section", {}, el("h2", {}, "Trials to read"), main ? el("p", {}, el("a", { class: "button go", href: address("trials", { run, arm: "main" }) }, `Read its ${main.trials.toLocaleString()} trials`)) : null,
      el("div", { class: "beside" }, list(main ? "By control" : "By update", others), list("Validation", validations)), reading(state));
  }

  const isUnread = (state) => state.indexed < state.bytes;

  /** How far the index is, and what could not be read. */
  function reading(state) {
    const lines = [];
    if (isUnread(state)) lines.push(`Reading the trials: ${Math.floor(100 * state.indexed / state.bytes)} % so far; the list grows.`);
    if (state.unread) lines.push(`${state.unread.toLocaleString()} bytes cannot be read and are left out.`);
    return lines.length ? el("p", { class: "notice", role: "status" }, lines.join(" ")) : null;
  }

  /** The parts of an evaluation, as tables call them. */
  const PARTS = { main: "the agent itself", independent: "independent retries, no memory", removed: "reflection removed",
    foreign: "foreign memory", "other-trial": "reflection of another trial", told: "opponent told" };

  function armName(arm) {
    const [, kind, number] = /^(update|validation)-0*(\d+)$/.exec(arm) || [];
    if (arm === "validation-00000") return "before the first update";
    return kind ? (kind === "update" ? `update ${number}` : `after update ${number}`) : PARTS[arm] || arm;
  }

  /** Charts of several runs: a line for each group of seeds, with the band from the least to the greatest. */
  function charts(given) {
    const several = given.length > 1;
    const groups = new Map();
    for (const run of given) groups.set(run.group, [...(groups.get(run.group) || []), run]);
    const colours = coloured([...groups.values()].map(([run]) => run.method));
    const titles = [...new Set(given.flatMap((run) => run.charts.map((chart) => chart.title)))];
    return titles.map((title) => {
      const series = [...groups.values()].flatMap((runs, number) => merged(runs, title, several, groups.size > 1 ? colours[number] : null));
      const { kind } = given.flatMap((run) => run.charts).find((chart) => chart.title === title);
      return series.length ? lineChart({ title, kind, series: series.slice(0, 14) }) : null;
    });
  }

  function merged(runs, title, several, colour) {
    const lines = runs.map((run) => (run.charts.find((chart) => chart.title === title) || { series: [] }).series);
    const metrics = [...new Map(lines.flat().map((line) => [line.metric, line])).values()];
    return metrics.map((metric, number) => {
      const seeds = lines.map((series) => series.find((line) => line.metric === metric.metric)).filter(Boolean).map((line) => new Map(line.points));
      const xs = [...new Set(seeds.flatMap((points) => [...points.keys()]))].sort((one, other) => one - other);
      const values = xs.map((x) => seeds.map((points) => points.get(x)).filter((value) => value !== undefined));
      const who = !several ? "" : runs.length > 1 ? `${runs[0].arm || runs[0].method}, ${runs.length} seeds` : runs[0].title;
      const isAlone = metrics.length === 1;
      return { name: [who, isAlone && who ? "" : metric.label].filter(Boolean).join(": "),
        colour: colour ?? number,
        dash: colour === null ? "" : ["", "7 4", "2 3", "9 3 2 3"][number % 4],
        points: xs.map((x, place) => [x, values[place].reduce((sum, value) => sum + value, 0) / values[place].length]),
        band: runs.length > 1 ? xs.map((x, place) => [x, Math.min(...values[place]), Math.max(...values[place])]) : [] };
    });
  }

  /** The tags of a run, and a line to change them in. */
  function tagLine(run, tags) {
    if (isStill) return tags.length ? el("p", {}, mulligan.chips(tags)) : null;
    const chips = el("span", {}, mulligan.chips(tags)), said = el("span", { class: "soft", role: "status" });
    const save = async (event) => {
      event.preventDefault();
      try {
        const saved = await change("tag", { run, tags: event.target.elements.tags.value });
        chips.replaceChildren(...mulligan.chips(saved.tags));
        said.textContent = "saved";
      } catch (error) { said.textContent = error.message; }
    };
    return el("form", { class: "row", submit: save }, chips, el("label", {}, "Tags ", el("input", { type: "search", name: "tags", value: tags.join(", "), placeholder: "baseline, good" })),
      el("button", {}, "Save"), said);
  }

  /** The turns for which a page without a server tells what the note changed, those that it changed most first. */
  function noteList(run, turns) {
    if (!turns.length) return null;
    const first = [...turns].sort((one, other) => other.moved - one.moved).slice(0, 8);
    return el("section", {}, el("h2", {}, "What the note changed"), el("ul", { class: "inside" }, first.map((each) => {
      const where = { run, arm: each.arm, place: each.place, episode: each.episode, turn: each.turn };
      return el("li", {}, el("a", { href: address("noted", where) }, `Task ${each.place + 1}, attempt ${each.episode}, turn ${each.turn}`),
        el("span", { class: "soft" }, ` what it remembered moved ${percent(each.moved, 0)} % of the probability`));
    })));
  }

  pages.run = async (params, place) => {
    const about = await load("run", { run: params.run });
    const { card } = about;
    const agents = card.kind === "population" ? await load("population", { run: params.run }) : null;
    const curves = ["train", "population"].includes(card.kind) ? await load("curves", { run: params.run }) : null;
    const elsewhere = new Set(about.evaluations.map((run) => run.id)), ids = new Set(about.inside.map((run) => run.id));
    // The evaluation of a run stands on that one's page.
    const inside = about.inside.filter((run) => !elsewhere.has(run.id) && !(run.id.endsWith("/evaluation") && ids.has(run.id.replace(/\/evaluation$/, ""))));
    const isStory = card.kind === "demo", heading = isReport || isStory ? finding(card) || card.title : card.title;
    const sections = await Promise.all(about.sections.map(async (each) => section(each, true, isStory ? await mulligan.scenes(each) : null)));
    const tasks = card.kind === "train" ? "The last validation at a glance" : "Every task at a glance";
    const trialOf = (place) => address("trial", { run: params.run, arm: about.glance.arm, place });
    place.replaceChildren(...[el("h1", {}, heading), heading === card.title ? null : el("p", { class: "lead" }, card.title),
      card.title === card.name ? null : el("p", { class: "soft" }, card.name), facts(card),
      heading === card.title ? el("p", { class: "lead" }, finding(card)) : null, isStory ? null : tagLine(params.run, about.tags),
      card.method === "RL" && card.kind === "train" ? el("p", { class: "soft" }, "RL: trained on single episodes. It is validated with three attempts and memory, as everybody.") : null,
      related("The run that it measures", about.measured), agents ? mulligan.populationOf(agents) : null, overTraining(params.run, about.followed),
      related(about.evaluations.length > 1 ? "Its evaluations" : "Its evaluation", about.evaluations), sections,
      mulligan.glance(tasks, params.run, about.glance, trialOf, "h2"),
      curves && curves.charts.length ? el("section", {}, el("h2", {}, "Curves"), el("div", { class: "charts" }, charts([curves]))) : null,
      armList(params.run, about.trials), noteList(params.run, about.noted || []),
      curves && curves.warnings.length ? notes(curves.warnings.map((each) => `update ${each.update}: ${each.text}`)) : null,
      about.tables.length ? el("section", {}, el("h2", {}, "Tables"), about.tables.map(texts)) : null,
      inside.length ? el("section", {}, el("h2", {}, "Runs inside"), el("ul", { class: "inside" }, inside.map((run) =>
        el("li", {}, el("a", { href: address("run", { run: run.id }) }, run.title), el("span", { class: "soft" },
          ` ${[run.title === run.name ? "" : run.name, run.env, run.headline || run.status].filter(Boolean).join(" · ")}`))))) : null,
      isStory ? tagLine(params.run, about.tags) : null, notes(about.notes), settings(about.settings)].flat(3).filter(Boolean));
    return { title: card.title, trail: [], runs: card.status === "running" ? [params.run] : [], isReading: isUnread(about.trials) };
  };

  pages.curves = async (params, place) => {
    const names = (params.runs || "").split("\n").filter(Boolean);
    const given = await Promise.all(names.map((run) => load("curves", { run })));
    place.replaceChildren(el("h1", {}, "Curves"),
      el("p", { class: "soft" }, given.map((run) => run.title).join(" · ")),
      el("p", { class: "lead" }, "Runs that differ only in their seed are one line: their mean, with a band from the least to the greatest."),
      el("div", { class: "charts" }, charts(given).filter(Boolean)));
    return { title: "Curves", trail: [], runs: given.filter((run) => run.isRunning).map((run) => run.id) };
  };

  pages.compare = async (params, place) => {
    const names = (params.runs || "").split("\n").filter(Boolean);
    const about = await load("compare", { runs: params.runs });
    const rows = about.runs.map((run) => el("tr", {}, el("th", { scope: "row" }, el("a", { href: address("run", { run: run.id }) }, run.title), run.title === run.name ? null : el("small", {}, ` ${run.name}`)),
      el("td", {}, run.env), el("td", {}, run.what), el("td", {}, run.headline)));
    place.replaceChildren(...[el("h1", {}, "Side by side"), table(["run", "game", "what", "solved"], rows, "The runs"),
      names.length === 2 ? el("p", {}, el("a", { class: "button go", href: address("pair", { run: names[0], run2: names[1] }) }, "Their trials on the same tasks")) : null,
      about.sections.map((each) => section(each, false)), about.tables.map(texts), notes(about.notes)].flat().filter(Boolean));
    return { title: "Side by side", trail: [], runs: [] };
  };

  Object.assign(mulligan, { armName, reading, isUnread });
})();
