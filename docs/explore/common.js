"use strict";
const at = id => document.getElementById(id);
const minus = v => (v < 0 ? "−" : "") + +Math.abs(v).toFixed(3);
const line = (x1, y1, x2, y2, more) => '<line x1="' + x1 + '" y1="' + y1 + '" x2="' + x2 + '" y2="' + y2 + '" ' + more + '/>';
const dot = (x, y, r, more) => '<circle cx="' + x + '" cy="' + y + '" r="' + r + '" ' + more + '/>';
const many = (kind, points, more) => '<' + kind + ' points="' + points.map(p => p.map(c => +c.toFixed(2)).join(",")).join(" ") + '" ' + more + '/>';
