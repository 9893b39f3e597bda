"use strict";
// A click on a heading sorts a table, a box above a long one keeps the rows that hold a text, a button copies it as CSV.
// Charts with Vega get hover values, and legends that hide lines. Without this script all stands as it was written.
const text = (cell) => (cell ? cell.title || cell.textContent.trim() : "");
const number = (shown) => {
  const found = shown.replaceAll("\u2212", "-").replaceAll(",", "").match(/^[-+]?[\d.]+(e[-+]?\d+)?/);
  return found ? Number(found[0]) : NaN;
};
const button = (words, act) => {
  const made = document.createElement("button");
  made.append(...words);
  made.addEventListener("click", act);
  return made;
};
const csv = (table) =>
  [...table.rows]
    .map((row) => [...row.cells].map((cell) => `"${text(cell).replaceAll('"', '""').replace(/^[=+\-@]/, "'$&")}"`).join())
    .join("\n");
for (const table of document.querySelectorAll("table.sortable")) {
  const rows = [...table.querySelectorAll("tbody tr")];
  // A heading names its column; where there is one line of headings, each stands above its own.
  const named = [...table.querySelectorAll("thead th[data-column]")];
  const headings = named.length || table.tHead.rows.length > 1 ? named : [...table.tHead.rows[0].cells];
  for (const heading of headings) {
    const column = named.length ? Number(heading.dataset.column) : heading.cellIndex;
    const sort = () => {
      const keys = new Map(rows.map((row) => [row, text(row.cells[column])]));
      const isNumber = rows.some((row) => !Number.isNaN(number(keys.get(row))));
      const before = heading.getAttribute("aria-sort");
      const sign = before ? (before === "ascending" ? -1 : 1) : isNumber ? -1 : 1;
      const order = (one, other) => {
        const [a, b] = [keys.get(one), keys.get(other)];
        if (!isNumber) return sign * a.localeCompare(b);
        const [x, y] = [number(a), number(b)];
        if (Number.isNaN(x) || Number.isNaN(y)) return Number.isNaN(x) - Number.isNaN(y);
        return sign * (x - y);
      };
      for (const other of table.querySelectorAll("thead th")) other.removeAttribute("aria-sort");
      heading.setAttribute("aria-sort", sign > 0 ? "ascending" : "descending");
      table.tBodies[0].append(...rows.slice().sort(order));
    };
    heading.append(button([...heading.childNodes], sort));
  }
  const query = table.parentElement.nextElementSibling;
  if (query?.classList.contains("query"))
    query.append(button(["Copy the table as CSV"], () => navigator.clipboard.writeText(csv(table))));
  if (!table.classList.contains("long")) continue;
  const box = document.createElement("input");
  box.type = "search";
  box.placeholder = "only rows with \u2026";
  box.setAttribute("aria-label", "Show only rows that hold this text");
  box.addEventListener("input", () => {
    const wanted = box.value.toLowerCase();
    for (const row of rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.parentElement.before(box);
}
if (window.vegaEmbed)
  for (const chart of document.querySelectorAll(".chart")) {
    const options = { actions: false, ast: true, mode: "vega-lite", renderer: "svg" };
    const place = document.createElement("div");
    chart.append(place);
    vegaEmbed(place, JSON.parse(chart.querySelector("script").textContent), options).then(
      () => chart.querySelector("img").remove(),
      () => place.remove(),
    );
  }
