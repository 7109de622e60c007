"use strict";
/* A person plays the task of a trial, beside what the agent did at the same attempt and turn. */
(() => {
  const { el, address, load, change, pages, playable, world, stage, settled, armName, isTyping } = mulligan;
  const ARROWS = { ArrowUp: "up", ArrowDown: "down", ArrowLeft: "left", ArrowRight: "right" };
  const SIGNS = { up: "↑", down: "↓", left: "←", right: "→" };
  const MOST = 40;
  const verdicts = { won: "won", lost: "lost", drawn: "drawn", "out of turns": "lost" };

  const nameOf = (params) => [params.run, params.arm, params.place].join("\n");
  const started = new Map(); // the game of each trial, so that one may look elsewhere and come back

  /** Buttons for moves that are no cell of the board: arrows, or what is legal. */
  function moveButtons(state, play) {
    const cells = new Set(state.drawing ? state.drawing.rows.flat().map(([, , name]) => (name || "").toLowerCase()) : []);
    if (Object.keys(SIGNS).every((name) => state.moves.includes(name))) {
      return el("div", { class: "arrows", role: "group", "aria-label": "Moves" }, Object.entries(SIGNS).map(([name, sign]) =>
        el("button", { type: "button", class: `arrow ${name}`, "aria-label": name, click: () => play(name) }, sign)));
    }
    const others = state.moves.filter((move) => !cells.has(move.trim().toLowerCase()) && move.length <= 80);
    return others.length ? el("div", { class: "row", role: "group", "aria-label": "Moves" }, others.slice(0, MOST).map((move) =>
      el("button", { type: "button", click: () => play(move) }, move)), others.length > MOST ? el("span", { class: "soft" }, `and ${others.length - MOST} more: type them`) : null) : null;
  }

  function typed(play) {
    return el("form", { class: "row", submit: (event) => { event.preventDefault(); const { move } = event.target.elements; if (move.value.trim()) play(move.value); } },
      el("label", {}, "Type a move ", el("input", { type: "search", name: "move", class: "narrow wide" })), el("button", {}, "Play"));
  }

  function verdict(past, trial) {
    const first = past.indexOf("won");
    const mine = first < 0 ? `You did not solve it in ${past.length} attempt${past.length > 1 ? "s" : ""}` : `You solved it at attempt ${first + 1}`;
    return `${mine}; the agent ${trial.solved ? `at attempt ${trial.solved}` : `did not in ${trial.episodes.length}`}.`;
  }

  pages.play = async (params, place) => {
    const trial = await load("trial", { run: params.run, arm: params.arm, place: params.place });
    const name = nameOf(params);
    const given = { run: params.run, arm: params.arm, place: String(params.place) };
    if (!started.has(name)) started.set(name, { state: await change("begin", given), note: "" });
    const game = started.get(name);
    const mine = el("section", { class: "card mine", "aria-label": "You" }), other = el("section", { class: "side", "aria-label": "The agent" });
    const said = el("p", { class: "hidden", role: "status" });

    async function act(what, more) {
      try {
        game.state = await change(what, { game: game.state.game, ...more });
      } catch (error) {
        mine.append(el("p", { class: "notice", role: "alert" }, error.message));
        return;
      }
      refill();
    }
    const play = (text) => act("move", { text });

    function refill() {
      const { state } = game;
      const focus = mine.contains(document.activeElement) ? document.activeElement.getAttribute("title") || document.activeElement.name : null;
      const isLast = state.attempt >= state.attempts || (state.outcome === "won" && !trial.opponent);
      mine.replaceChildren(...[el("h2", {}, `You: attempt ${state.attempt} of ${state.attempts}, ${state.outcome ? "the end" : `turn ${state.turn} of ${state.turns}`}`),
        game.note && state.attempt > 1 ? el("div", { class: "note" }, el("h3", {}, "Your note"), el("pre", {}, game.note)) : null,
        state.drawing ? playable(state.drawing, state.outcome ? [] : state.moves, play) : el("pre", { class: "seen", tabindex: "0" }, state.seen),
        state.valid ? (state.feedback ? el("p", {}, state.feedback) : null) : el("p", { class: "bad" }, `${state.feedback || "That is not a move here."} It took no turn.`),
        state.outcome ? el("p", { class: `does ${verdicts[state.outcome]}` }, `${state.outcome}, reward ${Number(state.reward.toPrecision(4))}`) : [moveButtons(state, play), typed(play)],
        state.outcome && isLast ? el("p", { class: "lead" }, verdict(state.past, trial)) : null,
        state.outcome && !isLast ? el("form", { submit: (event) => { event.preventDefault(); game.note = event.target.elements.note.value.trim(); act("next", {}); } },
          el("label", {}, "What will you remember? ", el("textarea", { name: "note", rows: 3 }, game.note)), el("p", {}, el("button", { class: "go" }, "Next attempt"))) : null,
        state.outcome && isLast ? el("p", {}, el("button", { type: "button", click: async () => { Object.assign(game, { state: await change("begin", given), note: "" }); refill(); } }, "Play it again")) : null,
        state.drawing ? el("details", {}, el("summary", {}, "In words"), el("pre", {}, state.seen)) : null,
        el("details", {}, el("summary", {}, "The rules"), el("pre", {}, state.rules))].flat().filter(Boolean));
      const episode = trial.episodes[state.attempt - 1];
      other.replaceChildren(...[el("h2", {}, "The agent"), state.turn === 1 && !state.outcome
        ? el("p", { class: "notice" }, "What it did at this turn is shown when you have moved.") : episode
        ? stage(trial, settled(trial, { episode: state.attempt - 1, turn: state.outcome ? 1e9 : state.turn - 2 }), "h3")
        : el("p", { class: "notice" }, trial.solved ? `It was done: solved at attempt ${trial.solved}.` : `It played ${trial.episodes.length} attempts.`)]);
      said.textContent = state.outcome || `turn ${state.turn}. ${state.feedback}`;
      if (focus) [...mine.querySelectorAll("button, input")].find((each) => each.getAttribute("title") === focus || each.name === focus)?.focus();
    }
    place.replaceChildren(el("h1", {}, "Play it yourself"), el("p", { class: "soft" }, `${trial.class} · seed ${trial.seed} · beside task ${trial.place + 1} of ${trial.card.title}, ${armName(trial.arm)}`),
      said, el("div", { class: "pair" }, mine, other));
    refill();
    const keys = (event) => {
      const move = ARROWS[event.key];
      if (isTyping(event) || event.target.matches("pre, .scroll") || !move || game.state.outcome || !game.state.moves.includes(move)) return;
      event.preventDefault();
      play(move);
    };
    return { title: "Play it yourself", keys, runs: [], trail: [[trial.card.title, address("run", { run: params.run })],
      [`task ${trial.place + 1}`, address("trial", { run: params.run, arm: params.arm, place: params.place })]] };
  };
})();
