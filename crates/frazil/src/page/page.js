// What a page gains from a script: sorting, filtering, copying. Everything is readable without it.
"use strict";
for (const pre of document.querySelectorAll(".code pre")) {
  const button = document.createElement("button");
  button.type = "button";
  button.className = "copy";
  button.textContent = "Copy";
  button.addEventListener("click", async () => {
    try {
      await navigator.clipboard.writeText(pre.textContent);
    } catch {
      getSelection().selectAllChildren(pre);
      document.execCommand("copy");
    }
    button.textContent = "Copied";
    setTimeout(() => { button.textContent = "Copy"; }, 1500);
  });
  pre.after(button);
}
for (const table of document.querySelectorAll("table")) {
  const body = table.tBodies[0];
  if (body.rows.length < 3) continue;
  const heads = [...table.tHead.rows[0].cells];
  heads.forEach((head, column) => {
    if (head.textContent === "") return;
    const button = document.createElement("button");
    button.type = "button";
    button.append(...head.childNodes);
    head.append(button);
    button.addEventListener("click", () => {
      const down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach((other) => other.removeAttribute("aria-sort"));
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      const key = (row) => row.cells[column].dataset.v ?? row.cells[column].textContent;
      const order = (a, b) => {
        const [x, y] = [key(a), key(b)];
        const [p, q] = [x === "" ? NaN : Number(x), y === "" ? NaN : Number(y)];
        if (!isNaN(p) && !isNaN(q)) return p - q;
        if (isNaN(p) !== isNaN(q)) return isNaN(p) ? 1 : -1;
        return x.localeCompare(y);
      };
      const rows = [...body.rows].sort((a, b) => (down ? order(b, a) : order(a, b)));
      body.append(...rows);
    });
  });
  if (body.rows.length < 20) continue;
  const filter = document.createElement("input");
  filter.type = "search";
  filter.className = "filter";
  filter.placeholder = "Filter these " + body.rows.length + " rows";
  filter.setAttribute("aria-label", filter.placeholder);
  filter.addEventListener("input", () => {
    const wanted = filter.value.toLowerCase();
    for (const row of body.rows) row.hidden = !row.textContent.toLowerCase().includes(wanted);
  });
  table.parentElement.before(filter);
}
