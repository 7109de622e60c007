"use strict";
/* Line charts as SVG, with a readout, and as files: SVG, PNG, CSV. Colours are classes c0 … c6 of the style sheet. */
(() => {
  const { el, svg, percent, download } = mulligan;
  const WIDTH = 640, HEIGHT = 320, LEFT = 72, RIGHT = 16, TOP = 14, BOTTOM = 48, COLOURS = 7;

  /** Round numbers that cover a range, at most seven. */
  function ticks(low, high, count = 5) {
    const rough = (high - low) / count || 1;
    const power = 10 ** Math.floor(Math.log10(rough));
    const step = [1, 2, 5, 10].map((base) => base * power).find((each) => each >= rough);
    const first = Math.ceil(low / step - 1e-9) * step;
    const list = [];
    for (let value = first; value <= high + step * 1e-6; value += step) list.push(Math.abs(value) < step * 1e-6 ? 0 : value);
    return list;
  }

  const USUAL = { RL: 1, "meta-RL": 2, "meta-RL, gamma_traj 0": 3, "warm start": 0 }, OTHERS = [4, 5, 6, 3, 0, 1, 2];

  /** A colour for each method: the same everywhere for the first of the usual ones, others for all others. */
  function coloured(methods) {
    const usual = methods.map((method, number) => (method in USUAL && methods.indexOf(method) === number ? USUAL[method] : null));
    const free = OTHERS.filter((colour) => !usual.includes(colour));
    let next = 0;
    return usual.map((colour) => colour ?? free[next++ % free.length]);
  }

  const short = (value) => (Math.abs(value) >= 1e4 ? `${(value / 1e3).toFixed(0)}k`
    : String(Number(value.toPrecision(3))));

  function axes(chart) {
    const xs = chart.series.flatMap((line) => line.points.map(([x]) => x));
    const ys = chart.series.flatMap((line) => [...line.points.map(([, y]) => y),
      ...(line.band || line.whiskers || []).flatMap(([, low, high]) => [low, high])]);
    const isShare = chart.kind === "share";
    let [bottom, top] = [Math.min(0, ...ys), Math.max(...ys, isShare ? 0.2 : -Infinity)];
    if (isShare) top = Math.max(top, Math.min(1, Math.ceil(top * 5 + 0.02) / 5)); // luck carries a share of the optimum above 1
    if (chart.ceiling) top = Math.max(top, Math.min(1, Math.ceil(chart.ceiling * 5) / 5));
    if (top === bottom) top = bottom + 1;
    const room = chart.isDiscrete ? 0.3 : 0;
    const [left, right] = [Math.min(...xs) - room, Math.max(...xs) + room];
    const x = (value) => LEFT + (right > left ? (value - left) / (right - left) : 0.5) * (WIDTH - LEFT - RIGHT);
    const y = (value) => HEIGHT - BOTTOM - (value - bottom) / (top - bottom) * (HEIGHT - TOP - BOTTOM);
    return { x, y, left, right, bottom, top, isShare };
  }

  function frame(chart, at) {
    const levels = ticks(at.bottom, at.top);
    const label = (value) => (at.isShare ? `${percent(value, 0)}${value === levels.at(-1) ? " %" : ""}` : short(value));
    const parts = levels.map((value) => [
      svg("path", { d: `M${LEFT} ${at.y(value).toFixed(1)}H${WIDTH - RIGHT}`, class: value === 0 ? "axis" : "grid" }),
      svg("text", { x: LEFT - 8, y: at.y(value) + 4, class: "tick", "text-anchor": "end" }, label(value))]);
    const across = chart.isDiscrete ? chart.series[0].points.map(([x]) => Math.round(x)) : ticks(at.left, at.right, 6);
    parts.push(across.map((value) => svg("text", { x: at.x(value), y: HEIGHT - BOTTOM + 18, class: "tick", "text-anchor": "middle" },
      chart.names ? chart.names[value - 1] : short(value))));
    parts.push(svg("text", { x: (LEFT + WIDTH - RIGHT) / 2, y: HEIGHT - 6, class: "name", "text-anchor": "middle" }, chart.xLabel ?? "updates"));
    if (chart.ceiling) {
      const y = at.y(chart.ceiling);
      parts.push(svg("path", { d: `M${LEFT} ${y.toFixed(1)}H${WIDTH - RIGHT}`, class: "ceiling" }));
      parts.push(svg("text", { x: WIDTH - RIGHT, y: y < TOP + 20 ? y + 15 : y - 5, class: "tick", "text-anchor": "end" }, `ceiling ${percent(chart.ceiling)}`));
    }
    return parts;
  }

  function drawn(line, number, at) {
    const colour = `c${(line.colour ?? number) % COLOURS}`;
    const point = ([x, y]) => `${at.x(x).toFixed(1)},${at.y(y).toFixed(1)}`;
    const parts = [];
    if (line.band && line.band.length) {
      const edge = [...line.band.map(([x, low]) => [x, low]), ...[...line.band].reverse().map(([x, , high]) => [x, high])];
      parts.push(svg("polygon", { points: edge.map(point).join(" "), class: `band ${colour}` }));
    }
    for (const [x, low, high] of line.whiskers || []) {
      parts.push(svg("path", { d: `M${at.x(x).toFixed(1)} ${at.y(low).toFixed(1)}V${at.y(high).toFixed(1)}`, class: `whisker ${colour}` }));
    }
    parts.push(svg("polyline", { points: line.points.map(point).join(" "), class: `line ${colour}`, "stroke-dasharray": line.dash || null }));
    if (line.points.length < 40) {
      parts.push(line.points.map(([x, y]) => svg("circle", { cx: at.x(x).toFixed(1), cy: at.y(y).toFixed(1), r: 2.6, class: `dot ${colour}` })));
    }
    return parts;
  }

  const worded = (chart, value) => (value === null || value === undefined ? "–" : chart.kind === "share" ? `${percent(value)} %` : short(value));

  function summary(chart) {
    const ends = chart.series.map((line) => `${line.name} ${worded(chart, line.points[0][1])} to ${worded(chart, line.points.at(-1)[1])}`);
    return `${chart.title}: ${ends.join("; ")}`;
  }

  /** A figure with the chart, its legend, a readout that follows the pointer, and buttons that save it. */
  function lineChart(chart) {
    const at = axes(chart);
    const cursor = svg("path", { class: "cursor", d: "M0 0" });
    const image = svg("svg", { viewBox: `0 0 ${WIDTH} ${HEIGHT}`, role: "img", class: "chart", "aria-label": summary(chart) },
      frame(chart, at), chart.series.map((line, number) => drawn(line, number, at)), cursor);
    const values = chart.series.map(() => el("b", {}));
    const readout = el("span", { class: "soft" });
    const show = (x) => {
      const xs = chart.series.flatMap((line) => line.points.map((point) => point[0]));
      const nearest = xs.reduce((best, each) => (Math.abs(each - x) < Math.abs(best - x) ? each : best), xs[0]);
      readout.textContent = chart.names ? "" : `${chart.xLabel || "update"} ${nearest}`;
      chart.series.forEach((line, number) => {
        const point = line.points.reduce((best, each) => (Math.abs(each[0] - nearest) < Math.abs(best[0] - nearest) ? each : best));
        values[number].textContent = worded(chart, point[1]);
      });
      cursor.setAttribute("d", `M${at.x(nearest).toFixed(1)} ${TOP}V${HEIGHT - BOTTOM}`);
    };
    const last = Math.max(...chart.series.flatMap((line) => line.points.map(([x]) => x)));
    show(last);
    image.addEventListener("pointermove", (event) => {
      const box = image.getBoundingClientRect();
      const share = ((event.clientX - box.left) / box.width * WIDTH - LEFT) / (WIDTH - LEFT - RIGHT);
      show(at.left + share * (at.right - at.left));
    });
    image.addEventListener("pointerleave", () => show(last));
    const legend = el("ul", { class: "legend" }, chart.series.map((line, number) => el("li", {},
      svg("svg", { viewBox: "0 0 26 10", "aria-hidden": "true", class: "swatch" },
        svg("path", { d: "M1 5H25", class: `line c${(line.colour ?? number) % COLOURS}`, "stroke-dasharray": line.dash || null })),
      el("span", {}, line.name), values[number])));
    const save = el("span", { class: "save" },
      [["SVG", () => download(`${chart.title}.svg`, asSvg(image))], ["PNG", () => savePng(chart.title, image)],
        ["CSV", () => download(`${chart.title}.csv`, asCsv(chart))]].map(([name, click]) =>
        el("button", { type: "button", class: "small", click, "aria-label": `Save ${chart.title} as ${name}` }, name)));
    return el("figure", { class: "card chart-card" }, el("figcaption", {}, el("h3", {}, chart.title), readout, save), image, legend);
  }

  const STYLED = ["fill", "stroke", "stroke-width", "stroke-dasharray", "font-size", "font-family", "fill-opacity", "opacity"];

  /** The chart with its colours written into it, as they are on the page now. */
  function asSvg(image) {
    const copy = image.cloneNode(true);
    const originals = [...image.querySelectorAll("*")];
    [...copy.querySelectorAll("*")].forEach((element, number) => {
      const style = getComputedStyle(originals[number]);
      for (const name of STYLED) element.setAttribute(name, style.getPropertyValue(name));
    });
    copy.setAttribute("width", String(2 * WIDTH));
    copy.setAttribute("height", String(2 * HEIGHT));
    const back = svg("path", { d: `M0 0H${WIDTH}V${HEIGHT}H0z` });
    back.setAttribute("fill", getComputedStyle(document.documentElement).getPropertyValue("--card").trim());
    copy.prepend(back);
    return new Blob([new XMLSerializer().serializeToString(copy)], { type: "image/svg+xml" });
  }

  function savePng(title, image) {
    const url = URL.createObjectURL(asSvg(image));
    const picture = new Image();
    picture.onload = () => {
      const canvas = el("canvas", { width: 2 * WIDTH, height: 2 * HEIGHT });
      canvas.getContext("2d").drawImage(picture, 0, 0, 2 * WIDTH, 2 * HEIGHT);
      URL.revokeObjectURL(url);
      canvas.toBlob((blob) => download(`${title}.png`, blob));
    };
    picture.src = url;
  }

  /** A cell that no spreadsheet takes for a formula. */
  const csvCell = (value) => {
    const text = String(value ?? "");
    const safe = typeof value === "string" && /^[=+\-@\t\r]/.test(text) ? `'${text}` : text;
    return /[",\n]/.test(safe) ? `"${safe.replaceAll('"', '""')}"` : safe;
  };

  function asCsv(chart) {
    const xs = [...new Set(chart.series.flatMap((line) => line.points.map(([x]) => x)))].sort((one, other) => one - other);
    const columns = chart.series.map((line) => new Map(line.points));
    const rows = [[chart.xLabel || "update", ...chart.series.map((line) => line.name)],
      ...xs.map((x) => [x, ...columns.map((column) => column.get(x))])];
    return new Blob([`${rows.map((row) => row.map(csvCell).join(",")).join("\n")}\n`], { type: "text/csv" });
  }

  /** Bars for p@1 … p@N, small enough for a row of a table. */
  function bars(figures, words) {
    const width = 10 * figures.length;
    return svg("svg", { viewBox: `0 0 ${width} 20`, class: "bars", role: "img", "aria-label": words, width: 2 * width, height: 22 },
      figures.map((share, number) => [
        svg("path", { d: `M${10 * number + 1} 19.5h8`, class: "grid" }),
        svg("path", { d: `M${10 * number + 1} 20V${(20 - 19 * Math.max(0, Math.min(1, share))).toFixed(1)}h8V20z`, class: "bar" })]));
  }

  Object.assign(mulligan, { lineChart, coloured, bars });
})();
