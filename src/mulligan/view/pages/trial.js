"use strict";
/* A trial, turn by turn, with the slider over training; and two trials of one task side by side. */
(() => {
  const { el, address, load, pages, attempts, moments, settled, stage, timeline, whole, armName, isTyping, isStill } = mulligan;

  const about = (trial) => [trial.class, `seed ${trial.seed}`, trial.opponent ? `against ${trial.opponent}` : "", `memory: ${trial.memory}`].filter(Boolean).join(" · ");

  function verdict(trial) {
    const count = trial.episodes.length;
    if (trial.opponent) {
      const [won, drawn] = ["won", "drawn"].map((stop) => trial.episodes.filter((episode) => episode.stop === stop).length);
      return `Won ${won} of ${count} episodes${drawn ? `, drawn ${drawn}` : ""}`;
    }
    if (trial.solved) return trial.solved === 1 ? "Solved at the first attempt" : `Solved at attempt ${trial.solved}`;
    return count ? `Not solved in ${count} attempt${count > 1 ? "s" : ""}` : "Nothing was played";
  }

  const asked = (params) => ({ episode: Number(params.episode || 1) - 1, turn: params.turn === "end" ? 1e9 : Number(params.turn || 1) - 1 });
  const written = (trial, moment) => ({ episode: moment.episode + 1,
    turn: moment.turn >= trial.episodes[moment.episode].turns.length ? "end" : moment.turn + 1 });

  /** The slider over the validations of training at which the same task was played. */
  function slider(trial, params) {
    const points = trial.same.filter((each) => each.arm.startsWith("validation-"));
    const now = points.findIndex((each) => each.arm === trial.arm && each.place === trial.place);
    if (points.length < 2 || now < 0) return null;
    const go = (number) => { location.replace(address("trial", { run: params.run, arm: points[number].arm, place: points[number].place, over: "training" })); };
    const label = (each) => armName(each.arm);
    const input = el("input", { type: "range", id: "over", min: 0, max: points.length - 1, step: 1, value: now, "aria-valuetext": label(points[now]),
      input: (event) => go(Number(event.target.value)) });
    return el("section", { class: "card over" }, el("label", { for: "over" }, "The same task over training: ", el("b", {}, label(points[now]))), input,
      el("div", { class: "points" }, points.map((each, number) => el("button", { type: "button", class: "point", "aria-current": number === now ? "step" : null,
        title: label(each), "aria-label": `update ${Number(each.arm.slice(-5))}: ${label(each)}`, click: () => go(number) }, attempts(each.outcomes), el("small", {}, each.arm.replace(/^\D*0*(?=\d)/, ""))))));
  }

  /** Keys for moments: arrows through the turns, up and down through the attempts. */
  function keysOf(trial, current, go, more = {}) {
    return (event) => {
      if (isTyping(event) || event.target.matches(".scroll, pre")) return;
      const all = moments(trial);
      const moment = current();
      const place = all.findIndex((each) => each.episode === moment.episode && each.turn === moment.turn);
      const steps = { ArrowRight: place + 1, ArrowLeft: place - 1, Home: 0, End: all.length - 1 };
      const wanted = event.key in steps ? all[steps[event.key]]
        : event.key === "ArrowDown" ? { episode: moment.episode + 1, turn: 0 } : event.key === "ArrowUp" ? { episode: moment.episode - 1, turn: 0 } : null;
      if (event.key in more) more[event.key]();
      if (!wanted || !trial.episodes[wanted.episode]) return;
      event.preventDefault();
      go(wanted);
    };
  }

  /** Whether a page tells what the note changed here: for some turns it was computed beforehand, or a model is asked. */
  function hasNoted(trial, moment) {
    if (isStill) return trial.noted.some(([episode, turn]) => episode === moment.episode + 1 && turn === moment.turn + 1);
    const episode = trial.episodes[moment.episode];
    return trial.isLocal && moment.episode > 0 && episode && episode.remembered && episode.turns[moment.turn];
  }

  let shadeBy = "";

  /** What tokens are shaded by; the choice holds for the trials that follow. */
  function shadeChooser(trial, params, changed) {
    if (isStill || !trial.isLocal || !trial.hasTokens) return [null, () => null];
    let known = null;
    const said = el("span", { class: "soft", role: "status" });
    const shade = () => {
      if (!shadeBy || !known) return null;
      const all = known.episodes.flatMap((episode) => [...episode.turns, episode.note]).filter((each) => each && each.advantage !== null);
      return { by: shadeBy, episodes: known.episodes, most: Math.max(1e-9, ...all.map((each) => Math.abs(each.advantage))) };
    };
    const choose = async () => {
      try {
        if (shadeBy && !known) { said.textContent = "One moment, please."; known = await load("tokens", { run: params.run, arm: params.arm, place: params.place }); }
        said.textContent = shadeBy === "advantage" && known.whyNoAdvantage ? known.whyNoAdvantage
          : { probability: "Red: unlikely when it was drawn.", advantage: "Green: made likelier; red: less likely.", "": "" }[shadeBy];
        changed();
      } catch (error) { said.textContent = error.message; }
    };
    const option = (value, text) => el("option", { value, selected: value === shadeBy }, text);
    const chooser = el("div", { class: "filters live-only" }, el("label", {}, "Shade tokens by ", el("select", { change: (event) => { shadeBy = event.target.value; choose(); } },
      option("", "nothing"), option("probability", "probability"), option("advantage", "advantage"))), said);
    if (shadeBy) choose();
    return [chooser, shade];
  }

  const hints = (text) => el("p", { class: "soft keys" }, text);

  pages.trial = async (params, place) => {
    const trial = await load("trial", { run: params.run, arm: params.arm, place: params.place });
    let moment = settled(trial, asked(params));
    const here = (more) => address("trial", { run: params.run, arm: params.arm, place: params.place, ...more });
    const scene = el("div", { class: "scene", "aria-live": "polite" }), line = el("div", {});
    const go = (wanted, isFar = false) => {
      moment = settled(trial, wanted);
      history.replaceState(null, "", here(written(trial, moment)));
      refill();
      if (isFar) line.scrollIntoView({ block: "start" });
    };
    const refill = () => {
      const focus = document.activeElement && document.activeElement.classList.contains("moment");
      line.replaceChildren(timeline(trial, moment, go));
      scene.replaceChildren(stage(trial, moment, "h2", shade()));
      if (hasNoted(trial, moment)) {
        scene.querySelector(".world").append(el("p", {}, el("a", { class: "button", href: address("noted", { run: params.run, arm: params.arm, place: params.place, ...written(trial, moment) }) }, "What the note changed here")));
      }
      if (focus) line.querySelector("[aria-current]").focus();
    };
    const [chooser, shade] = shadeChooser(trial, params, () => refill());
    const other = (to) => to === null ? null : here({ place: to });
    const step = (by) => { const all = moments(trial); const at = all.findIndex((each) => each.episode === moment.episode && each.turn === moment.turn); if (all[at + by]) go(all[at + by]); };
    const link = (to, text) => (to === null ? el("span", { class: "button off" }, text) : el("a", { class: "button", href: other(to) }, text));
    place.replaceChildren(...[
      el("div", { class: "heading" }, el("h1", {}, verdict(trial)), el("span", { class: "row" }, isStill ? null : el("a", { class: "button live-only", href: address("play", { run: params.run, arm: params.arm, place: params.place }) }, "Play it yourself"), link(trial.before, "‹ task before"), link(trial.after, "next task ›"))),
      el("p", { class: "soft" }, `Task ${trial.place + 1} · ${about(trial)} · ${armName(trial.arm)}`),
      slider(trial, params), line,
      el("div", { class: "row steps" }, el("button", { type: "button", click: () => step(-1) }, "‹ turn before"), el("button", { type: "button", class: "go", click: () => step(1) }, "next turn ›"),
        hints("Keys: ← → turns, ↑ ↓ attempts, n and p tasks. The address leads to this very turn.")),
      chooser, scene, el("h2", {}, "The whole trial"), whole(trial, go)].filter(Boolean));
    refill();
    if (params.over) document.getElementById("over")?.focus();
    const more = { n: () => trial.after !== null && (location.hash = other(trial.after)), p: () => trial.before !== null && (location.hash = other(trial.before)) };
    return { title: `Task ${trial.place + 1}: ${verdict(trial)}`, keys: keysOf(trial, () => moment, go, more), runs: [], isReading: trial.isBehind,
      trail: [[trial.card.title, address("run", { run: params.run })], ["trials", address("trials", { run: params.run, arm: params.arm })]] };
  };

  pages.both = async (params, place) => {
    const sides = await Promise.all([load("trial", { run: params.run, arm: params.arm, place: params.place }),
      load("trial", { run: params.run2, arm: params.arm2, place: params.place2 })]);
    const longest = { episodes: Array.from({ length: Math.max(...sides.map((side) => side.episodes.length)) }, (_, number) => ({
      turns: Array.from({ length: Math.max(...sides.map((side) => (side.episodes[number] || { turns: [] }).turns.length)) }) })) };
    let moment = settled(longest, asked(params));
    const scene = el("div", { class: "pair", "aria-live": "polite" });
    const go = (wanted) => {
      moment = settled(longest, wanted);
      history.replaceState(null, "", address("both", { ...params, ...written(longest, moment) }));
      refill();
    };
    const side = (trial) => {
      const has = trial.episodes[moment.episode];
      const late = has && moment.turn > has.turns.length;
      return el("section", { class: "side" }, el("h2", {}, trial.card.title, " ", el("span", { class: `verdict ${trial.solved ? "won" : "lost"}` }, verdict(trial))),
        timeline(trial, settled(trial, moment), go),
        has ? [late ? el("p", { class: "notice" }, `Its attempt ${has.number} had ended after ${has.turns.length} turn${has.turns.length === 1 ? "" : "s"}.`) : null, stage(trial, settled(trial, moment), "h3")]
          : el("p", { class: "notice" }, trial.solved ? `It was done: solved at attempt ${trial.solved}.` : `It played ${trial.episodes.length} attempts.`));
    };
    const refill = () => {
      const focus = document.activeElement && document.activeElement.classList.contains("moment");
      scene.replaceChildren(...sides.map(side));
      if (focus) scene.querySelector("[aria-current]")?.focus();
    };
    const step = (by) => { const all = moments(longest); const at = all.findIndex((each) => each.episode === moment.episode && each.turn === moment.turn); if (all[at + by]) go(all[at + by]); };
    place.replaceChildren(el("h1", {}, `One task, two agents`), el("p", { class: "soft" }, `${sides[0].class} · seed ${sides[0].seed}`),
      el("div", { class: "row steps" }, el("button", { type: "button", click: () => step(-1) }, "‹ turn before"), el("button", { type: "button", class: "go", click: () => step(1) }, "next turn ›"),
        hints("Both stand at the same attempt and turn. Keys: ← → turns, ↑ ↓ attempts.")), scene);
    refill();
    return { title: "One task, two agents", keys: keysOf(longest, () => moment, go), runs: [],
      trail: [["side by side", address("pair", { run: params.run, run2: params.run2, arm: params.arm, arm2: params.arm2 })]] };
  };
})();
