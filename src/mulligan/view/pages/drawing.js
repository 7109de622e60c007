"use strict";
/* Pictures that environments draw: cells in rows. */
(() => {
  const { el } = mulligan;

  /** The picture as a grid; `action` marks the cell that the agent chose, `chances` (action -> share) shades cells. */
  function picture(drawing, action = "", size = "", chances = null) {
    const chosen = action.trim().toLowerCase();
    const rows = drawing.rows.map((row) => el("div", { class: "drawn-row", "aria-hidden": "true" }, row.map(([kind, text, name]) => {
      const isChosen = name && name.toLowerCase() === chosen;
      const share = chances && name ? chances.get(name.toLowerCase()) : undefined;
      const cell = el("span", { class: `cell k-${kind} ${kind === "open" && /^[1-8]$/.test(text) ? `near${text}` : ""} ${isChosen ? "chosen" : ""} ${share === undefined ? "" : share > 0.5 ? "likely most" : "likely"}`,
        title: name ? (share === undefined ? name : `${name}: ${(100 * share).toFixed(1)} %`) : null },
      share === undefined ? text : share >= 0.015 ? (100 * share).toFixed(0) : ""); // smaller ones would look like what a cell holds
      if (share !== undefined) cell.style.setProperty("--heat", `${(100 * share).toFixed(1)}%`);
      return cell;
    })));
    const longest = Math.max(...drawing.rows.map((row) => row.length));
    const label = drawing.words + (chosen ? `; the agent chose ${chosen}` : "");
    const figure = el("div", { class: `drawn ${drawing.board ? "board" : "pieces"} ${size}`, role: "img", "aria-label": label }, rows);
    figure.style.setProperty("--across", String(longest));
    return figure;
  }

  /** The picture with a button for each cell that names a move; `click` gets the move. */
  function playable(drawing, moves, click) {
    const known = new Map(moves.map((move) => [move.trim().toLowerCase(), move]));
    const rows = drawing.rows.map((row) => el("div", { class: "drawn-row" }, row.map(([kind, text, name]) => {
      const look = `cell k-${kind} ${kind === "open" && /^[1-8]$/.test(text) ? `near${text}` : ""}`;
      const move = name ? known.get(name.trim().toLowerCase()) : undefined;
      if (move === undefined) return el("span", { class: look, title: name || null }, text);
      return el("button", { type: "button", class: `${look} playable`, title: name, "aria-label": `${name}${text ? `, ${text}` : `, ${kind}`}`, click: () => click(move) }, text);
    })));
    const figure = el("div", { class: `drawn ${drawing.board ? "board" : "pieces"}`, role: "group", "aria-label": drawing.words }, rows);
    figure.style.setProperty("--across", String(Math.max(...drawing.rows.map((row) => row.length))));
    return figure;
  }

  /** What was seen: the picture if there is one, otherwise the text. */
  const world = (drawing, text, action, size) => (drawing ? picture(drawing, action, size)
    : el("pre", { class: `seen ${size || ""}`, tabindex: size ? null : "0" }, text));

  const OUTCOMES = { w: ["won", "won"], l: ["lost", "lost"], d: ["drawn", "drawn"], t: ["lost", "out of turns"],
    c: ["lost", "context full"], f: ["failed", "failed outside the agent"] };

  /** A chip for each attempt: green where it was won. */
  function attempts(outcomes) {
    const words = [...outcomes].map((letter, number) => `attempt ${number + 1} ${(OUTCOMES[letter] || OUTCOMES.f)[1]}`);
    return el("span", { class: "attempts", role: "img", "aria-label": words.join(", "), title: words.join(", ") },
      [...outcomes].map((letter) => el("span", { class: `attempt ${(OUTCOMES[letter] || OUTCOMES.f)[0]}`, "aria-hidden": "true" },
        { w: "✓", d: "=", f: "!" }[letter] || "✗")));
  }

  Object.assign(mulligan, { picture, playable, world, attempts });
})();
