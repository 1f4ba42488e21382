"use strict";
// Sorting by a click on a heading, filtering by typing, and everything unfolded on paper. Without
// scripts the page is complete, only still.
(function () {
  function value(row, column) {
    var cell = row.cells[column];
    var raw = cell.getAttribute("data-v");
    return raw === null ? cell.textContent.trim() : Number(raw);
  }
  function compare(a, b) {
    if (typeof a === "number") { return a - Number(b); }
    return a.localeCompare(b, undefined, { numeric: true });
  }
  document.querySelectorAll("table.sort").forEach(function (table) {
    Array.from(table.tHead.rows[0].cells).forEach(function (head, column) {
      head.tabIndex = 0;
      function sort() {
        var down = head.getAttribute("aria-sort") === "descending" ? false : head.className.indexOf("n") === 0 || head.hasAttribute("aria-sort");
        Array.from(table.tHead.rows[0].cells).forEach(function (other) { other.removeAttribute("aria-sort"); });
        head.setAttribute("aria-sort", down ? "descending" : "ascending");
        Array.from(table.tBodies[0].rows).sort(function (a, b) {
          var order = compare(value(a, column), value(b, column));
          return down ? -order : order;
        }).forEach(function (row) { table.tBodies[0].appendChild(row); });
      }
      head.addEventListener("click", sort);
      head.addEventListener("keydown", function (event) { if (event.key === "Enter") { sort(); } });
    });
  });
  document.querySelectorAll("input[data-filter]").forEach(function (input) {
    input.hidden = false;
    input.addEventListener("input", function () {
      var wanted = input.value.toLowerCase();
      document.querySelectorAll("#" + input.getAttribute("data-filter") + " tbody tr").forEach(function (row) {
        row.hidden = row.textContent.toLowerCase().indexOf(wanted) === -1;
      });
    });
  });
  window.addEventListener("beforeprint", function () {
    document.querySelectorAll("#plan details").forEach(function (part) { part.open = true; });
  });
})();
