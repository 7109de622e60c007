"use strict";
/* Answers to questions about runs: from the server, from files beside a page that was exported, or from the page
   itself where it is a report. */
(() => {
  const PAGE = 50;
  const embedded = document.getElementById("answers");
  const answers = embedded ? JSON.parse(embedded.textContent) : null;
  const site = document.documentElement.dataset.site !== undefined;
  const isStill = Boolean(answers) || site;
  const waiting = new Map(), fromFiles = new Map();

  const keyOf = (question, params) => {
    const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
    given.sort(([one], [other]) => (one < other ? -1 : 1));
    return `${question}?${new URLSearchParams(given.map(([name, value]) => [name, String(value)]))}`;
  };

  /** Files of an exported page call this with what they hold. */
  mulligan.receive = (key, answer) => {
    const resolve = waiting.get(key);
    waiting.delete(key);
    if (resolve) resolve(answer);
  };

  function fromFile(key) {
    const file = (mulligan.manifest || {})[key];
    if (!file) return Promise.reject(new Error("This was not exported; mulligan view shows all of a run."));
    if (!fromFiles.has(key)) fromFiles.set(key, new Promise((resolve, reject) => {
      waiting.set(key, resolve);
      const script = document.createElement("script");
      script.src = `data/${file}`;
      script.onerror = () => reject(new Error(`data/${file} is missing.`));
      document.head.append(script);
    }));
    return fromFiles.get(key);
  }

  async function ask(question, params) {
    const key = keyOf(question, params);
    if (answers) {
      if (!(key in answers)) throw new Error("This report does not hold it; mulligan view shows all of a run.");
      return answers[key];
    }
    if (site) return fromFile(key);
    const response = await fetch(`api/${key}`);
    const answer = await response.json();
    if (!response.ok) throw new Error(answer.error || `The server answered ${response.status}.`);
    return answer;
  }

  /* What the server's index does, for pages without a server. */
  const RESULTS = { won: (row) => row.solved > 0, lost: (row) => !row.solved, failed: (row) => row.outcomes.includes("f") };
  const HAS = { invalid: (row) => row.invalid > 0, faults: (row) => row.faults !== "", notes: (row) => row.notes > 0 };

  function isWanted(row, wanted) {
    const result = RESULTS[wanted.result] || ((each) => String(each.solved) === wanted.result);
    const has = HAS[wanted.has] || ((each) => each.faults.split(" ").includes(wanted.has));
    return (!wanted.result || result(row)) && (!wanted.has || has(row))
      && (!wanted.class || row.class === wanted.class) && (!wanted.opponent || row.opponent === wanted.opponent)
      && (!wanted.text || [String(row.seed), String(row.place + 1)].includes(wanted.text.trim().replace(/^#/, "")));
  }

  async function stillTrials(params) {
    const all = await ask("trials", { run: params.run, arm: params.arm });
    const rows = all.rows.filter((row) => isWanted(row, params));
    const column = (params.sort || "place").replace(/^-/, "");
    const sign = (params.sort || "").startsWith("-") ? -1 : 1;
    rows.sort((one, other) => sign * (one[column] > other[column] ? 1 : one[column] < other[column] ? -1 : 0)
      || one.place - other.place);
    const offset = Number(params.offset || 0);
    return { ...all, total: rows.length, offset, rows: rows.slice(offset, offset + PAGE) };
  }

  const usualArm = (arms) => (arms.includes("main") ? "main"
    : arms.filter((arm) => arm.startsWith("validation-")).at(-1) || arms.at(-1) || "");

  async function stillShared(params) {
    const about = await Promise.all([ask("run", { run: params.run }), ask("run", { run: params.run2 })]);
    const choices = about.map((each) => each.trials.arms.map((arm) => arm.name));
    const arms = [params.arm || usualArm(choices[0]), params.arm2 || usualArm(choices[1])];
    const [first, second] = await Promise.all([
      ask("trials", { run: params.run, arm: arms[0] }), ask("trials", { run: params.run2, arm: arms[1] })]);
    const others = new Map(second.rows.map((row) => [row.task, row]));
    const tasks = first.rows.filter((row) => others.has(row.task)).map((row) => {
      const other = others.get(row.task);
      return { places: [row.place, other.place], outcomes: [row.outcomes, other.outcomes], class: row.class, seed: row.seed };
    });
    return { runs: about.map((each) => each.card), arms, choices, tasks };
  }

  function load(question, params = {}) {
    if (isStill && question === "trials") return stillTrials(params);
    if (isStill && question === "shared") return stillShared(params);
    return ask(question, params);
  }

  /** Ask the server to do something: begin a game, play a move. */
  async function change(name, given) {
    if (isStill) throw new Error("These pages are files; mulligan view can do this.");
    const response = await fetch(`do/${name}`, { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify(given) });
    const answer = await response.json().catch(() => ({}));
    if (!response.ok) throw new Error(answer.error || `The server answered ${response.status}.`);
    return answer;
  }

  Object.assign(mulligan, { load, change, isStill, isReport: Boolean(answers), PAGE });
})();
