"use strict";
/* Elements from tags, attributes and text. Text becomes text nodes and nothing else: no page has a way from a string to
   HTML, since what models, worlds and folders say is not to be trusted. */
window.mulligan = { pages: {} };
(() => {
  const { pages } = mulligan;
  const PLAIN = new Set(["class", "id", "title", "type", "value", "min", "max", "step", "for", "name", "scope", "role",
    "placeholder", "tabindex", "colspan", "download", "list", "label", "open", "checked", "selected", "disabled",
    "rows", "maxlength", "width", "height", "datetime"]);
  const SVG = new Set(["viewBox", "d", "x", "y", "x1", "x2", "y1", "y2", "cx", "cy", "r", "points", "transform", "class",
    "text-anchor", "stroke-dasharray", "fill-opacity", "width", "height", "role", "rx"]);

  function fill(element, children) {
    for (const child of children.flat(Infinity)) {
      if (child === null || child === undefined || child === false) continue;
      element.append(child instanceof Node ? child : document.createTextNode(String(child)));
    }
    return element;
  }

  function el(tag, attributes = {}, ...children) {
    const element = document.createElement(tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined || value === false) continue;
      if (typeof value === "function") element.addEventListener(name, value);
      else if (name === "href") {
        if (!/^(#|blob:)/.test(value)) throw new Error(`a link to ${value}`);
        element.setAttribute("href", value);
      } else if (PLAIN.has(name) || name.startsWith("aria-") || name.startsWith("data-")) {
        element.setAttribute(name, value === true ? "" : String(value));
      } else throw new Error(`an attribute ${name}`);
    }
    return fill(element, children);
  }

  function svg(tag, attributes = {}, ...children) {
    const element = document.createElementNS("http://www.w3.org/2000/svg", tag);
    for (const [name, value] of Object.entries(attributes)) {
      if (value === null || value === undefined) continue;
      if (!SVG.has(name) && !name.startsWith("aria-")) throw new Error(`an attribute ${name}`);
      element.setAttribute(name, String(value));
    }
    return fill(element, children);
  }

  /** The address of a page: `#/trial?run=…`. Parameters without a value are left out. */
  function address(page, params = {}) {
    const given = Object.entries(params).filter(([, value]) => value !== undefined && value !== null && value !== "");
    const query = new URLSearchParams(given.map(([name, value]) => [name, String(value)])).toString();
    return `#/${page}${query ? `?${query}` : ""}`;
  }

  const percent = (share, digits = 1) => `${(100 * share).toFixed(digits)}`;
  const signed = (value, digits = 2) => `${value < 0 ? "−" : "+"}${Math.abs(value).toFixed(digits)}`;

  function ago(seconds) {
    if (!seconds) return "";
    const past = Date.now() / 1000 - seconds;
    const [size, unit] = [[86400, "day"], [3600, "hour"], [60, "minute"]].find(([size]) => past >= size) || [0, ""];
    if (!size) return "just now";
    const count = Math.floor(past / size);
    return `${count} ${unit}${count > 1 ? "s" : ""} ago`;
  }

  /** Whether a key is meant for what is typed in, and not for the page. */
  const isTyping = (event) => event.ctrlKey || event.metaKey || event.altKey
    || ["INPUT", "SELECT", "TEXTAREA"].includes(event.target.tagName);

  function download(name, blob) {
    const link = el("a", { href: URL.createObjectURL(blob), download: name.replace(/[^\w.-]+/g, "-") });
    link.click();
    setTimeout(() => URL.revokeObjectURL(link.getAttribute("href")), 10000);
  }

  Object.assign(mulligan, { pages, el, svg, address, percent, signed, ago, isTyping, download });
})();
