"use strict";
/* One moment of a trial: what the agent saw, wrote and got; and the whole trial, attempt after attempt. */
(() => {
  const { el, world, percent, signed } = mulligan;

  /** The moments of a trial in order; the turn after an attempt's last one is its end. */
  const moments = (trial) => trial.episodes.flatMap((episode, number) =>
    [...episode.turns.map((_, turn) => ({ episode: number, turn })), { episode: number, turn: episode.turns.length }]);

  /** The nearest moment that the trial has. */
  function settled(trial, moment) {
    const episode = Math.max(0, Math.min(trial.episodes.length - 1, moment.episode));
    return { episode, turn: Math.max(0, Math.min(trial.episodes[episode].turns.length, moment.turn)) };
  }

  const outcome = (episode) => (episode.stop === "turn limit" ? "out of turns" : episode.stop);
  const kindOf = (episode) => (episode.won ? "won" : episode.failed ? "failed" : episode.stop === "drawn" ? "drawn" : "lost");
  const reward = (value) => String(Number(value.toPrecision(4)));

  function part(title, text, kind = "") {
    return text ? el("div", { class: `part ${kind}` }, el("h4", {}, title), el("pre", {}, text)) : null;
  }

  /** What a reply holds beside its text. */
  function beside(reply) {
    return [part("thought", reply.reasoning, "thought"), part("refused", reply.refusal, "bad"), (reply.calls || []).map((call) => part("called a tool", call))];
  }

  /** A reply token by token: red where it was unlikely, or green and red by what training made of it. */
  function shaded(given, shade) {
    const share = (part) => Math.min(1, Math.max(0, part));
    const heat = ([, chance]) => (shade.by === "advantage" ? share(Math.abs(given.advantage || 0) / shade.most) : 1 - chance);
    const kind = shade.by === "advantage" && given.advantage > 0 ? "up" : "down";
    const words = given.tokens.map((token) => {
      const span = el("span", { class: `token ${kind}`, title: `${percent(token[1])} %` }, token[0] || "■");
      span.style.setProperty("--heat", `${(55 * heat(token)).toFixed(0)}%`);
      return span;
    });
    const least = given.tokens.reduce((low, token) => (token[1] < low[1] ? token : low), ["", 2]);
    const said = shade.by === "advantage" ? (given.advantage === null ? "no advantage" : `advantage ${signed(given.advantage)}`)
      : `probability ${percent(given.tokens.reduce((product, token) => product * token[1], 1))} %, of its least likely token ${percent(Math.min(1, least[1]))} %`;
    return el("div", { class: "part wrote" }, el("h4", {}, "It wrote"), el("pre", {}, words), el("small", {}, said));
  }

  function turnWords(turn, tokens = null, shade = null) {
    return [beside(turn), tokens ? shaded(tokens, shade) : part("It wrote", turn.wrote || "(nothing)", "wrote"),
      turn.cutOff && !turn.valid ? el("p", { class: "bad" }, "The token limit cut this reply.") : null,
      turn.valid ? null : el("p", { class: "bad" }, `This counted as no move${turn.fault && turn.fault !== "invalid" ? ` (${turn.fault})` : ""}.`),
      part("It was told", turn.feedback, turn.valid ? "" : "bad"), part("It got", turn.got, "got"),
      turn.reward ? el("p", {}, "Reward ", el("b", {}, reward(turn.reward))) : null];
  }

  function endWords(episode, tokens = null, shade = null) {
    return [el("p", {}, "The attempt ended: ", el("b", { class: kindOf(episode) }, outcome(episode)), `, reward ${reward(episode.reward)}.`),
      episode.error ? part("Error", episode.error, "bad") : null, noteOf(episode, tokens, shade)];
  }

  function noteOf(episode, tokens = null, shade = null) {
    if (!episode.note) return null;
    return el("div", { class: "note" }, el("h4", {}, `Note after attempt ${episode.number}`),
      beside(episode.note), tokens ? shaded(tokens, shade) : el("pre", {}, episode.note.text || "(empty)"),
      episode.note.valid ? null : el("p", { class: "soft" }, "Not in the form that was asked for; the next attempt saw it all the same."));
  }

  function remembered(episode, isOpen) {
    return episode.remembered ? el("details", { class: "memory", open: isOpen }, el("summary", {}, "What it remembers of earlier attempts"), el("pre", {}, episode.remembered)) : null;
  }

  function given(episode) {
    return episode.opening.length ? el("details", {}, el("summary", {}, "All it was given when this attempt began"),
      episode.opening.map((message) => [el("h4", {}, message.role), el("pre", {}, message.text)])) : null;
  }

  /** The stage at a moment: the world, and beside it the words. */
  function stage(trial, moment, heading = "h2", shade = null) {
    const episode = trial.episodes[moment.episode];
    if (!episode) return el("p", {}, "This trial has no attempt.");
    const turn = episode.turns[moment.turn];
    const title = `Attempt ${episode.number}, ${turn ? `turn ${moment.turn + 1} of ${episode.turns.length}` : "the end"}`;
    const drawing = turn ? turn.drawing : episode.finalDrawing;
    const of = shade && shade.episodes[moment.episode], tokens = of && (turn ? of.turns[moment.turn] : of.note);
    const text = turn ? turn.seen : episode.final;
    return el("section", { class: "stage", "aria-label": title },
      el("div", { class: "world" }, el(heading, {}, title), world(drawing, text, turn && turn.valid ? turn.action : ""),
        turn ? el("p", { class: "does" }, turn.valid ? "It plays " : "It says ", el("code", {}, turn.action || "(nothing)")) : el("p", { class: `does ${kindOf(episode)}` }, outcome(episode))),
      el("div", { class: "words" }, moment.turn === 0 || !turn ? remembered(episode, true) : null,
        drawing && turn ? el("details", { class: "part" }, el("summary", {}, "It saw, in words"), el("pre", {}, text)) : null,
        turn ? turnWords(turn, tokens, shade) : endWords(episode, tokens, shade), moment.turn === 0 ? given(episode) : null));
  }

  /** A button for each moment, a line for each attempt. */
  function timeline(trial, moment, go) {
    return el("div", { class: "timeline", role: "group", "aria-label": "Turns" }, trial.episodes.map((episode, number) =>
      el("div", { class: "line" }, el("span", { class: `verdict ${kindOf(episode)}` }, `Attempt ${episode.number}: ${outcome(episode)}`),
        el("span", { class: "moments" }, [...episode.turns, null].map((turn, place) => {
          const isNow = moment.episode === number && moment.turn === place;
          const label = turn ? `attempt ${episode.number}, turn ${place + 1}${turn.valid ? "" : ", no move"}` : `attempt ${episode.number}, end${episode.note ? " and note" : ""}`;
          return el("button", { type: "button", class: `moment ${turn ? (turn.valid ? "" : "invalid") : `end ${kindOf(episode)}`}`, "aria-label": label, title: label,
            "aria-current": isNow ? "step" : null, click: () => go({ episode: number, turn: place }) },
          turn ? String(place + 1) : episode.note ? "✎" : episode.won ? "✓" : "■");
        })))));
  }

  /** The whole trial to read: a column for each attempt, with its note before the next. */
  function whole(trial, go) {
    return el("div", { class: "columns" }, trial.episodes.map((episode, number) => el("article", { class: "card column" },
      el("h3", {}, `Attempt ${episode.number} `, el("span", { class: `verdict ${kindOf(episode)}` }, outcome(episode)), episode.standIn ? el("small", {}, " played by a stand-in") : null),
      remembered(episode, false),
      el("ol", { class: "turns" }, episode.turns.map((turn, place) => el("li", {},
        el("button", { type: "button", class: "open-turn", "aria-label": `Show attempt ${episode.number}, turn ${place + 1}`, click: () => go({ episode: number, turn: place }, true) }, String(place + 1)),
        el("div", {}, world(turn.drawing, turn.seen, turn.valid ? turn.action : "", "little"), el("code", { class: turn.valid ? "" : "bad" }, turn.action || "(nothing)"),
          turn.feedback ? el("small", {}, ` ${turn.feedback}`) : null)))),
      el("div", { class: "final" }, world(episode.finalDrawing, episode.final, "", "little"), el("p", { class: kindOf(episode) }, `${outcome(episode)}, reward ${reward(episode.reward)}`),
        episode.error ? part("Error", episode.error, "bad") : null),
      noteOf(episode))));
  }

  Object.assign(mulligan, { moments, settled, stage, timeline, whole, kindOf });
})();
