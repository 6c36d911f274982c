(function () {
'use strict';
var root = document.documentElement, tip = document.getElementById('tip'), SVG = 'http://www.w3.org/2000/svg';
root.classList.add('js');

function all(at, what) { return Array.prototype.slice.call(at.querySelectorAll(what)); }
function make(kind, text, cls) { var e = document.createElement(kind); if (text) e.textContent = text; if (cls) e.className = cls; return e; }
function clamp(v, lo, hi) { return Math.max(lo, Math.min(hi, v)); }
function cell(row, i) { return row.children[i].textContent; }
function secs(ms) { return (ms / 1000).toFixed(3) + 's'; }

// The next of 1, 2, 5, 10, 20, ... that is at least v.
function nice(v) {
  var base = Math.pow(10, Math.floor(Math.log10(v)));
  var m = [1, 2, 5].filter(function (x) { return x * base >= v * 0.999; })[0] || 10;
  return m * base;
}
function label(ms, step) { return (ms / 1000).toFixed(step >= 1000 ? 0 : step >= 100 ? 1 : step >= 10 ? 2 : 3) + 's'; }

function showTip(text, x, y) {
  tip.textContent = text;
  tip.hidden = false;
  tip.style.left = clamp(x + 14, 8, Math.max(8, innerWidth - tip.offsetWidth - 8)) + 'px';
  tip.style.top = (y + 18 + tip.offsetHeight > innerHeight ? y - tip.offsetHeight - 10 : y + 18) + 'px';
}
function hideTip() { tip.hidden = true; }

// A Timeline lays the server's picture out for the width there is and the piece of time that is looked at.
function Timeline(fig) {
  var id = fig.dataset.h, t = this, svg = fig.querySelector('.plot'), box = fig.querySelector('.scroll'), height = +fig.dataset.height, bottom = height - (fig.dataset.v ? 18 : 4);
  var data = JSON.parse(document.getElementById(id + '-data').textContent), end = +fig.dataset.end;
  var table = document.getElementById(id + '-events'), rows = all(table, 'tbody tr'), bySeq = {}, list = [], now = -1;
  rows.forEach(function (r) { bySeq[r.id.slice(id.length + 1)] = r; });
  var bars = [], names = [], marks = all(svg, '.mark'), rules = all(svg, '.rule'), lanes = all(svg, '.lane'), lanenames = all(svg, '.lanename');
  var flag = svg.querySelector('.flag'), axis = svg.querySelector('.axis'), a = 0, b = end, W = 0, left = 78, right = 0, cursor = null;
  all(svg, '.bar').forEach(function (e) {
    var title = e.querySelector('title');
    if (title) { e.tip = title.textContent; title.remove(); }
    bars.push(e);
  });
  all(svg, '.barname').forEach(function (e) { e.need = e.textContent.length * 6.3 + 8; names.push(e); });
  lanenames.forEach(function (e) { e.full = e.textContent; });

  function x(ms) { return left + (ms - a) / (b - a) * (right - left); }
  function time(px) { return a + (px - left) / (right - left) * (b - a); }

  this.layout = function () {
    W = Math.max(300, box.clientWidth);
    left = W < 560 ? 48 : 78;
    right = W - 12;
    svg.setAttribute('viewBox', '0 0 ' + W + ' ' + height);
    svg.setAttribute('width', W);
    lanes.forEach(function (e) { e.setAttribute('width', W); });
    lanenames.forEach(function (e) { e.textContent = left < 60 && e.full === 'pg_locks' ? 'locks' : e.full; });
    bars.forEach(function (e) {
      var from = clamp(x(+e.dataset.a), left - 1, right + 1), to = clamp(x(+e.dataset.b), left - 1, right + 1);
      var out = +e.dataset.b < a || +e.dataset.a > b;
      e.style.display = out ? 'none' : '';
      e.setAttribute('x', from);
      e.setAttribute('width', Math.max(1.5, to - from));
    });
    names.forEach(function (e) {
      var from = clamp(x(+e.dataset.a), left, right), to = clamp(x(+e.dataset.b), left, right);
      e.classList.toggle('off', to - from < e.need);
      e.setAttribute('x', from + +(e.dataset.dx || 5));
    });
    marks.forEach(function (e) {
      var at = +e.dataset.a, out = at < a || at > b;
      e.style.display = out ? 'none' : '';
      if (!out) e.setAttribute('x', x(at));
    });
    rules.forEach(function (e) { place(e, +e.dataset.a); });
    if (flag) {
      var px = x(+flag.dataset.a);
      flag.style.display = px < left || px > right ? 'none' : '';
      flag.setAttribute('x', clamp(px, left + 28, right - 24));
    }
    ticks();
    fig.querySelector('.range').textContent = a === 0 && b === end ? 'whole run, ' + secs(end) : secs(a) + ' – ' + secs(b) + ' of ' + secs(end);
    if (cursor) place(cursor, cursor.at);
  };
  function place(e, at) {
    var px = x(at);
    e.style.display = at < a || at > b ? 'none' : '';
    e.setAttribute('x1', px);
    e.setAttribute('x2', px);
  }
  function ticks() {
    var step = nice((b - a) / ((right - left) / (W < 560 ? 60 : 90))), i;
    axis.textContent = '';
    for (i = Math.ceil(a / step); i * step <= b; i++) {
      var px = x(i * step), line = document.createElementNS(SVG, 'line'), text = document.createElementNS(SVG, 'text');
      line.setAttribute('class', 'grid');
      line.setAttribute('x1', px); line.setAttribute('x2', px); line.setAttribute('y1', 20); line.setAttribute('y2', bottom);
      text.setAttribute('x', clamp(px, left + 4, right - 14)); text.setAttribute('y', 14);
      text.textContent = label(i * step, step);
      axis.appendChild(line); axis.appendChild(text);
    }
  }
  this.view = function (from, to) {
    var w = clamp(to - from, Math.min(end, 2), end);
    a = clamp(from, 0, end - w);
    b = a + w;
    t.layout();
  };
  function zoom(f, at) { t.view(at - (at - a) * f, at + (b - at) * f); }
  function middle() { return cursor && cursor.at >= a && cursor.at <= b ? cursor.at : (a + b) / 2; }
  function focus() { t.view(+fig.dataset.fa, +fig.dataset.fb); }

  // Stepping: one event at a time, the story or everything.
  function choose() {
    var every = fig.querySelector('.every').checked, current = list[now];
    list = rows.filter(function (r) { return every || r.classList.contains('k'); });
    if (!list.length) list = rows;
    now = current ? nearest(current) : 0;
  }
  function nearest(row) {
    var i = list.indexOf(row), at = +row.dataset.t;
    if (i >= 0) return i;
    for (i = 0; i < list.length - 1 && +list[i + 1].dataset.t <= at; i++) { /* the last that is not later */ }
    return i;
  }
  this.go = function (row, quiet) {
    if (list.indexOf(row) < 0 && !row.classList.contains('k')) fig.querySelector('.every').checked = true;
    list = []; now = -1; choose();
    t.step(nearest(row), quiet);
  };
  this.step = function (i, quiet) {
    if (!list.length) return;
    if (list[now]) list[now].classList.remove('now');
    now = clamp(i, 0, list.length - 1);
    var row = list[now], at = +row.dataset.t;
    row.classList.add('now');
    if (!cursor) {
      cursor = document.createElementNS(SVG, 'line');
      cursor.setAttribute('class', 'cursor');
      cursor.setAttribute('y1', 18);
      cursor.setAttribute('y2', bottom);
      svg.appendChild(cursor);
    }
    cursor.at = at;
    if (at < a || at > b) t.view(at - (b - a) / 2, at + (b - a) / 2);
    place(cursor, at);
    fig.querySelector('.count').textContent = (now + 1) + ' of ' + list.length;
    if (!quiet) fig.querySelector('.now').textContent = cell(row, 0) + ' seconds, ' + cell(row, 3);
    all(fig, '[data-step]').forEach(function (e) {
      var back = e.dataset.step === 'first' || e.dataset.step === 'prev';
      e.setAttribute('aria-disabled', back ? now === 0 : now === list.length - 1);
    });
    state(data.states[+row.dataset.s]);
    near();
  };
  function state(s) {
    var out = fig.querySelector('.state');
    out.textContent = '';
    if (!s) return;
    s.r.forEach(function (r) {
      var num = /^r(\d+)/.exec(r[1]);
      out.appendChild(make('span', r[1], 'chip ' + r[0] + ' r' + (num ? (num[1] - 1) % 8 + 1 : 0)));
    });
    var holder = /^r(\d+)/.exec(s.l);
    out.appendChild(make('span', 'pg_locks: ' + s.l, 'chip ' + (holder ? 'up r' + ((holder[1] - 1) % 8 + 1) : '')));
    if (s.f) out.appendChild(make('span', 'in play: ' + s.f, 'chip up rf'));
  }
  function near() {
    var out = fig.querySelector('.near'), from = clamp(now - 3, 0, Math.max(0, list.length - 7));
    out.textContent = '';
    list.slice(from, from + 7).forEach(function (row, i) {
      var li = make('li'), button = make('button');
      button.type = 'button';
      if (from + i === now) li.setAttribute('aria-current', 'step');
      if (row.classList.contains('blamed')) li.className = 'blamed';
      button.appendChild(make('span', cell(row, 0), 'at'));
      button.appendChild(make('span', cell(row, 1), row.children[1].className));
      button.appendChild(make('span', cell(row, 3)));
      button.addEventListener('click', function () { t.step(from + i); });
      li.appendChild(button);
      out.appendChild(li);
    });
  }

  function command(what) {
    if (what === 'in') zoom(0.5, middle());
    if (what === 'out') zoom(2, middle());
    if (what === 'fit') t.view(0, end);
    if (what === 'focus') focus();
    if (what === 'first') t.step(0);
    if (what === 'prev') t.step(now - 1);
    if (what === 'next') t.step(now + 1);
    if (what === 'last') t.step(list.length - 1);
  }
  all(fig, '[data-do],[data-step]').forEach(function (e) {
    e.addEventListener('click', function () { command(e.dataset.do || e.dataset.step); });
  });
  fig.querySelector('.every').addEventListener('change', function () { choose(); t.step(now); });
  fig.addEventListener('keydown', function (e) {
    if (e.target.tagName === 'INPUT' || e.ctrlKey || e.metaKey || e.altKey) return;
    var pan = (b - a) / 5, done = true;
    if (e.key === 'ArrowRight' && e.shiftKey) t.view(a + pan, b + pan);
    else if (e.key === 'ArrowLeft' && e.shiftKey) t.view(a - pan, b - pan);
    else if (e.key === 'ArrowRight') command('next');
    else if (e.key === 'ArrowLeft') command('prev');
    else if (e.key === 'Home') command('first');
    else if (e.key === 'End') command('last');
    else if (e.key === '+' || e.key === '=') command('in');
    else if (e.key === '-') command('out');
    else if (e.key === '0') command('fit');
    else done = false;
    if (done) e.preventDefault();
  });

  // The pointer: hover says what a thing is, a click goes there, dragging moves, Ctrl and the wheel zoom.
  var drag = null;
  function pointed(e) { return e.target.closest ? e.target.closest('[data-e]') : null; }
  svg.addEventListener('pointermove', function (e) {
    if (drag) {
      var dx = e.clientX - drag.x;
      if (Math.abs(dx) > 3) { drag.moved = true; svg.classList.add('drag'); }
      if (drag.moved) { var d = dx / (right - left) * (b - a); t.view(drag.a - d, drag.b - d); }
      return;
    }
    var on = pointed(e), row = on && bySeq[on.dataset.e];
    if (!on && e.target.tip) on = e.target;
    if (on && on.tip) showTip(on.tip, e.clientX, e.clientY);
    else if (row) showTip(cell(row, 0) + 's  ' + cell(row, 3), e.clientX, e.clientY);
    else hideTip();
  });
  svg.addEventListener('pointerleave', hideTip);
  svg.addEventListener('pointerdown', function (e) { if (e.button === 0) drag = {x: e.clientX, a: a, b: b, on: pointed(e), px: e.offsetX}; });
  addEventListener('pointerup', function (e) {
    if (!drag) return;
    if (!drag.moved && svg.contains(e.target)) {
      var row = drag.on && bySeq[drag.on.dataset.e];
      if (row) t.go(row);
      else if (list.length) {
        var at = time(e.clientX - svg.getBoundingClientRect().left);
        t.step(list.reduce(function (best, r, i) { return Math.abs(+r.dataset.t - at) < Math.abs(+list[best].dataset.t - at) ? i : best; }, 0));
      }
    }
    drag = null;
    svg.classList.remove('drag');
  });
  addEventListener('pointercancel', function () { drag = null; svg.classList.remove('drag'); });
  svg.addEventListener('wheel', function (e) {
    if (e.ctrlKey || e.metaKey) { e.preventDefault(); zoom(e.deltaY > 0 ? 1.25 : 0.8, time(e.offsetX)); }
    else if (Math.abs(e.deltaX) > Math.abs(e.deltaY)) { e.preventDefault(); var d = e.deltaX / (right - left) * (b - a); t.view(a + d, b + d); }
  }, {passive: false});
  svg.addEventListener('dblclick', function (e) { zoom(0.4, time(e.offsetX)); });
  if (typeof ResizeObserver === 'function') new ResizeObserver(function () { if (box.clientWidth && box.clientWidth !== W) t.layout(); }).observe(box);

  table.addEventListener('click', function (e) {
    var row = e.target.closest('tbody tr');
    if (row && !String(getSelection())) t.go(row);
  });

  choose();
  t.layout();
  if (fig.dataset.fa) focus();
  // Begin where the violation is, with the last thing that happened until then; or else with the first fault.
  var until = list.filter(function (r) { return fig.dataset.v && +r.dataset.t <= +fig.dataset.v; });
  var first = list.filter(function (r) { return cell(r, 2) === 'fault applied'; })[0];
  if (until.length) t.go(until[until.length - 1], true); else if (first) t.go(first, true); else t.step(0, true);
}

var timelines = {};
function wake(fig) {
  var id = fig.dataset.h;
  if (!timelines[id] && fig.querySelector('.scroll').clientWidth) timelines[id] = new Timeline(fig);
}
all(document, '.tl').forEach(function (fig) {
  wake(fig);
  var around = fig.closest('details');
  if (around) around.addEventListener('toggle', function () { wake(fig); });
});

// A link into something that is folded up opens it.
function reveal() {
  var at = location.hash.length > 1 && document.getElementById(location.hash.slice(1));
  for (var e = at; e; e = e.parentElement) if (e.tagName === 'DETAILS') e.open = true;
  if (at) at.scrollIntoView();
}
addEventListener('hashchange', reveal);
if (location.hash) reveal();

all(document, '[data-go]').forEach(function (e) {
  e.addEventListener('click', function (ev) {
    var row = document.getElementById(e.dataset.go), id = e.dataset.go.split('-')[0];
    if (!row || !timelines[id]) return;
    ev.preventDefault();
    timelines[id].go(row);
    document.querySelector('.tl[data-h="' + id + '"]').scrollIntoView({block: 'nearest'});
  });
});

all(document, '[data-filter]').forEach(function (input) {
  var id = input.dataset.filter, rows = null, texts, story = document.querySelector('[data-key="' + id + '"]');
  var shown = input.closest('.filter').querySelector('.shown'), wait;
  function apply() {
    if (!rows) {
      rows = all(document.getElementById(id + '-events'), 'tbody tr');
      texts = rows.map(function (r) { return r.textContent.toLowerCase(); });
    }
    var want = input.value.toLowerCase().split(/\s+/).filter(Boolean), n = 0;
    rows.forEach(function (r, i) {
      var ok = (!story.checked || r.classList.contains('k')) && want.every(function (w) { return texts[i].indexOf(w) >= 0; });
      r.hidden = !ok;
      if (ok) n++;
    });
    shown.textContent = want.length || story.checked ? n + ' shown' : '';
  }
  input.addEventListener('input', function () { clearTimeout(wait); wait = setTimeout(apply, 80); });
  story.addEventListener('change', apply);
});

all(document, '.copy').forEach(function (button) {
  button.addEventListener('click', function () {
    var code = button.parentElement.querySelector('code');
    function said(ok) { button.textContent = ok ? 'Copied' : 'Press Ctrl+C'; setTimeout(function () { button.textContent = 'Copy'; }, 1500); }
    function select() {
      var range = document.createRange();
      range.selectNodeContents(code);
      getSelection().removeAllRanges();
      getSelection().addRange(range);
      said(document.execCommand('copy'));
    }
    if (navigator.clipboard && navigator.clipboard.writeText) navigator.clipboard.writeText(code.textContent).then(function () { said(true); }, select);
    else select();
  });
});
})();
