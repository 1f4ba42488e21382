"use strict";
// The page holds one state, applies the deltas of /feed to it (state.go: Apply), and draws what has changed. Everything that comes
// from the cluster is set as text, never as markup.
(function () {
  var $ = function (id) { return document.getElementById(id); };
  var printed = /^#[A-Z2-7]{26}$/.test(location.hash); // by theseus web; a token of Kubernetes never comes by an address
  var token = printed ? location.hash.slice(1) : sessionStorage.getItem("token") || "", server = token ? "theseus web" : "the server of this page";
  if (printed) { // the address bar is in pictures of the screen
    sessionStorage.setItem("token", token);
    history.replaceState(null, "", location.pathname);
  }
  var migration = new URLSearchParams(location.search).get("migration") || "", following = null, signIn = null;
  var plan = null, nodes = [], steps = [], lines = [], strip = { classes: [] }, cells = new Map(), now = null;
  var moments = new Map(); // of the timeline, with their lines, by their keys
  var bgp = null;
  var lastEvent = 0, cutSince = 0, why = "", notice = "";
  var epoch = 0, old = new Error("for what is not on the page any more");
  var words = { todo: "to do", moving: "moving", watched: "watched", done: "done", failed: "failed", undone: "undone" };

  function ask(path, options) {
    options = Object.assign({ headers: {}, cache: "no-store" }, options);
    options.headers = Object.assign(token ? { Authorization: "Bearer " + token } : {}, options.headers);
    return fetch(path + (migration ? (path.indexOf("?") < 0 ? "?" : "&") + "migration=" + encodeURIComponent(migration) : ""), options);
  }
  async function refusal(answer) {
    var error = new Error((await answer.text()).trim());
    error.signIn = answer.headers.has("WWW-Authenticate");
    error.code = answer.status;
    return error;
  }
  async function get(path) { // throws old if the person has signed out meanwhile, or has chosen another migration
    var since = epoch, found = null, failed = null;
    try {
      var answer = await ask(path);
      if (answer.ok) { found = await answer.json(); } else { failed = await refusal(answer); }
    } catch (error) { failed = error; }
    if (since !== epoch) { throw old; }
    if (failed) { throw failed; }
    return found;
  }
  function make(tag, className, text) {
    var element = document.createElement(tag);
    if (className) { element.className = className; }
    if (text !== undefined) { element.textContent = text; }
    return element;
  }
  function set(id, text) { if ($(id).textContent !== text) { $(id).textContent = text; } }
  function number(n) { return n.toLocaleString("en-US"); }
  function count(n, noun) { return number(n) + " " + noun + (n === 1 ? "" : "s"); }
  function known(text) { return text && text.slice(0, 4) !== "0001"; }
  function clock(text) { return known(text) ? new Date(text).toISOString().slice(11, 19) : "–"; }
  function span(ms) { // as the report writes durations
    if (ms < 10) { return Math.round(ms * 10) / 10 + " ms"; }
    if (ms < 999.5) { return Math.round(ms) + " ms"; }
    if (ms < 59995) { return Math.round(ms / 10) / 100 + " s"; }
    var s = Math.round(ms / 1000);
    return s < 3600 ? Math.floor(s / 60) + " min " + s % 60 + " s" : Math.floor(s / 3600) + " h " + Math.floor(s % 3600 / 60) + " min";
  }

  // --- the feed

  async function follow() {
    for (var wait = 500; ; wait = Math.min(wait * 2, 5000)) {
      var stop = following = new AbortController(), reader = null, watchdog;
      var alive = function () {
        lastEvent = Date.now();
        clearTimeout(watchdog);
        watchdog = setTimeout(function () { stop.abort(); }, 15000); // the server sends something every 5 s
      };
      try {
        alive();
        if (!plan || plan.waits) {
          var found = await get("plan");
          if (stop.chosen) { continue; } // another one, meanwhile
          if (!plan || !found.waits) {
            plan = found;
            begin();
          }
        }
        var answer = await ask("feed", { signal: stop.signal });
        if (!answer.ok) { throw await refusal(answer); }
        var decoder = new TextDecoder(), rest = "";
        reader = answer.body.getReader();
        for (;;) {
          var part = await reader.read();
          if (part.done) { throw new Error(server + " closed the connection"); }
          alive();
          rest += decoder.decode(part.value, { stream: true });
          var events = rest.split("\n\n");
          rest = events.pop();
          events.forEach(function (event) {
            if (event.slice(0, 6) === "data: ") { take(JSON.parse(event.slice(6))); wait = 250; }
          });
          if (cutSince) { cutSince = 0; stale(); }
        }
      } catch (error) {
        clearTimeout(watchdog);
        stop.abort(); // whatever failed, the next connection is the only one
        if (reader) { reader.cancel().catch(function () {}); }
        if (stop.chosen) { wait = 250; continue; }
        if (error.signIn) {
          await signedIn(token ? error.message : "");
          wait = 250;
          continue;
        }
        if (error.code === 404 && migration && !plan) { // it was withdrawn
          migration = "";
          history.replaceState(null, "", location.pathname);
          notice = error.message + " This is the latest one.";
          wait = 250;
          continue;
        }
        cutSince = cutSince || lastEvent;
        why = error.name === "AbortError" ? server + " does not answer" : error.name === "TypeError" ? server + " cannot be reached" : error.message;
        stale();
      }
      await new Promise(function (resume) { setTimeout(resume, wait); });
    }
  }
  function take(d) {
    var redo = { now: !!d.now, cells: d.nodes || [], steps: d.steps || [], lines: d.lines || [], strip: !!(d.strip || d.cells) };
    if (d.full) { nodes = []; steps = []; lines = []; strip = { classes: [] }; cells = new Map(); $("waves").textContent = ""; $("lines").textContent = $("timeline").textContent = ""; moments = new Map(); buttonsOf = []; bgp = null; }
    if (d.now) { now = d.now; }
    redo.cells.forEach(function (one) { nodes[one.i] = one; });
    redo.steps.forEach(function (one) { steps[one.i] = one.m; });
    lines = lines.concat(redo.lines).slice(-300);
    if (d.strip) { strip = d.strip; cells = new Map(); }
    (d.cells || []).forEach(function (c) { cells.set(c.c + "/" + c.b, c); });
    if (redo.cells.length) { drawNodes(redo.cells); }
    if (redo.steps.length) { drawPlan(redo.steps); }
    if (redo.lines.length) { drawLines(redo.lines); }
    if (d.timeline) { drawTimeline(d.timeline); }
    if (redo.now) { drawNow(); }
    if (d.now && d.now.withdrawn && plan.user) { lookAround(); }
    if (redo.strip) { requestAnimationFrame(drawStrip); }
    if (d.bgp) { bgp = d.bgp; }
    if (d.bgp || d.full) { drawBGP(); }
    document.body.setAttribute("data-updates", Number(document.body.getAttribute("data-updates") || 0) + 1);
  }

  // --- who looks, where the page asks for a token. It stays in this variable: a cookie or the browser's storage would outlive the tab,
  // and a cookie would go to other ports of this machine as well.

  function signedIn(refused) { // ends when the person has given a token
    token = "";
    forget();
    document.body.classList.add("locked");
    document.title = "Sign in · Theseus";
    set("refused", refused);
    $("refused").className = "bad";
    $("signin").hidden = false;
    $("token").focus();
    return new Promise(function (resume) { signIn = resume; });
  }
  $("signin").addEventListener("submit", function (event) {
    event.preventDefault();
    token = $("token").value.trim().replace(/^Bearer\s+/i, "");
    $("token").value = "";
    set("refused", "");
    if (!/^[\x21-\x7e]+$/.test(token)) { token = ""; set("refused", "This is no token: it has spaces, or other characters than a token has."); return; }
    $("signin").hidden = true;
    document.body.classList.remove("locked");
    set("now", "Connecting");
    $("now").focus();
    if (signIn) { signIn(); signIn = null; }
  });
  function forget() { // what is known of a migration, and what is still asked of it
    epoch++;
    opener = null;
    if ($("dialog").open) { $("dialog").close(); }
    plan = now = stepDetail = null;
    stepShown = -2;
    nodes = []; steps = []; lines = []; strip = { classes: [] }; cells = new Map(); moments = new Map(); buttonsOf = []; chapters = []; chapterOf = []; items = [];
    cutSince = 0;
    ["waves", "lines", "timeline", "timenote", "workloadsnote", "plan", "buttons", "step", "figures", "remarks", "name", "change", "line", "stand", "said", "foot", "plannote", "stripnote", "detail"].forEach(function (id) { $(id).textContent = ""; });
    $("classes").tBodies[0].textContent = $("workloads").tBodies[0].textContent = "";
    workloadsAt = "";
    $("stale").hidden = $("who").hidden = true;
    $("verdict").className = "verdict";
    set("now", "Connecting");
    drawStrip();
    bgp = null;
    drawBGP();
  }
  function again() { following.chosen = true; following.abort(); }
  $("signout").addEventListener("click", function () { token = ""; forget(); again(); });
  $("others").addEventListener("change", function () {
    migration = $("others").value;
    history.replaceState(null, "", "?migration=" + encodeURIComponent(migration));
    forget();
    again();
  });
  function drawWho() {
    $("who").hidden = !plan.user;
    set("user", plan.user ? "Signed in as " + plan.user : "");
    var all = plan.others || [];
    if (all.indexOf(plan.name) < 0) { all = all.concat([plan.name]); } // it was withdrawn, or the person may not list them
    $("chooser").hidden = all.length < 2;
    $("others").replaceChildren.apply($("others"), all.map(function (name) {
      var option = make("option", "", name);
      option.value = name;
      option.selected = name === plan.name;
      return option;
    }));
  }

  function lookAround() { // what there is instead of a migration that was withdrawn
    var name = migration;
    migration = "";
    get("plan").then(function (found) {
      if ((found.others || []).indexOf(name) >= 0) { forget(); again(); return; } // another one of its name
      plan.others = found.others;
      drawWho();
    }, function () {}); // the chooser stays as it is
    migration = name;
  }

  // --- at one look

  function stale() {
    var text = "";
    if (cutSince) {
      text = "Stale since " + new Date(cutSince).toISOString().slice(11, 19) + " UTC: " + why + ". Trying again.";
    } else if (now && known(now.since)) {
      text = "Stale since " + clock(now.since) + " UTC: the API server cannot be read: " + now.why + ". Trying again.";
    }
    set("stale", text);
    $("stale").hidden = !text;
    $("bgp").className = text ? "old" : "";
    drawSentence(text !== "");
    drawFigures(text !== "");
  }
  function drawSentence(old) {
    if (!now) { return; }
    set("now", old ? "Not known at the moment" : now.loss);
    $("verdict").className = "verdict " + (old ? "stale" : now.tone);
    document.title = (old ? "stale" : now.loss) + " · Theseus · " + plan.name;
  }
  function drawNow() {
    stale();
    var seen = now.seen, none = seen.sent === 0, gap = seen.longestGapMillis;
    set("stand", now.stand + (now.asked ? ", asked to " + now.asked : ""));
    set("line", none ? "No path has been measured yet." : count(seen.paths, "path") + ", " + count(seen.sent, "probe") + ": " + number(seen.lost) + " lost, " +
      (seen.excused ? number(seen.excused) + " excused, " : "") + number(seen.leaked) + " denied answered" + (gap ? ", longest gap " + span(gap) : ", no gap") + ".");
    list($("remarks"), now.remarks || []);
    drawStep();
    drawClasses();
    set("foot", "Plan " + plan.hash + ". Times are UTC. This page loads nothing from elsewhere." + (known(now.measured) ? " Last results " + clock(now.measured) + "." : ""));
  }
  function drawFigures(old) { // none is green while the sentence is not known
    if (!now) { return; }
    var seen = now.seen, none = seen.sent === 0, good = old || now.tone === "none" ? "" : "ok", limit = plan.limitMillis, gap = seen.longestGapMillis;
    var tone = function (bad) { return none ? "none" : bad ? "bad" : good; };
    var nodesTotal = nodes.length, took = known(now.begun) ? (known(now.ended) ? Date.parse(now.ended) : Date.now()) - Date.parse(now.begun) : 0;
    figures([
      ["Lost probes", none ? "no data" : number(seen.lost), none ? "" : "of " + number(seen.sent), plan.compared && seen.lost ? "warn" : tone(seen.lost)],
      ["Denied answered", none ? "no data" : number(seen.leaked), "policy must block these", tone(seen.leaked)],
      ["Longest gap", none ? "no data" : gap ? span(gap) : "none", plan.compared ? "compared with the baseline" : limit ? "the gates allow " + span(limit) : "no gate names a limit", none ? "none" : gap > limit && !plan.compared ? "bad" : gap ? "warn" : good],
      ["Nodes done", number(now.doneNodes), "of " + number(nodesTotal), ""],
      ["Steps done", number(now.doneSteps), "of " + number(plan.steps.length), ""],
      [now.left ? "Time left" : "Duration", now.left ? now.left.replace("about ", "") : took > 0 ? span(took) : "–", took > 0 ? "began " + clock(now.begun) + " UTC" : "not begun", ""]
    ]);
  }
  function list(parent, texts) {
    if (parent.textContent === texts.join("")) { return; }
    parent.replaceChildren.apply(parent, texts.map(function (text) { return make("li", "", text); }));
  }
  function figures(all) {
    var parent = $("figures");
    all.forEach(function (one, i) {
      var box = parent.children[i];
      if (!box) { box = make("div"); box.append(make("dt"), make("dd", "value"), make("dd", "note")); parent.append(box); }
      box.children[0].textContent = one[0];
      box.children[1].textContent = one[1];
      box.children[1].className = "value " + one[3];
      box.children[2].textContent = one[2];
    });
  }
  var stepShown = -2, stepDetail = null;
  async function drawStep() {
    var parts = [];
    if (now.step >= 0) {
      var head = make("h3");
      head.append(make("span", "no", now.step + 1 + "/" + plan.steps.length), plan.steps[now.step].t);
      parts.push(head);
      if (stepShown !== now.step) {
        stepShown = now.step; stepDetail = null;
        get("step?i=" + now.step).then(function (detail) { if (now && stepShown === now.step) { stepDetail = detail; drawStep(); } }, function () { stepShown = -2; });
      }
      if (stepDetail && stepDetail.why) { parts.push(make("p", "soft", stepDetail.why)); }
      if (now.action) { parts.push(make("p", "", "Now: " + now.action)); }
    }
    if (now.gate) {
      var gate = make("div", "gate");
      gate.append(make("b", "", "Gate: " + now.gate), make("p", "", now.missing));
      parts.push(gate);
    }
    if (now.cause) { parts.push(make("p", "bad-text", "Cause: " + now.cause)); }
    (now.waits || []).forEach(function (text) { parts.push(make("p", "", "Waiting for: " + text)); });
    if (now.runner) { parts.push(make("p", "soft", now.runner + (now.ways ? ": " + now.ways : ""))); }
    if (!parts.length) { parts.push(make("p", "soft", now.over ? "The run has ended." : "No step is under way.")); }
    $("step").replaceChildren.apply($("step"), parts);
    Array.from($("buttons").children).forEach(function (button) { button.disabled = !!now.over; });
  }
  function drawClasses() {
    var body = $("classes").tBodies[0], all = now.classes || [];
    while (body.rows.length > all.length) { body.deleteRow(-1); }
    all.forEach(function (one, i) {
      var row = body.rows[i] || body.insertRow();
      var values = [one.name, one.denied ? "denied" : "answered", number(one.paths), number(one.sent), one.denied ? "–" : number(one.lost), one.denied ? number(one.leaked) : "–",
        one.longestMillis ? span(one.longestMillis) : "none", one.denied || !one.p50 ? "–" : span(one.p50 / 1000), one.denied || !one.p99 ? "–" : span(one.p99 / 1000)];
      values.forEach(function (value, k) {
        var cell = row.cells[k] || row.insertCell();
        if (cell.textContent !== value) { cell.textContent = value; }
        cell.className = k < 2 ? "" : "n" + (k === 4 && one.lost ? plan.compared ? " warn" : " bad" : k === 5 && one.leaked ? " leak" : value === "0" || value === "–" || value === "none" ? " zero" : "");
      });
    });
  }

  // --- nodes

  var buttonsOf = [];
  function drawNodes(changed) {
    var waves = new Set();
    changed.forEach(function (one) {
      var button = buttonsOf[one.i];
      if (!button) {
        button = buttonsOf[one.i] = make("button");
        button.type = "button";
        button.tabIndex = one.i === 0 ? 0 : -1; // one stop for Tab; arrows go from cell to cell
        button.addEventListener("click", function () { showNode(one.n, button); });
        waveOf(one.w).append(button);
      }
      button.className = one.m;
      button.title = one.n + ": " + words[one.m];
      button.setAttribute("aria-label", button.title);
      waves.add(one.w);
    });
    waves.forEach(function (wave) {
      var box = waveOf(wave), members = nodes.filter(function (n) { return n.w === wave; }), wide = members.length <= 40 && nodes.length <= 200;
      box.className = wide ? "cells wide" : "cells";
      members.forEach(function (n) { if (wide) { buttonsOf[n.i].textContent = n.n; } });
      var sums = {};
      members.forEach(function (n) { sums[n.m] = (sums[n.m] || 0) + 1; });
      var text = Object.keys(words).filter(function (m) { return sums[m]; }).map(function (m) { return sums[m] + " " + words[m]; }).join(", ");
      box.previousSibling.lastChild.textContent = text;
    });
    var moving = changed.find(function (one) { return one.m === "moving"; });
    if (moving && !$("waves").contains(document.activeElement)) { // of many waves, the one under way is in sight
      $("waves").scrollTop = waveOf(moving.w).parentNode.offsetTop - 120;
    }
  }
  function waveOf(name) {
    var all = $("waves").children;
    for (var i = 0; i < all.length; i++) { if (all[i].dataset.wave === name) { return all[i].lastChild; } }
    var row = make("div", "wave"), label = make("div", "", name);
    row.dataset.wave = name;
    label.append(make("span", "soft"));
    row.append(label, make("div", "cells"));
    $("waves").append(row);
    return row.lastChild;
  }
  $("waves").addEventListener("keydown", function (event) {
    var at = buttonsOf.indexOf(event.target), step = { ArrowRight: 1, ArrowLeft: -1, Home: -at, End: buttonsOf.length - 1 - at }[event.key];
    if (at >= 0 && (event.key === "ArrowDown" || event.key === "ArrowUp")) { step = below(at, event.key === "ArrowDown" ? 1 : -1); }
    var next = buttonsOf[at + step];
    if (at < 0 || step === undefined || !next) { return; }
    event.preventDefault();
    event.target.tabIndex = -1; next.tabIndex = 0; next.focus();
  });
  function below(at, way) { // the cell above or below
    var from = buttonsOf[at].getBoundingClientRect();
    for (var i = at + way; buttonsOf[i]; i += way) {
      var box = buttonsOf[i].getBoundingClientRect();
      if ((box.top - from.top) * way > 4 && (way > 0 ? box.right > from.left : box.left <= from.left || i === 0)) { return i - at; }
    }
  }

  // --- workloads: what the journal tells comes by itself, and in clusters of up to 50 nodes the restarts, too. In larger ones all pods
  // are read only when a person asks for it.

  var workloadsAt = "", asking = false, wanted = false;
  async function readWorkloads(live) {
    if (!plan || plan.waits) { return; }
    if (asking) { wanted = wanted || live; return; }
    asking = true;
    workloadsAt = progress() + (live && !small() ? " kept" : "");
    try { drawWorkloads(await get("workloads" + (live ? "?restarts=1" : ""))); } catch (error) {
      if (error !== old) { set("workloadsnote", "The workloads cannot be read: " + error.message); }
    }
    asking = false;
    if (wanted) { wanted = false; readWorkloads(true); }
  }
  function small() { return Math.max(nodes.length, plan.nodes || 0) <= 50; }
  function progress() { return now ? String(now.doneSteps) + now.stand + now.seen.sent : "before"; }
  function keepWorkloads() {
    if (!document.hidden && !cutSince && workloadsAt.slice(-5) !== " kept" && workloadsAt !== progress()) { readWorkloads(small()); }
  }
  setInterval(keepWorkloads, 30000);
  $("readworkloads").addEventListener("click", function () { set("workloadsnote", "Reading all pods."); readWorkloads(true); });
  function drawWorkloads(d) {
    var body = $("workloads").tBodies[0], tone = function (n, bad) { return n ? "n " + bad : "n zero"; };
    set("workloadsnote", d.note);
    body.replaceChildren.apply(body, (d.list || []).map(function (w) {
      var row = make("tr"), unread = d.unread || w.unread;
      row.append(make("td", "break", w.namespace + "/" + w.name), make("td", "", w.kind), make("td", "n", unread ? "not read" : number(w.pods)), make("td", tone(w.moved, ""), number(w.moved)), make("td", tone(w.evicted, "warn"), number(w.evicted)),
        make("td", unread ? "n" : tone(w.restarts, "bad"), unread ? "not read" : number(w.restarts)), make("td", tone(w.shortMillis, ""), w.shortMillis ? span(w.shortMillis) : "–"));
      return row;
    }));
    $("workloadsbox").hidden = !body.rows.length;
  }

  // --- the BGP graph: marks and lines in the places that the server gives (draw.Picture), and the same as a table

  function drawing(tag, attributes, text) {
    var element = document.createElementNS($("drawings").namespaceURI, tag);
    Object.keys(attributes).forEach(function (name) { element.setAttribute(name, attributes[name]); });
    if (text !== undefined) { element.textContent = text; }
    return element;
  }
  function label(l, more) {
    var at = { x: l.x, y: l.y, "text-anchor": l.anchor, class: "label" + more };
    if (l.turn) { at.transform = "rotate(" + l.turn + " " + l.x + " " + l.y + ")"; at["dominant-baseline"] = "central"; }
    return drawing("text", at, l.text);
  }
  function sessions(t) {
    var all = (t.up || 0) + (t.down || 0) + (t.unknown || 0);
    return number(t.up || 0) + " of " + count(all, "session") + " up" + (t.down ? ", " + number(t.down) + " down" : "") + (t.unknown ? ", " + number(t.unknown) + " not known" : "");
  }
  function drawBGP() {
    $("bgpbox").hidden = !bgp;
    var focused = document.activeElement.closest && document.activeElement.closest("#bgp g"), name = focused && focused.dataset.name;
    var opened = Array.from($("bgp").querySelectorAll("details")).map(function (d) { return d.open; });
    var asked = opener && opener.closest("#bgp") && opener.dataset.name; // of the dialog
    set("bgptext", bgp && bgp.text || "");
    $("bgptext").hidden = !$("bgptext").textContent;
    $("bgp").replaceChildren.apply($("bgp"), (bgp && bgp.pictures || []).map(function (p, i) { return graph(p, opened[i]); }));
    var marks = Array.from($("bgp").querySelectorAll("g[role=button]")), named = function (name) { return marks.find(function (m) { return m.dataset.name === name; }) || marks[0]; };
    if (name && marks.length) { reach(named(name)); }
    if (asked && marks.length) { opener = named(asked); }
  }
  function graph(p, opened) {
    var box = make("div", "graph"), svg = drawing("svg", { viewBox: "0 84 620 " + (p.height - 92), class: "bgp", role: "group", "aria-label": p.title + ", BGP graph: the arrow keys go from mark to mark. The table has the same." });
    if (p.ring) { svg.append(drawing("circle", { cx: p.ring.x, cy: p.ring.y, r: p.ring.r, class: "edge " + p.ring.c })); }
    p.lines.forEach(function (l) {
      var line = drawing("path", { d: l.d, class: "edge " + l.c });
      if (l.to >= 0) { line.append(drawing("title", {}, p.marks[l.from].name + " and " + p.marks[l.to].name + ": " + sessions(l))); }
      svg.append(line);
    });
    (p.marks || []).forEach(function (m, i) {
      var g = drawing("g", { role: "button", tabindex: i ? -1 : 0, "aria-label": m.tip, "data-name": p.title + " " + m.name }), s = m.size;
      g.append(drawing("title", {}, m.tip));
      if (m.shape === "reflector") { g.append(drawing("rect", { x: m.x - s, y: m.y - s, width: 2 * s, height: 2 * s, class: "mark " + m.c })); }
      else if (m.shape === "router") { s += 2; g.append(drawing("path", { d: "M" + m.x + " " + (m.y - s) + "l" + s + " " + s + "l" + -s + " " + s + "l" + -s + " " + -s + "z", class: "mark " + m.c })); }
      else { g.append(drawing("circle", { cx: m.x, cy: m.y, r: s, class: "mark " + m.c })); }
      if (m.sign) { g.append(drawing("text", { x: m.x, y: m.y + 4.2, class: "sign" }, m.sign)); }
      g.append(label(m.label, ""));
      g.addEventListener("click", function () { showMark(p, i, g); });
      svg.append(g);
    });
    p.lines.concat(p.ring || []).forEach(function (l) { if (l.label) { svg.append(label(l.label, " down")); } });
    var told = make("div");
    told.append(make("h3", "", p.title), make("div", "verdict " + ({ up: "good", part: "fair", lost: "bad" }[p.c] || "none"), p.verdict), make("p", "soft", p.summary));
    if (p.troubles) {
      var down = make("ul");
      p.troubles.forEach(function (text) { down.append(make("li", "bad-text break", text)); });
      if (p.untold) { down.append(make("li", "bad-text", number(p.untold) + " more")); }
      told.append(down);
    }
    told.append(table(p, opened));
    box.append(svg, told);
    return box;
  }
  function table(p, opened) {
    var box = make("details"), scroll = make("div", "scroll"), all = make("table"), head = all.createTHead().insertRow(), body = all.createTBody();
    box.append(make("summary", "", "The graph as a table"), scroll);
    box.open = !!opened;
    scroll.append(all);
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", p.title + ", BGP sessions");
    ["Node", "Part in BGP", "Up", "Down", "Not known"].forEach(function (text, i) { var th = make("th", i > 1 ? "n" : "", text); th.scope = "col"; head.append(th); });
    (p.marks || []).forEach(function (m) {
      var row = body.insertRow();
      row.append(make("td", "break", m.name + (m.names ? ": " + m.names.join(", ") + ", …" : "")), make("td", "", m.role), make("td", "n", number(m.up || 0)), make("td", m.down ? "n bad" : "n zero", number(m.down || 0)), make("td", m.unknown ? "n warn" : "n zero", number(m.unknown || 0)));
    });
    return box;
  }
  function showMark(p, i, from) {
    var m = p.marks[i], all = make("ul");
    p.lines.forEach(function (l) {
      var other = l.from === i ? l.to : l.to === i ? l.from : -1;
      if (other >= 0) { all.append(make("li", l.down ? "bad-text" : "", p.marks[other].name + ": " + sessions(l))); }
    });
    open(m.name, [facts([["Part in BGP", m.role], ["Sessions", sessions(m)], ["Among them", (m.names || []).join(", ")], ["Full mesh", p.ring && m.role.indexOf("full mesh") >= 0 ? "its sessions are the ring; lines are those that are down" : ""]]), all], from);
  }
  function reach(mark) {
    mark.ownerSVGElement.querySelectorAll("g[role=button]").forEach(function (m) { m.setAttribute("tabindex", m === mark ? 0 : -1); });
    mark.focus();
  }
  $("bgp").addEventListener("keydown", function (event) {
    var mark = event.target.closest("g[role=button]");
    if (!mark) { return; }
    var all = Array.from(mark.ownerSVGElement.querySelectorAll("g[role=button]")), at = all.indexOf(mark);
    var next = all[{ ArrowRight: at + 1, ArrowDown: at + 1, ArrowLeft: at - 1, ArrowUp: at - 1, Home: 0, End: all.length - 1 }[event.key]];
    if (next) { event.preventDefault(); reach(next); }
  });
  $("bgp").addEventListener("keypress", function (event) { // a press that goes on must not reach the dialog's button
    var mark = event.target.closest("g[role=button]");
    if (mark && (event.key === "Enter" || event.key === " ")) { event.preventDefault(); mark.dispatchEvent(new MouseEvent("click")); }
  });

  // --- the dialog

  var opener = null;
  function open(title, parts, from) {
    opener = from || document.activeElement;
    $("dialoghead").textContent = title;
    $("detail").replaceChildren.apply($("detail"), parts);
    if (!$("dialog").open) { $("dialog").showModal(); }
  }
  $("close").addEventListener("click", function () { $("dialog").close(); });
  $("dialog").addEventListener("close", function () { if (opener) { opener.focus(); } });
  function facts(pairs) {
    var dl = make("dl", "facts");
    pairs.forEach(function (pair) { if (pair[1]) { dl.append(make("dt", "", pair[0]), make("dd", "", pair[1])); } });
    return dl;
  }
  function sheet(label, heads, rows, more) { // a cell is a text and its class
    var box = make("div"), scroll = make("div", "scroll sheet"), all = make("table"), head = all.createTHead().insertRow(), body = all.createTBody();
    scroll.tabIndex = 0;
    scroll.setAttribute("role", "region");
    scroll.setAttribute("aria-label", label);
    heads.forEach(function (text, i) { var th = make("th", rows.length && rows[0][i][1].slice(0, 1) === "n" ? "n" : "", text); th.scope = "col"; head.append(th); });
    rows.forEach(function (cells) {
      var row = body.insertRow();
      cells.forEach(function (cell) { row.append(make("td", cell[1], cell[0])); });
    });
    scroll.append(all);
    box.append(scroll);
    if (more) { box.append(make("p", "soft", number(more) + " more " + (more === 1 ? "is" : "are") + " not shown.")); }
    return box;
  }
  function failed(error) { return [make("p", "bad-text", error.message)]; }
  async function showNode(name, from) {
    try {
      var d = await get("node?name=" + encodeURIComponent(name));
      var parts = [facts([["Wave", d.w], ["State", words[d.m]], ["Began", known(d.begin) ? clock(d.begin) + " UTC" : ""], ["Last results", known(d.reports) ? clock(d.reports) + " UTC" : "none yet"],
        ["Paths", d.paths ? count(d.paths, "path") + " start or end on this node" : "none measured"],
        ["Probes", d.paths ? number(d.sent) + ": " + number(d.lost) + " lost, " + number(d.leaked) + " denied answered" + (d.longestMillis ? ", longest gap " + span(d.longestMillis) : "") : ""]])];
      parts.push(make("h3", "", "Pods"));
      if (d.podsNote) { parts.push(make("p", "bad-text", d.podsNote)); }
      if (d.pods) {
        parts.push(sheet("Pods of " + name, ["Pod", "In this change", "Restarts"], d.pods.map(function (p) {
          return [[p.namespace + "/" + p.name, "break"], [p.state + (p.note ? ": " + p.note : ""), p.bad && !p.restarts ? "bad" : ""], p.unread ? ["not known", "n"] : [p.restarts ? "restarted, " + number(p.restarts) + " in all" : "0", p.restarts ? "n bad" : "n zero"]];
        }), d.morePods));
      } else { parts.push(make("p", "soft", d.podsNote ? "The journal names none." : "None, besides Theseus' own.")); }
      parts.push(make("h3", "", "Paths"));
      if (d.list) {
        parts.push(sheet("Paths of " + name, ["Path", "Lost", "Longest gap", "Round trip now"], d.list.map(function (p) {
          return [[p.id + (p.cause ? ": " + p.cause : ""), "mono break"], !p.sent ? ["none sent", p.silent ? "n bad" : "n zero"] : p.denied ? [p.leaked ? number(p.leaked) + " answered" : "denied", p.leaked ? "n leak" : "n zero"] : [number(p.lost), p.lost ? "n bad" : "n zero"],
            [p.longestMillis ? span(p.longestMillis) : p.sent ? "none" : "–", p.longestMillis ? "n" : "n zero"], [p.silent ? "no new results" : p.now ? span(p.now / 1000) : "–", p.silent ? "n bad" : p.now ? "n" : "n zero"]];
        }), d.paths - d.list.length));
      } else { parts.push(make("p", "soft", "No path of it has been measured yet.")); }
      parts.push(make("h3", "", "Tasks of its agent"));
      if (d.tasks) {
        parts.push(sheet("Tasks of the agent of " + name, ["Time", "Task", "State"], d.tasks.map(function (t) {
          return [[clock(t.at), "t"], [t.title + (t.undo ? " (rollback)" : ""), "break"], [t.state + (t.error ? ": " + t.error : ""), t.state === "failed" ? "bad break" : "break"]];
        }), d.moreTasks));
      } else { parts.push(make("p", "soft", "The journal has none.")); }
      parts.push(make("h3", "", "Steps"));
      var all = make("ol");
      (d.steps || []).forEach(function (s) {
        var item = make("li", "", s.title + " ");
        item.append(make("span", "pill " + s.mark, words[s.mark]));
        if (s.failure) { item.append(make("p", "bad-text", s.failure)); }
        all.append(item);
      });
      parts.push(all, make("h3", "", "Journal"));
      if (d.lines) {
        parts.push(sheet("Journal of " + name, ["Time", "Record"], d.lines.map(function (l) { return [[clock(l.at), "t"], [l.text, l.bad ? "bad break" : "break"]]; }), d.moreLines));
      } else { parts.push(make("p", "soft", "It has no record about this node.")); }
      open(name, parts, from);
    } catch (error) { if (error !== old) { open(name, failed(error), from); } }
  }
  async function showStep(i, from) {
    try {
      var d = await get("step?i=" + i), parts = [facts([["Step", i + 1 + " of " + plan.steps.length + ", " + d.id], ["State", words[steps[i]]], ["Began", known(d.begin) ? clock(d.begin) + " UTC" : ""],
        ["Why", d.why], ["Gate", d.gate], ["Undo", (d.undo || []).join("; ")]])];
      if (d.failure) { parts.push(make("p", "bad-text", d.failure)); }
      var all = make("ol");
      (d.actions || []).forEach(function (a) { all.append(make("li", a.result === "failed" ? "bad-text" : "", a.title + (a.result ? ": " + a.result : "") + (a.error ? ": " + a.error : ""))); });
      parts.push(all);
      open(d.title, parts, from);
    } catch (error) { if (error !== old) { open(plan.steps[i].t, failed(error), from); } }
  }

  // --- actions

  var labels = { pause: "Pause", resume: "Resume", rollback: "Roll back", approve: "Approve" };
  function begin() {
    if (plan.user) { migration = plan.name; } // the next request is about this one, even if a later one begins
    drawWho();
    $("striplegend").querySelector("i").className = plan.compared ? "warn" : "bad";
    set("name", "· " + plan.name);
    set("change", plan.waits ? "" : plan.from + " → " + plan.to + (plan.strategy ? " · " + plan.strategy : ""));
    if (notice) { $("said").className = "bad"; set("said", notice); notice = ""; }
    $("buttons").textContent = "";
    (plan.actions || []).forEach(function (action) {
      var button = make("button", "", labels[action]);
      button.type = "button";
      button.addEventListener("click", function () { question(action, button); });
      $("buttons").append(button);
    });
    layPlan();
    keepWorkloads();
  }
  async function question(action, from) {
    try {
      var q = await get("question?action=" + action), form = make("form"), input = make("input"), yes = make("button", "strong", labels[action]);
      var parts = [q.word ? make("pre", "", q.text) : make("p", "", q.text), form];
      if (q.word) {
        var label = make("label", "", "Type " + q.word + " to continue: ");
        input.autocomplete = "off"; input.spellcheck = false; input.id = "word";
        label.append(make("br"), input);
        form.append(label);
        yes.disabled = true;
        input.addEventListener("input", function () { yes.disabled = input.value.trim() !== q.word; });
      }
      form.append(yes);
      form.addEventListener("submit", async function (event) {
        event.preventDefault();
        yes.disabled = true;
        var since = epoch, answer = await ask("do", { method: "POST", headers: { "Content-Type": "application/json" }, body: JSON.stringify({ action: action, word: input.value.trim(), plan: q.plan }) }).catch(function (error) { return { ok: false, text: async function () { return error.message; } }; });
        var said = answer.ok ? (await answer.json()).said : (await answer.text()).trim();
        if (since !== epoch) { return; }
        $("said").className = answer.ok ? "" : "bad";
        $("said").textContent = said;
        $("dialog").close();
      });
      open(labels[action] + " " + plan.name + "?", parts, from);
      (q.word ? input : yes).focus();
    } catch (error) { if (error !== old) { $("said").className = "bad"; $("said").textContent = error.message; } }
  }

  // --- the journal

  function drawLines(fresh) {
    var parent = $("lines");
    fresh.forEach(function (line) {
      var item = make("li", line.bad ? "bad" : line.minor ? "minor" : ""), at = make("time", "", clock(line.at));
      at.dateTime = line.at;
      item.append(at, make("span", "break", line.text));
      parent.prepend(item);
    });
    while (parent.children.length > 300) { parent.lastChild.remove(); }
  }
  $("minor").addEventListener("change", function () { $("lines").className = $("minor").checked ? "all" : ""; });

  // --- the timeline, newest first: what is there already keeps its line

  function drawTimeline(d) {
    var parent = $("timeline");
    (d.gone || []).forEach(function (key) {
      if (moments.has(key)) { moments.get(key).line.remove(); moments.delete(key); }
    });
    (d.add || []).forEach(function (m) {
      if (moments.has(m.k)) { moments.get(m.k).line.remove(); }
      var at = make("time"), text = make("span", "break", m.text);
      at.dateTime = m.at;
      if (m.beside) { text.append(make("span", "beside", m.beside)); }
      m.line = make("li", m.bad ? "bad" : m.kind);
      m.line.append(at, make("b", "", m.kind), text);
      m.ms = Date.parse(m.at);
      m.line.moment = m;
      moments.set(m.k, m);
      var next = Array.from(parent.children).find(function (line) { return line.moment.ms < m.ms || line.moment.ms === m.ms && line.moment.k > m.k; });
      parent.insertBefore(m.line, next || null);
    });
    var times = parent.querySelectorAll("time"), days = times.length && times[0].dateTime.slice(0, 10) !== times[times.length - 1].dateTime.slice(0, 10);
    times.forEach(function (at) {
      var text = (days ? at.dateTime.slice(5, 10) + " " : "") + clock(at.dateTime);
      if (at.textContent !== text) { at.textContent = text; }
    });
    set("timenote", (d.more ? "the newest " + number(moments.size) + ", and " + number(d.more) + " older · " : "") + d.note);
  }

  // --- the plan as a runbook: chapters are filled when they are opened

  var chapters = [], chapterOf = [], items = [];
  function layPlan() {
    plan.steps.forEach(function (step, i) {
      var last = chapters[chapters.length - 1];
      if (!last || last.name !== step.g) {
        last = { name: step.g, from: i, to: i, done: 0 };
        last.box = make("details");
        last.head = make("summary");
        last.head.append(make("b", "", step.g), make("span", "pill"), make("span", "right"));
        last.box.append(last.head);
        last.box.addEventListener("toggle", fill.bind(null, last));
        chapters.push(last);
        $("plan").append(last.box);
      }
      last.to = i + 1;
      chapterOf[i] = last;
    });
  }
  function fill(chapter) {
    if (!chapter.box.open || chapter.filled) { return; }
    chapter.filled = true;
    var all = make("ul", "steps");
    for (var i = chapter.from; i < chapter.to; i++) { all.append(item(i)); }
    chapter.box.append(all);
  }
  function item(i) {
    var li = items[i] = make("li", steps[i]), button = make("button", "", i + 1 + ". " + plan.steps[i].t);
    button.type = "button";
    button.addEventListener("click", function () { showStep(i, button); });
    if (plan.steps[i].x) { li.append(make("div", "point", "Point of no return: earlier steps can be undone, this step and later ones cannot.")); }
    li.append(button, " ", make("span", "pill " + steps[i], words[steps[i]]));
    return li;
  }
  function drawPlan(changed) {
    var touched = new Set();
    changed.forEach(function (one) {
      touched.add(chapterOf[one.i]);
      if (items[one.i]) { items[one.i].className = one.m; items[one.i].lastChild.className = "pill " + one.m; items[one.i].lastChild.textContent = words[one.m]; }
    });
    touched.forEach(function (chapter) {
      var sums = {};
      for (var i = chapter.from; i < chapter.to; i++) { sums[steps[i]] = (sums[steps[i]] || 0) + 1; }
      var total = chapter.to - chapter.from, mark = sums.failed ? "failed" : sums.watched ? "watched" : sums.moving ? "moving" : sums.undone ? "undone" : sums.done === total ? "done" : sums.done ? "moving" : "todo";
      chapter.head.children[1].className = "pill " + mark;
      chapter.head.children[1].textContent = words[mark];
      chapter.head.children[2].textContent = (sums.done || 0) + " of " + count(total, "step") + " done";
      if ((mark === "moving" || mark === "watched" || mark === "failed") && !chapter.opened) { chapter.opened = chapter.box.open = true; }
      if (mark === "done" && chapter.opened === true) { chapter.opened = "past"; chapter.box.open = false; }
    });
    set("plannote", steps.filter(function (m) { return m === "done"; }).length + " of " + count(plan.steps.length, "step") + " done");
  }

  // --- the strip chart: a lane for each class, losses above the line as tall as their gap, round trips as bands

  function drawStrip() {
    var canvas = $("strip"), style = getComputedStyle(document.documentElement), colour = function (name) { return style.getPropertyValue("--" + name).trim(); };
    var lane = 46, left = 150, axis = 20, width = canvas.clientWidth, height = Math.max(strip.classes.length, 1) * lane + axis, scale = devicePixelRatio || 1;
    canvas.width = width * scale; canvas.height = height * scale; canvas.style.height = height + "px";
    var g = canvas.getContext("2d");
    g.scale(scale, scale);
    g.font = "12px " + getComputedStyle(document.body).fontFamily;
    g.textBaseline = "middle";
    var bins = 60, slow = 1, all = Array.from(cells.values());
    all.forEach(function (c) { bins = Math.max(bins, c.b + 1); slow = Math.max(slow, c.q || 0); });
    var unit = (width - left) / bins, lossHeight = function (ms) { return (lane - 8) * (0.12 + 0.88 * Math.min(1, Math.log10(1 + ms) / 4)); };
    var paceHeight = function (us) { return (lane - 8) * 0.6 * Math.log10(1 + us / 50) / Math.log10(1 + slow / 50); };
    set("stripnote", strip.width ? span(strip.width) + " per bar · round trips up to " + span(slow / 1000) + ", gaps up to 10 s, logarithmic" : "");
    strip.classes.forEach(function (name, i) {
      var base = (i + 1) * lane - 3;
      g.fillStyle = colour("ink"); g.fillText(name, 0, base - lane / 2 + 4, left - 12);
      g.fillStyle = colour("line"); g.fillRect(left, base, width - left, 1);
    });
    all.forEach(function (c) {
      var base = (c.c + 1) * lane - 3, x = left + c.b * unit, w = Math.max(unit, 1);
      if (c.q) { g.globalAlpha = 0.2; g.fillStyle = colour("accent"); g.fillRect(x, base - paceHeight(c.q), w, paceHeight(c.q)); g.globalAlpha = 1; }
      if (c.p) { g.fillStyle = colour("accent"); g.fillRect(x, base - paceHeight(c.p), w, 1.5); }
    });
    all.forEach(function (c) {
      if (!c.g) { return; }
      var base = (c.c + 1) * lane - 3, w = Math.max(unit, c.g / strip.width * unit, 2.5);
      g.fillStyle = colour(c.k ? "leak" : plan.compared ? "warn" : "bad");
      g.fillRect(left + c.b * unit, base - lossHeight(c.g), Math.min(w, width - left - c.b * unit), lossHeight(c.g));
    });
    if (!known(strip.begin)) { return; }
    g.fillStyle = colour("soft"); g.textAlign = "center";
    var begun = Date.parse(strip.begin), every = [10, 30, 60, 120, 300, 600, 1800, 3600, 7200, 21600].find(function (s) { return bins * strip.width / 1000 / s <= 8; }) || 43200;
    for (var at = Math.ceil(begun / 1000 / every) * every * 1000; at < begun + bins * strip.width; at += every * 1000) {
      var x = left + (at - begun) / strip.width * unit;
      if (x > left + 24 && x < width - 24) { g.fillText(new Date(at).toISOString().slice(11, every < 60 ? 19 : 16), x, height - 8); }
    }
    $("strip").setAttribute("aria-label", "Losses and round trips over time, by class: " + (all.some(function (c) { return c.g; }) ? "some classes lost probes" : "no losses") + ". The table below has the figures.");
  }
  addEventListener("resize", drawStrip);
  matchMedia("(prefers-color-scheme: dark)").addEventListener("change", drawStrip);
  setInterval(function () { if (now && known(now.begun) && !known(now.ended)) { drawNow(); } }, 5000);

  follow();
})();
