"use strict";
(() => {
  const SPAN_S = 300; // of a plot
  const MOST_ROWS = 500; // of a live tail
  const said = document.getElementById("said");
  const at = document.getElementById("at");
  const pause = document.getElementById("pause");
  const live = document.getElementById("live");
  const rows = document.getElementById("rows");
  let paused = false;
  let shown = live ? null : "";

  // One poll a page; none while nobody sees it.
  setInterval(() => {
    if (!paused && !document.hidden) document.body.dispatchEvent(new Event("tick"));
  }, 1000);

  pause.addEventListener("click", () => {
    paused = !paused;
    pause.setAttribute("aria-pressed", String(paused));
  });

  function say(text) {
    if (said.textContent !== text) said.textContent = text; // what has not changed is not read out again
  }

  const selects = () => {
    const selection = getSelection();
    return !selection.isCollapsed && live.contains(selection.anchorNode);
  };

  document.body.addEventListener("htmx:beforeSwap", (event) => {
    const { target, serverResponse, isError } = event.detail;
    if (target !== live || isError) return;
    if (serverResponse === shown || selects()) event.detail.shouldSwap = false;
    else shown = serverResponse;
  });

  document.body.addEventListener("htmx:afterSwap", () => {
    while (rows && rows.rows.length > MOST_ROWS) rows.deleteRow(-1);
  });

  document.body.addEventListener("htmx:sendError", () => say("The console does not answer: does it still run?"));
  document.body.addEventListener("htmx:timeout", () => say("The console does not answer in time."));
  document.body.addEventListener("htmx:responseError", (event) => {
    const { status } = event.detail.xhr;
    say(status === 401 ? "Your session has ended: open the link that dledger console has printed last."
      : `What this page shows cannot be had now (${status}).`);
  });

  const plots = [...document.querySelectorAll(".plot")].map((figure) => {
    const style = getComputedStyle(document.documentElement);
    const axis = { stroke: style.getPropertyValue("--dim"), grid: { stroke: style.getPropertyValue("--line"), width: 1 } };
    const size = () => ({ width: Math.max(200, figure.clientWidth), height: 150 });
    const data = [[], []];
    const plot = new uPlot({
      ...size(),
      legend: { show: false },
      cursor: { show: false },
      axes: [{ ...axis, space: 90, values: (_, ticks) => ticks.map(clock) }, { ...axis, size: 64, values: (_, ticks) => ticks.map(short) }],
      scales: { y: { range: (_, low, high) => [0, Math.max(1, high * 1.1)] } },
      series: [{}, { stroke: style.getPropertyValue("--first"), width: 2, points: { show: false } }],
    }, data, figure);
    plot.root.setAttribute("aria-hidden", "true"); // the table has the numbers
    new ResizeObserver(() => plot.setSize(size())).observe(figure);
    return { plot, data, series: figure.dataset.series };
  });

  const clock = (seconds) => new Date(1000 * seconds).toTimeString().slice(0, 8);

  function short(value) {
    const step = [[1e12, "T"], [1e9, "G"], [1e6, "M"], [1e3, "k"]].find(([size]) => value >= size);
    return step ? `${+(value / step[0]).toFixed(1)}${step[1]}` : String(+value.toFixed(2));
  }

  document.body.addEventListener("sample", (event) => {
    const { said: text, at: time, points } = event.detail;
    say(text);
    at.textContent = time;
    const now = Date.now() / 1000;
    for (const { plot, data, series } of plots) {
      if (!(series in points)) continue;
      data[0].push(now);
      data[1].push(points[series]);
      while (data[0][0] < now - SPAN_S) data.forEach((column) => column.shift());
      plot.setData(data);
    }
  });
})();
