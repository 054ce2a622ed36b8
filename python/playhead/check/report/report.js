"use strict";
(() => {
  const rows = Array.from(document.querySelectorAll(".row"));
  document.documentElement.classList.add("js");
  if (rows.length === 0) return;

  const byId = (id) => document.getElementById(id);
  const search = byId("search");
  const subject = byId("subject");
  const count = byId("count");
  const nothing = byId("nothing");
  const expand = byId("expand");
  const chips = Array.from(document.querySelectorAll(".chip"));
  let outcome = "";
  let texts = null; // read when first searched: it is the page's whole text
  let subjects = null;

  const shownRows = () => rows.filter((row) => !row.hidden);

  const filter = () => {
    const words = search.value.toLowerCase().split(/\s+/).filter(Boolean);
    if (words.length) texts ??= rows.map((row) => row.textContent.toLowerCase());
    if (subject.value) subjects ??= rows.map((row) => row.querySelector(".subject").textContent);
    let shown = 0;
    rows.forEach((row, index) => {
      const fits =
        (!outcome || row.dataset.outcome === outcome) &&
        (!subject.value || subjects[index] === subject.value) &&
        words.every((word) => texts[index].includes(word));
      if (row.hidden === fits) row.hidden = !fits;
      if (fits) shown += 1;
    });
    const all = rows.length.toLocaleString("en");
    count.textContent =
      shown === rows.length ? `${all} tests` : `${shown.toLocaleString("en")} of ${all} tests`;
    nothing.hidden = shown > 0;
    expand.disabled = shown === 0;
    showExpand();
  };

  const choose = (chosen) => {
    outcome = chosen;
    for (const chip of chips) chip.setAttribute("aria-pressed", String(chip.dataset.outcome === chosen));
    filter();
  };

  const clear = () => {
    search.value = "";
    subject.value = "";
    choose("");
  };

  const copy = async (text) => {
    try {
      await navigator.clipboard.writeText(text);
      return true;
    } catch {
      // Not allowed, or no secure context: a page opened from a plain http server.
      const area = document.createElement("textarea");
      area.value = text;
      area.className = "offscreen";
      area.setAttribute("readonly", "");
      document.body.append(area);
      area.select();
      const done = document.execCommand("copy");
      area.remove();
      return done;
    }
  };

  const onCopy = async (button) => {
    const done = await copy(button.closest(".block").querySelector("code").textContent);
    button.textContent = done ? "Copied" : "Select it manually";
    button.classList.toggle("done", done);
    button.focus();
    setTimeout(() => {
      button.textContent = "Copy";
      button.classList.remove("done");
    }, 1500);
  };

  const allOpen = () => shownRows().every((row) => row.firstElementChild.open);
  const showExpand = () => {
    expand.textContent = allOpen() ? "Close all" : "Open all";
  };

  const goToRow = () => {
    const row = /^#row-\d+$/.test(location.hash) && byId(location.hash.slice(1));
    if (!row) return;
    if (row.hidden) clear();
    row.firstElementChild.open = true;
    row.scrollIntoView({ block: "start" });
    row.querySelector("summary").focus({ preventScroll: true });
  };

  document.querySelector(".chips").addEventListener("click", (event) => {
    const chip = event.target.closest(".chip");
    if (chip) choose(chip.dataset.outcome === outcome ? "" : chip.dataset.outcome);
  });
  search.addEventListener("input", filter);
  subject.addEventListener("change", filter);
  search.form.addEventListener("submit", (event) => event.preventDefault());
  byId("clear").addEventListener("click", () => {
    clear();
    search.focus();
  });
  expand.addEventListener("click", () => {
    const open = !allOpen();
    for (const row of shownRows()) row.firstElementChild.open = open;
    showExpand();
  });
  byId("rows").addEventListener("click", (event) => {
    const button = event.target.closest(".copy");
    if (button) onCopy(button);
  });
  byId("rows").addEventListener("toggle", showExpand, true);
  document.addEventListener("keydown", (event) => {
    if (event.ctrlKey || event.metaKey || event.altKey) return;
    if (event.key === "/" && !event.target.closest("input, select, textarea")) {
      event.preventDefault();
      search.focus();
    } else if (event.key === "Escape" && event.target === search) {
      search.value = "";
      filter();
    }
  });
  window.addEventListener("hashchange", goToRow);

  // A closed row prints as a line; what failed prints whole.
  let opened = [];
  window.addEventListener("beforeprint", () => {
    opened = shownRows().filter(
      (row) => row.dataset.outcome === "failed" && !row.firstElementChild.open,
    );
    for (const row of opened) row.firstElementChild.open = true;
  });
  window.addEventListener("afterprint", () => {
    for (const row of opened) row.firstElementChild.open = false;
  });

  filter();
  goToRow();
  window.addEventListener("load", goToRow); // where the browser went to the address by itself since
})();
