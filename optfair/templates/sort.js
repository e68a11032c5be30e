
"use strict";
function valueOf(cell) {
  var given = cell.getAttribute("data-value");
  return given === null ? cell.textContent : given === "" ? Infinity : Number(given);
}
document.querySelectorAll("table.sortable").forEach(function (table) {
  var heads = Array.from(table.tHead.rows[0].cells), body = table.tBodies[0];
  heads.forEach(function (head, column) {
    head.querySelector("button").addEventListener("click", function () {
      var down = head.getAttribute("aria-sort") === "ascending";
      heads.forEach(function (other) { other.removeAttribute("aria-sort"); });
      head.setAttribute("aria-sort", down ? "descending" : "ascending");
      Array.from(body.rows).map(function (row) {
        return { row: row, value: valueOf(row.cells[column]) };
      }).sort(function (a, b) {
        /* what has no number stays at the end */
        if (a.value === Infinity || b.value === Infinity) {
          return (a.value === Infinity) - (b.value === Infinity);
        }
        var order = typeof a.value === "number" ? a.value - b.value : a.value.localeCompare(b.value);
        return down ? -order : order;
      }).forEach(function (entry) { body.appendChild(entry.row); });
    });
  });
});
