"use strict";
/* The demonstration: what it found, and the ways to where it can be watched. */
(() => {
  const { el, address, load, lineChart, attemptsChart, coloured, glance, world } = mulligan;

  const bothAt = (watched) => address("both", { run: watched.runs[0], arm: "main", place: watched.place, run2: watched.runs[1], arm2: "main", place2: watched.place, episode: 1, turn: 1 });

  const META = "meta-RL";

  /** The runs of an act's agents, by name, with what their pages know; without those that are not there. */
  async function agentsOf(act) {
    const runs = await Promise.all((act.agents || []).map(async (agent) => {
      try {
        const [run, evaluation] = await Promise.all([load("run", { run: agent.run }), load("run", { run: agent.evaluation })]);
        return { ...agent, followed: run.followed, glance: evaluation.glance };
      } catch { return null; }
    }));
    return runs.filter(Boolean);
  }

  /** The way to one task over meta-RL's training. */
  function followedBy(agents) {
    const agent = agents.find((each) => each.name === META && each.followed);
    return agent ? address("trial", { run: agent.run, arm: agent.followed.arm, place: agent.followed.place }) : null;
  }

  /** The first attempts of both agents at the first task to watch, as they ended, side by side. */
  async function firstAttempts(act) {
    const [watched] = act.watch || [];
    if (!watched) return null;
    try {
      const trials = await Promise.all(watched.runs.map((run) => load("trial", { run, arm: "main", place: watched.place })));
      const side = (trial, number) => {
        const [attempt] = trial.episodes;
        return el("article", { class: "card first" }, el("h4", {}, act.pair[number]), world(attempt.finalDrawing, attempt.final, "", "little"),
          el("p", {}, "It played ", attempt.turns.map((turn, at) => [at ? ", " : "", el("code", {}, turn.action || "(nothing)")]), `: ${attempt.won ? "won" : "not won"}, reward ${attempt.reward}.`));
      };
      return [el("h3", {}, "Two first attempts at one task"), el("p", { class: "soft" }, "As they ended. ", el("a", { href: bothAt(watched) }, "Go on turn by turn")),
        el("div", { class: "beside" }, trials.map(side))];
    } catch { return null; }
  }

  /** What an act has beside its figures: its tasks at a glance, tasks to watch, and its agents over training. */
  async function scenes(act) {
    const agents = await agentsOf(act);
    const [first, meta] = (act.pair || []).map((name) => agents.find((each) => each.name === name));
    const both = (place) => address("both", { run: first.evaluation, arm: "main", place, run2: meta.evaluation, arm2: "main", place2: place, episode: 1, turn: 1 });
    const grids = first && meta ? [first, meta].map((agent) => glance(agent.name, agent.evaluation, agent.glance, both, "h4")) : [];
    const way = followedBy(agents);
    return [
      await firstAttempts(act),
      grids.length ? [el("h3", {}, "Every task at a glance"), el("p", { class: "soft" }, "The same tasks in the same order; a click on one shows both agents at it."), el("div", { class: "beside" }, grids)] : null,
      (act.watch || []).length ? [el("h3", {}, "Watch both, turn by turn"), el("ul", { class: "watch" }, act.watch.map((each) => el("li", {}, el("a", { href: bothAt(each) }, each.text))))] : null,
      (act.charts || []).length ? [el("h3", {}, "Over training"), way ? el("p", {}, el("a", { class: "button go", href: way }, "Follow one task from the warm start to the last update")) : null,
        el("div", { class: "charts" }, act.charts.map((chart) => lineChart({ ...chart,
          series: chart.series.map((line, number) => ({ ...line, name: line.label, colour: coloured(chart.series.map((each) => each.label))[number] })) }))),
        el("p", { class: "soft" }, "On validation tasks, which are others than those of the table. They are few, so that single points are noisy; nothing is smoothed.")] : null];
  }

  /** The demonstration in the list of runs: each finding, and three ways into it. */
  async function story(run) {
    const about = await load("run", { run: run.id });
    const acts = await Promise.all(about.sections.map(async (act) => {
      const way = followedBy(await agentsOf(act)), [watched] = act.watch || [];
      return el("section", { class: "card act" }, el("h2", {}, act.finding || act.title), (act.lead || []).slice(0, 2).map((text) => el("p", {}, text)),
        attemptsChart({ ...act, ceiling: null }, act.rows.filter((row) => ["RL", ...act.pair].includes(row.name))),
        el("p", { class: "row" }, watched ? el("a", { class: "button", href: bothAt(watched) }, "Watch two agents at one task") : null,
          way ? el("a", { class: "button", href: way }, "Follow one task over training") : null));
    }));
    return el("section", { class: "story", "aria-label": run.title }, el("p", { class: "soft" }, `${run.title}: ${run.what}`),
      el("h1", {}, run.finding), el("p", {}, el("a", { class: "button go", href: address("run", { run: run.id }) }, "See what it found, step by step")),
      el("div", { class: "beside" }, acts));
  }

  Object.assign(mulligan, { scenes, story });
})();
