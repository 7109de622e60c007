"use strict";
/* Tables: figures with their intervals, settings, and tables that are texts already. */
(() => {
  const { el, percent, signed, lineChart, coloured } = mulligan;

  function table(columns, rows, caption = "", kind = "", label = "table") {
    return el("div", { class: "scroll", tabindex: "0", role: "region", "aria-label": caption || label }, el("table", { class: kind },
      caption ? el("caption", {}, caption) : null,
      el("thead", {}, el("tr", {}, columns.map((each) => el("th", { scope: "col" }, each)))),
      el("tbody", {}, rows)));
  }

  /** A table whose cells are texts; the first column names the rows. */
  const texts = (given) => table(given.columns, given.rows.map((row) => el("tr", {}, row.map((cell, number) =>
    (number ? el("td", {}, cell) : el("th", { scope: "row" }, cell))))), given.title, "numbers");

  const half = (interval, versus) => (interval ? (versus ? ((interval[1] - interval[0]) / 2).toFixed(2)
    : percent((interval[1] - interval[0]) / 2)) : "");

  /** Rows over the attempts, a line for each; null where there is none. */
  function attemptsChart(given, shown) {
    const { versus } = given;
    const colours = coloured(shown.map((row) => (row.part === "main" ? "meta-RL" : row.name)));
    const lines = shown.slice(0, 7).map((row, number) => {
      const shift = shown.length > 1 ? 0.2 * (number / (shown.length - 1) - 0.5) : 0;
      return { name: row.name, colour: colours[number], dash: row.part === "main" || row.part === "policy" ? "" : "6 4",
        points: row.values.map((value, k) => [k + 1 + shift, value]),
        whiskers: row.ci.map((ci, k) => ci && [k + 1 + shift, ci[0], ci[1]]).filter(Boolean) };
    });
    return lines.length ? lineChart({ title: versus ? "Return of each episode" : "Solved within k attempts",
      kind: versus ? "number" : "share", series: lines, names: given.names, isDiscrete: true,
      xLabel: given.names[0].startsWith("p@") ? "attempts" : "", ceiling: versus ? null : given.ceiling }) : null;
  }

  /** The figures of rows: a chart over the attempts, and a table beside it; `more` follows them. */
  function section(given, hasTable = true, more = null) {
    const { versus } = given;
    const shown = given.rows.filter((row) => row.part !== "scripted" || (hasTable && !row.name.startsWith("ceiling"))).filter((row) => row.values.every((value) => value !== null));
    const chart = attemptsChart(given, shown);
    const rows = given.rows.map((row) => el("tr", { class: row.part }, el("th", { scope: "row" }, row.name),
      given.names.map((_, k) => {
        const value = row.values[k];
        const interval = half(row.ci[k], versus);
        return el("td", {}, value === null || value === undefined ? "–" : versus ? signed(value) : percent(value),
          interval ? el("small", {}, ` ±${interval}`) : null);
      })));
    const share = given.shares.length && given.shares[0] !== null
      ? el("p", {}, `Of the most that any agent can expect, it reached `, el("b", {}, `${percent(given.shares[0])} %`), ".") : null;
    return el("section", {}, el("h2", {}, given.finding || given.title), given.finding ? el("p", { class: "soft" }, given.title) : null,
      (given.lead || []).map((text) => el("p", { class: "lead" }, text)), share, differences(given), el("div", { class: "beside" }, chart, !hasTable ? null
      : el("div", {}, table(["", ...given.names], rows, "", "numbers", given.title),
        el("p", { class: "soft" }, versus ? "Mean return of each episode, ± half of the 95 % interval."
          : "Share of tasks solved within the first k attempts, in percent, ± half of the 95 % interval."))), more);
  }

  /** What the rows are above or below the one they are compared with, in a sentence each. */
  function differences(given) {
    const scripted = (name) => /^(scripted|ceiling)/.test(name);
    const points = (value) => (given.versus ? signed(value) : signed(100 * value, 1));
    return (given.differences || []).filter((gap) => !scripted(gap.name)).slice(0, 6).map((gap) => el("p", { class: "lead" }, el("b", {}, gap.name), ` is ${points(Math.abs(gap.mean)).replace("+", "")} ${given.versus ? "in return" : "points"} ${gap.mean < 0 ? "below" : "above"} `
      + `${given.against} at ${given.names.at(-1)} [${gap.ci.map(points).join(", ")}]`, gap.ci[0] <= 0 && gap.ci[1] >= 0 ? ": these trials do not tell them apart." : "."));
  }

  const settings = (pairs) => (pairs.length ? el("details", { class: "card" }, el("summary", {}, `Settings (${pairs.length})`),
    table(["setting", "value"], pairs.map(([name, value]) => el("tr", {}, el("th", { scope: "row" }, name), el("td", {}, el("code", {}, value)))), "Settings")) : null);

  const notes = (lines) => (lines.length ? el("details", { class: "card", open: lines.length < 4 }, el("summary", {}, "Notes"),
    el("ul", {}, lines.map((line) => el("li", {}, line)))) : null);

  Object.assign(mulligan, { table, texts, attemptsChart, section, settings, notes });
})();
