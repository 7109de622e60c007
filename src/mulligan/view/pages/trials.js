"use strict";
/* The trials of a run as pages of a table, filtered by what came of them. */
(() => {
  const { el, address, load, pages, attempts, armName, reading, isUnread, PAGE, isTyping } = mulligan;

  const option = (value, text, wanted) => el("option", { value, selected: (wanted || "") === String(value) }, text);

  function chooser(label, name, params, options, change) {
    return el("label", {}, `${label} `, el("select", { change: (event) => change({ [name]: event.target.value, offset: "" }), "data-name": name }, options));
  }

  function filters(params, answer, go) {
    const { arms } = answer.state;
    const count = (of, value) => (of.find(([each]) => each === value) || [0, 0])[1];
    const faults = [...new Set(answer.faults.flatMap(([names]) => names.split(" ")).filter(Boolean))].sort();
    const solved = answer.solved.map(([value]) => value).filter((value) => value > 0);
    return el("div", { class: "filters" },
      chooser("Trials of", "arm", params, [option("", "all", params.arm), arms.map((arm) => option(arm.name, `${armName(arm.name)} (${arm.trials.toLocaleString()})`, params.arm))], go),
      chooser("Result", "result", params, [option("", "any", params.result), option("lost", `not solved (${count(answer.solved, 0).toLocaleString()})`, params.result),
        option("won", "solved", params.result), solved.map((k) => option(k, `solved at attempt ${k} (${count(answer.solved, k).toLocaleString()})`, params.result)),
        option("failed", "failed outside the agent", params.result)], go),
      chooser("Replies", "has", params, [option("", "any", params.has), option("invalid", `invalid (${count(answer.invalid, 1).toLocaleString()})`, params.has),
        faults.map((fault) => option(fault, fault.replaceAll("_", " "), params.has)), option("notes", "with a note", params.has)], go),
      answer.classes.length > 1 ? chooser("Class", "class", params, [option("", "all", params.class), answer.classes.map(([name, number]) => option(name, `${name} (${number})`, params.class))], go) : null,
      answer.opponents.length > 1 ? chooser("Opponent", "opponent", params, [option("", "all", params.opponent), answer.opponents.map(([name, number]) => option(name, `${name} (${number})`, params.opponent))], go) : null,
      el("form", { submit: (event) => { event.preventDefault(); go({ text: event.target.elements.text.value, offset: "" }); } },
        el("label", {}, "Task or seed ", el("input", { type: "search", name: "text", value: params.text || "", class: "narrow" }))));
  }

  const COLUMNS = [["place", "task"], ["solved", "attempts"], ["reward", "reward"], ["turns", "turns"], ["invalid", "invalid"], ["seed", "seed"], ["class", "class"]];

  pages.trials = async (params, place) => {
    const wanted = { ...params };
    const answer = await load("trials", wanted);
    const go = (change) => { location.hash = address("trials", { ...params, ...change }); };
    const offset = Number(answer.offset), last = Math.min(answer.total, offset + PAGE);
    const sort = params.sort || "place";
    const hasClasses = answer.classes.length > 1;
    const heads = COLUMNS.filter(([name]) => hasClasses || name !== "class").map(([name, title]) => {
      const isSorted = sort.replace(/^-/, "") === name;
      return el("th", { scope: "col", "aria-sort": !isSorted ? "none" : sort.startsWith("-") ? "descending" : "ascending" },
        el("button", { type: "button", class: "sort", click: () => go({ sort: isSorted && !sort.startsWith("-") ? `-${name}` : name, offset: "" }) }, title));
    });
    const rows = answer.rows.map((row) => el("tr", {},
      el("th", { scope: "row" }, el("a", { href: address("trial", { run: params.run, arm: row.arm, place: row.place }) }, `task ${row.place + 1}`),
        params.arm ? null : el("small", {}, ` ${armName(row.arm)}`)),
      el("td", {}, attempts(row.outcomes)), el("td", {}, Number(row.reward.toPrecision(4))), el("td", {}, row.turns),
      el("td", {}, row.invalid || "", row.faults ? el("small", {}, ` ${row.faults.replaceAll("_", " ")}`) : null),
      el("td", {}, row.seed), hasClasses ? el("td", {}, row.class, row.opponent && !row.class.includes(row.opponent) ? ` vs ${row.opponent}` : "") : null));
    const turn = (to, text, label) => el("button", { type: "button", disabled: to < 0 || to >= answer.total || to === offset, "aria-label": label, click: () => go({ offset: to || "" }) }, text);
    const lastPage = Math.max(0, Math.floor((answer.total - 1) / PAGE) * PAGE);
    place.replaceChildren(...[el("h1", {}, `Trials of ${answer.card.title}`),
      el("p", { class: "soft" }, "A trial is up to so many attempts at one task. ✓ solved, ✗ not, = drawn, ! failed outside the agent."),
      filters(params, answer, go), reading(answer.state),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Trials" }, el("table", { class: "trials" }, el("caption", { class: "hidden" }, "Trials"),
        el("thead", {}, el("tr", {}, heads)), el("tbody", {}, rows))),
      answer.total ? null : el("p", { class: "lead" }, "No trial is like that."),
      el("nav", { class: "paging", "aria-label": "Pages" }, turn(0, "«", "first page"), turn(offset - PAGE, "‹ before", "page before"),
        el("span", { role: "status" }, answer.total ? ` ${(offset + 1).toLocaleString()}–${last.toLocaleString()} of ${answer.total.toLocaleString()} ` : ""),
        turn(offset + PAGE, "next ›", "next page"), turn(lastPage, "»", "last page"))].filter(Boolean));
    const keys = (event) => {
      if (isTyping(event)) return;
      if (event.key === "ArrowRight" && offset + PAGE < answer.total) go({ offset: offset + PAGE });
      if (event.key === "ArrowLeft" && offset) go({ offset: Math.max(0, offset - PAGE) || "" });
    };
    return { title: `Trials of ${answer.card.title}`, keys, runs: answer.card.status === "running" ? [params.run] : [], isReading: isUnread(answer.state),
      trail: [[answer.card.title, address("run", { run: params.run })]] };
  };

  /** The tasks that two runs have both played. */
  pages.pair = async (params, place) => {
    const shared = await load("shared", { run: params.run, run2: params.run2, arm: params.arm, arm2: params.arm2 });
    const [one, other] = shared.runs;
    const names = shared.runs.map((run) => (one.title === other.title ? run.name : run.title));
    const go = (change) => { location.hash = address("pair", { ...params, ...change }); };
    const isSolved = (outcomes) => outcomes.includes("w");
    const tests = { "": () => true, first: ([one, other]) => isSolved(one) && !isSolved(other), second: ([one, other]) => !isSolved(one) && isSolved(other),
      differ: ([one, other]) => one !== other };
    const kept = shared.tasks.filter((task) => (tests[params.only || ""] || tests[""])(task.outcomes));
    const offset = Number(params.offset || 0);
    const arms = [0, 1].map((side) => chooser(names[side], side ? "arm2" : "arm", params,
      shared.choices[side].map((arm) => option(arm, armName(arm), shared.arms[side])), go));
    const count = (name) => shared.tasks.filter((task) => tests[name](task.outcomes)).length;
    const rows = kept.slice(offset, offset + PAGE).map((task) => el("tr", {},
      el("th", { scope: "row" }, el("a", { href: address("both", { run: params.run, arm: shared.arms[0], place: task.places[0],
        run2: params.run2, arm2: shared.arms[1], place2: task.places[1] }) }, `task ${task.places[0] + 1}`)),
      el("td", {}, attempts(task.outcomes[0])), el("td", {}, attempts(task.outcomes[1])), el("td", {}, task.class), el("td", {}, task.seed)));
    place.replaceChildren(...[el("h1", {}, `${names[0]} beside ${names[1]}`),
      shared.tasks.length ? el("p", { class: "lead" }, `${shared.tasks.length.toLocaleString()} tasks were played by both. ${names[0]} alone solved ${count("first")}, ${names[1]} alone ${count("second")}.`)
        : el("p", { class: "lead" }, "These two have no task in common. Evaluations of one game with the same settings have; so have validations of training runs on it."),
      el("div", { class: "filters" }, arms, chooser("Show", "only", params, [option("", "all tasks", params.only), option("first", `only ${names[0]} solved it`, params.only),
        option("second", `only ${names[1]} solved it`, params.only), option("differ", "attempts differ", params.only)], go)),
      el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": "Tasks" }, el("table", { class: "trials" }, el("caption", { class: "hidden" }, "Tasks that both played"),
        el("thead", {}, el("tr", {}, ["task", names[0], names[1], "class", "seed"].map((name) => el("th", { scope: "col" }, name)))), el("tbody", {}, rows))),
      kept.length > PAGE ? el("nav", { class: "paging", "aria-label": "Pages" },
        el("button", { type: "button", disabled: !offset, click: () => go({ offset: offset - PAGE || "" }) }, "‹ before"),
        el("span", {}, ` ${offset + 1}–${Math.min(kept.length, offset + PAGE)} of ${kept.length} `),
        el("button", { type: "button", disabled: offset + PAGE >= kept.length, click: () => go({ offset: offset + PAGE }) }, "next ›")) : null].filter(Boolean));
    return { title: `${names[0]} beside ${names[1]}`, trail: [], runs: [] };
  };
})();
